"""What a Kafka Connect connector is, from the answers of its worker: its topics, its group, its state. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from topicshift.core.kafka.named import whole

STOPS_FROM = (3, 5)
"""First version of Connect that can stop a connector and keep it."""

_MASKED = re.compile(r"\*{4,}|\[hidden\]", re.IGNORECASE)
_SEARCH = re.compile(r"elasticsearch|opensearch", re.IGNORECASE)


@dataclass(frozen=True)
class Connector:
    """A connector as its worker shows it. ``tasks``: id to state. ``why``: id (-1: the connector) to its failure."""

    name: str
    role: str
    state: str
    tasks: Mapping[int, str]
    config: Mapping[str, str]
    why: Mapping[int, str]

    @property
    def failed(self) -> list[str]:
        """The connector and the tasks that failed, in words."""
        parts = {-1: self.state, **self.tasks}
        return [
            f"{'the connector' if i < 0 else f'task {i}'} is FAILED" + (f" ({self.why[i]})" if self.why.get(i) else "")
            for i, state in parts.items()
            if state == "FAILED"
        ]

    @property
    def runs(self) -> bool:
        """Whether the connector and all its tasks, one at least, are RUNNING."""
        return self.state == "RUNNING" and bool(self.tasks) and set(self.tasks.values()) == {"RUNNING"}

    @property
    def placed(self) -> bool:
        """Whether it and its tasks are each with a worker; while the workers rebalance they may be with none."""
        return not {self.state, *self.tasks.values()} & {"UNASSIGNED", "RESTARTING"}

    @property
    def stopped(self) -> bool:
        """Whether it is STOPPED, and its worker lists no task any more."""
        return self.state == "STOPPED" and not self.tasks

    def text(self) -> str:
        """Its state and that of its tasks, in words."""
        if self.failed:
            return ", ".join(self.failed)
        states = ", ".join(f"task {i} {state}" for i, state in sorted(self.tasks.items())) or "no task"
        return f"the connector is {self.state}, {states}"


def read_connector(status: Any, config: Any) -> Connector:
    """From ``GET /connectors/NAME/status`` and ``/config``. Raises ``ValueError`` for what is neither."""
    try:
        connector, tasks = status["connector"], status["tasks"]
        why = {int(t["id"]): _failure(t.get("trace")) for t in tasks} | {-1: _failure(connector.get("trace"))}
        return Connector(
            str(status["name"]),
            {"sink": "consumer", "source": "producer"}.get(str(status.get("type")), "unknown"),
            str(connector["state"]),
            {int(t["id"]): str(t["state"]) for t in tasks},
            {str(k): "" if v is None else str(v) for k, v in config.items()},
            why,
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"not the answer of a Connect worker ({type(error).__name__}: {error})") from None


def _failure(trace: Any) -> str:
    """The class of a failure: its message may quote a setting or a record."""
    lines = str(trace or "").splitlines()
    return re.split(r"[:\s]", lines[0], maxsplit=1)[0][:120] if lines else ""


def topics_of(value: str) -> list[str]:
    """The topics of a comma-separated setting."""
    return [t.strip() for t in value.split(",") if t.strip()]


def renamed(value: str, old: str, new: str) -> str | None:
    """The setting with ``new`` in the place of ``old``, else as it is; None where ``old`` is not in it, or ``new`` is.

    Its own inverse with ``old`` and ``new`` exchanged.
    """
    if old not in topics_of(value) or new in topics_of(value):
        return None
    return ",".join(p.replace(p.strip(), new) if p.strip() == old else p for p in value.split(","))


def group_of(connector: Connector) -> str:
    """The consumer group of a sink connector."""
    return connector.config.get("consumer.override.group.id") or f"connect-{connector.name}"


def names_too(config: Mapping[str, str], topic: str, but: set[str]) -> list[str]:
    """Settings, other than ``but``, whose name or value has the topic in it, or is made from a topic's name."""
    word = whole(topic)
    part = re.compile(rf"(?<![A-Za-z0-9_-]){re.escape(topic)}(?![A-Za-z0-9_-])")
    but = but | {"name", "consumer.override.group.id"}
    return sorted(
        key for key, v in config.items() if key not in but and (word.search(v) or part.search(key) or "${topic}" in v)
    )


def masked(config: Mapping[str, str]) -> list[str]:
    """Settings whose value its worker does not show: written back, they would be lost."""
    return sorted(key for key, value in config.items() if _MASKED.fullmatch(value.strip()))


def versions_by_offset(config: Mapping[str, str]) -> str:
    """Why this sink surely takes a record with a lower offset for an older one; empty where that cannot be told.

    Connectors into Elasticsearch and OpenSearch write the offset as the document's external version where they insert
    under the record's key.
    """
    if not _SEARCH.search(config.get("connector.class", "")):
        return ""
    by_key = config.get("key.ignore", "false").lower() != "true"
    inserts = config.get("write.method", "insert").lower() == "insert"
    if not (by_key and inserts) or config.get("external.version.header"):
        return ""
    return "it inserts documents under the record's key with the offset as their version"


def can_stop(root: Any) -> str:
    """What keeps a worker of this version (``GET /``) from stopping a connector; empty where nothing does."""
    return too_old(root, STOPS_FROM, "stop a connector")


def too_old(root: Any, since: tuple[int, int], what: str) -> str:
    """What keeps a worker of this version (``GET /``) from doing what it can ``since`` another; empty: nothing."""
    version = str(root.get("version", "")) if isinstance(root, Mapping) else ""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None:
        return "its worker does not say its version"
    if (int(found[1]), int(found[2])) < since:
        return f"its worker is of Kafka {version}, which cannot {what} ({since[0]}.{since[1]} and later can)"
    return ""
