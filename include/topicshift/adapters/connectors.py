"""A Kafka Connect connector's own offsets, from its worker's REST interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

from topicshift.adapters.rest import Ask, Endpoints, asker, endpoint_from_env
from topicshift.core.drain.evidence import ReaderEvidence, connect_offsets
from topicshift.core.errors import TopicshiftError
from topicshift.core.kafka import mirror
from topicshift.core.spec.locations import connection_of
from topicshift.core.text import parse_json

TIMEOUT_S = 8.0
MAX_BYTES = 10_000_000


def read_connector(reader: str, location: str, topic: str) -> ReaderEvidence:
    """What a connector has read of the topic: ``GET location/offsets`` of its worker (Kafka 3.5 and later).

    ``location`` is ``http(s)://worker:8083/connectors/NAME``, without credentials in it. Whatever does not answer as
    it should is evidence with an error, which certifies nothing.
    """
    from urllib.error import HTTPError, URLError
    from urllib.request import HTTPRedirectHandler, build_opener

    class Stay(HTTPRedirectHandler):
        """Where a server would send us is not the worker that was named."""

        def redirect_request(self, *_: Any) -> None:
            return None

    def failed(why: str) -> ReaderEvidence:
        return ReaderEvidence(reader=reader, kind="connect", topic=topic, error=f"{location}: {why}")

    try:
        parts = urlsplit(location)
        host = parts.hostname
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host or "/connectors/" not in parts.path:
        return ReaderEvidence(
            reader=reader,
            kind="connect",
            topic=topic,
            error=f"the location of {reader} is not of the form http://worker:8083/connectors/NAME",
        )
    if parts.username or parts.password:
        error = f"the location of {reader} holds credentials; a spec is no place for them"
        return ReaderEvidence(reader=reader, kind="connect", topic=topic, error=error)
    try:
        with build_opener(Stay).open(location.rstrip("/") + "/offsets", timeout=TIMEOUT_S) as answer:
            value: Any = parse_json(answer.read(MAX_BYTES))
        offsets = connect_offsets(value, topic)
    except HTTPError as exc:
        with exc:
            why = "its worker knows no such connector" if exc.code == 404 else "its worker refuses"
        return failed(f"{why} (HTTP {exc.code})")
    except URLError as exc:
        return failed(f"its worker does not answer ({exc.reason})")
    except (OSError, TimeoutError) as exc:
        return failed(f"its worker does not answer ({type(exc).__name__})")
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        return failed(f"not the answer of a Connect worker ({exc})")
    if not offsets:
        return failed(f"it has no offsets of {topic}")
    return ReaderEvidence(reader=reader, kind="connect", topic=topic, offsets=offsets)


def asks_of(endpoints: Endpoints = endpoint_from_env) -> Callable[[str], Ask]:
    """What asks the worker of a connection, by its name, for evidence. ``endpoints``: the environment's by default."""
    return lambda name: asker(endpoints(name), TIMEOUT_S / 2)


def read_by_connection(reader: str, location: str, topic: str, ask_of: Callable[[str], Ask]) -> ReaderEvidence:
    """What a connector has read of the topic, from the worker that a connection names, with the log-in there.

    Of MirrorMaker 2 what it has copied under its present alias counts, and a partition without an offset has not been
    copied at all. ``location`` is one of :func:`topicshift.core.spec.locations.by_connection`. Whatever does not answer
    as it should is evidence with an error, which certifies nothing.
    """

    def failed(why: str) -> ReaderEvidence:
        return ReaderEvidence(reader=reader, kind="connect", topic=topic, error=f"{location}: {why}")

    parts = connection_of(location)
    if parts is None:
        return failed("it is not of the form connection:NAME/CONNECTOR")
    try:
        ask = ask_of(parts[0])
        path = f"/connectors/{quote(parts[1], safe='')}"
        config, answer = ask("GET", f"{path}/config", None), ask("GET", f"{path}/offsets", None)
        mirrors = mirror.kind_of(config) == "source"
        alias = str(config.get("source.cluster.alias"))
        offsets = mirror.positions(answer, alias, topic) if mirrors else connect_offsets(answer, topic)
    except TopicshiftError as error:
        return failed(str(error))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return failed(f"not the answer of a Connect worker ({error})")
    if not offsets:
        return failed(f"it has no offsets of {topic}")
    return ReaderEvidence(reader=reader, kind="connect", topic=topic, offsets=offsets, from_start=mirrors)
