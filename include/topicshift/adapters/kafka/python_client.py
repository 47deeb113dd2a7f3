"""kafka-python, for what librdkafka cannot ask: its client for a librdkafka config, and requests to single brokers.

This is the one file that touches what kafka-python keeps to itself (names that begin with ``_``, ``kafka.net``): a new
version of it is looked at here.
"""

from __future__ import annotations

import contextlib
import json
import logging
import ssl
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from topicshift.core.errors import AccessDenied, SpecError, Unreadable
from topicshift.core.kafka.java_client import checks_host, mechanism_of, protocol_of
from topicshift.quiet import quiet

CONNECT_MS = 3000
"""Milliseconds for the first try to connect to a broker, log-in included; each further one has twice as long."""


def kafka_python_config(config: Mapping[str, Any], *, timeout_s: float = 15.0) -> dict[str, Any]:
    """The keyword arguments of a kafka-python client for a librdkafka config.

    ``timeout_s`` bounds each request and the bootstrap. Raises ``SpecError`` for what kafka-python cannot do
    (a certificate it cannot load). The result holds secrets: never log it.
    """
    out: dict[str, Any] = {
        "bootstrap_servers": [s.strip() for s in str(config["bootstrap.servers"]).split(",") if s.strip()],
        "client_id": str(config.get("client.id", "topicshift")),
        "security_protocol": protocol_of(config),
        "request_timeout_ms": int(timeout_s * 1000),
        "bootstrap_timeout_ms": int(timeout_s * 1000),
    }
    if out["security_protocol"].startswith("SASL"):
        mechanism = mechanism_of(config)
        out["sasl_mechanism"] = mechanism
        if mechanism == "GSSAPI":
            out["sasl_kerberos_service_name"] = str(config.get("sasl.kerberos.service.name", "kafka"))
        elif mechanism == "OAUTHBEARER":
            out["sasl_oauth_token_provider"] = _token_provider(config, timeout_s)
        else:
            out["sasl_plain_username"] = str(config.get("sasl.username", ""))
            out["sasl_plain_password"] = str(config.get("sasl.password", ""))
    if out["security_protocol"].endswith("SSL"):
        out["ssl_context"] = ssl_context(config)
    return out


def ssl_context(config: Mapping[str, Any]) -> ssl.SSLContext:
    """A TLS context with the trust and the client certificate of a librdkafka config (files, PEM texts or PKCS12)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = checks_host(config)
    if str(config.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        if "ssl.ca.pem" in config:
            context.load_verify_locations(cadata=str(config["ssl.ca.pem"]))
        elif "ssl.ca.location" in config:
            place = Path(str(config["ssl.ca.location"]))
            context.load_verify_locations(
                cafile=None if place.is_dir() else str(place), capath=str(place) if place.is_dir() else None
            )
        else:
            context.load_default_certs()
        _load_client_certificate(context, config)
    except (OSError, ssl.SSLError, ValueError) as exc:
        raise SpecError(
            f"The TLS files of the Kafka connection cannot be loaded: {exc}. Check ssl.ca.location, "
            "ssl.certificate.location, ssl.key.location, ssl.keystore.location and the passwords that go with them."
        ) from None
    return context


def _load_client_certificate(context: ssl.SSLContext, config: Mapping[str, Any]) -> None:
    password = str(config["ssl.key.password"]) if "ssl.key.password" in config else None
    if "ssl.keystore.location" in config:
        chain, key = _pkcs12(Path(str(config["ssl.keystore.location"])), str(config.get("ssl.keystore.password", "")))
        _load_pem(context, chain, key, None)
    elif "ssl.certificate.pem" in config:
        key_pem = str(config.get("ssl.key.pem", "")).encode()
        _load_pem(context, str(config["ssl.certificate.pem"]).encode(), key_pem, password)
    elif "ssl.certificate.location" in config:
        key_file = config.get("ssl.key.location")
        context.load_cert_chain(str(config["ssl.certificate.location"]), str(key_file) if key_file else None, password)


def _load_pem(context: ssl.SSLContext, chain: bytes, key: bytes, password: str | None) -> None:
    # ssl takes files only; the file is private to this user and gone before the call returns.
    with tempfile.TemporaryDirectory(prefix="topicshift-") as folder:
        file = Path(folder) / "client.pem"
        file.touch(mode=0o600)
        file.write_bytes(key + b"\n" + chain)
        context.load_cert_chain(str(file), password=password)


def _pkcs12(file: Path, password: str) -> tuple[bytes, bytes]:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    key, certificate, more = pkcs12.load_key_and_certificates(file.read_bytes(), password.encode() or None)
    if key is None or certificate is None:
        raise ValueError(f"{file.name} holds no private key with its certificate")
    chain = b"".join(c.public_bytes(Encoding.PEM) for c in [certificate, *more])
    return chain, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _token_provider(config: Mapping[str, Any], timeout_s: float) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    if str(config.get("sasl.oauthbearer.method", "")).lower() != "oidc":
        raise SpecError(
            "OAUTHBEARER needs sasl.oauthbearer.method=oidc with sasl.oauthbearer.token.endpoint.url, "
            "sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret; a token callback cannot be handed to every "
            "client used here. Set these four, or use SCRAM or a certificate."
        )

    class ClientCredentials(AbstractTokenProvider):  # type: ignore[misc]
        """OAuth 2.0 client credentials (RFC 6749, section 4.4); a token is kept until shortly before its end."""

        _token = ""
        _until = 0.0

        def token(self) -> str:
            if time.monotonic() >= self._until:
                self._token, lifetime = fetch_token(config, timeout_s)
                self._until = time.monotonic() + 0.8 * lifetime
            return self._token

    return ClientCredentials()


def fetch_token(config: Mapping[str, Any], timeout_s: float) -> tuple[str, float]:
    """A bearer token and its lifetime in seconds from ``sasl.oauthbearer.token.endpoint.url``.

    Raises ``AccessDenied`` when the endpoint refuses the client, ``Unreadable`` when it cannot be reached.
    """
    url = str(config.get("sasl.oauthbearer.token.endpoint.url", ""))
    if not url.startswith(("https://", "http://")):
        raise SpecError("sasl.oauthbearer.token.endpoint.url must be an http or https address. Correct it.")
    form = {
        "grant_type": "client_credentials",
        "client_id": str(config.get("sasl.oauthbearer.client.id", "")),
        "client_secret": str(config.get("sasl.oauthbearer.client.secret", "")),
    }
    if "sasl.oauthbearer.scope" in config:
        form["scope"] = str(config["sasl.oauthbearer.scope"])
    request = urllib.request.Request(url, data=urllib.parse.urlencode(form).encode())  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310
            body = json.load(answer)
        return str(body["access_token"]), float(body.get("expires_in", 60))
    except urllib.error.HTTPError as exc:
        with contextlib.closing(exc):
            raise AccessDenied(
                f"The token endpoint {url} answered {exc.code} to client {form['client_id']!r}. Without a token no "
                "broker can be asked. Check sasl.oauthbearer.client.id, its secret and scope."
            ) from None
    except (OSError, ValueError, KeyError) as exc:
        raise Unreadable(
            f"The token endpoint {url} gave no usable token ({type(exc).__name__}). Without one no broker can be "
            "asked. Check sasl.oauthbearer.token.endpoint.url and that it can be reached from here."
        ) from None


# ------------------------------------------------------------------------------------------------ its private parts

RETRY = frozenset({14, 15, 16, 7, 13})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, REQUEST_TIMED_OUT, NETWORK_EXCEPTION."""


def admin_client(config: Mapping[str, Any], *, timeout_s: float) -> Any:
    """kafka-python's admin client. Raises its errors, ``OSError`` or ``ValueError`` when no broker answers."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError
    from kafka.net.compat import KafkaNetClient

    _close_what_fails()
    quiet()
    settings = kafka_python_config(config, timeout_s=timeout_s)
    # This library logs the whole config, password included, at level DEBUG when it starts.
    gag = logging.getLogger("kafka.admin.client")
    gag.addFilter(_no_config)
    made: list[Any] = []

    def client(**given: Any) -> Any:
        most = int(timeout_s * 1000)
        first = {"socket_connection_setup_timeout_ms": min(CONNECT_MS, most)}
        made.append(KafkaNetClient(**given, **first, socket_connection_setup_timeout_max_ms=most))
        _take_turns(made[0]._manager)
        return made[0]

    try:
        return KafkaAdminClient(**settings, kafka_client=client)
    except (KafkaError, OSError, ValueError):
        for half in made:  # it leaves its thread and sockets behind when it cannot start
            half.close()
            half._manager._net.stop()
        raise
    finally:
        gag.removeFilter(_no_config)


def _close_what_fails() -> None:
    """Close the socket of each connection that cannot be made: the library leaves it to the garbage collector."""
    from kafka.net.inet import KafkaNetSocket

    connect = KafkaNetSocket.sock_connect
    if hasattr(connect, "closes"):
        return

    async def sock_connect(self: Any, net: Any, sock: Any, *rest: Any, **options: Any) -> Any:
        try:
            return await connect(self, net, sock, *rest, **options)
        except BaseException:
            sock.close()
            raise

    sock_connect.closes = True  # type: ignore[attr-defined]
    KafkaNetSocket.sock_connect = sock_connect


def _take_turns(manager: Any) -> None:
    """Let bootstrap try the brokers in turn, each for as long as a connection may take.

    The library picks one at random and gives it all the time that there is: one broker that accepts connections and
    says nothing would be the end of it.
    """
    connect, all_brokers = manager.get_connection, manager.cluster.bootstrap_brokers

    def get_connection(node_id: Any, timeout_ms: float | None = None, **options: Any) -> Any:
        most = manager.socket_connection_setup_timeout_ms(node_id)
        return connect(node_id, timeout_ms=most if timeout_ms is None else min(timeout_ms, most), **options)

    def bootstrap_brokers() -> list[Any]:
        failures = [(manager._backoff.get(b.node_id, (0,))[0], b) for b in all_brokers()]
        least = min(count for count, _ in failures)
        return [b for count, b in failures if count == least]

    manager.get_connection, manager.cluster.bootstrap_brokers = get_connection, bootstrap_brokers


def _no_config(record: logging.LogRecord) -> bool:
    return "configuration" not in str(record.msg)


def ask_node(admin: Any, request: Any, node: int) -> Any:
    """One request to one broker, and its answer."""
    return admin._manager.run(admin._manager.send, request, node)


def ask_nodes(admin: Any, requests: Mapping[Any, Any]) -> list[Any]:
    """A request to each of these brokers (or coordinators), all at once, and their answers in that order."""

    async def go() -> list[Any]:
        sent = [admin._manager.send(request, node_id=node) for node, request in requests.items()]
        return [await answer for answer in sent]

    answers: list[Any] = admin._manager.run(go)
    return answers


def live_brokers(admin: Any, node: int | None = None) -> list[int]:
    """The ids of the live brokers as this one shows them; None: as the client knows them, and it asks again."""
    from kafka.protocol.metadata import MetadataRequest

    cluster = admin._manager.cluster
    if node is None:
        cluster.request_update()  # by the library itself, meanwhile
        return [int(broker.node_id) for broker in cluster.brokers()]
    answer = ask_node(admin, MetadataRequest(topics=[], min_version=1), node)
    cluster.update_metadata(answer)  # so that a broker that came later can be spoken to
    return [int(broker.node_id) for broker in answer.brokers]


def at_coordinators(
    admin: Any, groups: list[str], request: Callable[[list[str]], Any], *, whole: bool = False
) -> tuple[list[Any], dict[str, str]]:
    """Send one request to each coordinator, all at once.

    Returns the rows (or, ``whole``, the answers themselves), and why no coordinator may be known for single groups
    (``GROUP_AUTHORIZATION_FAILED``): one group that is denied says nothing about the others. Raises kafka-python's
    errors for what concerns a whole request, and while the coordinator of any group is moving.
    """
    by_node, denied = admin._manager.run(_find, admin, groups)
    answers = ask_nodes(admin, {node: request(ids) for node, ids in by_node.items()})
    return (answers if whole else [row for answer in answers for row in answer.groups]), denied


async def _find(admin: Any, groups: list[str]) -> tuple[dict[Any, list[str]], dict[str, str]]:
    """Coordinator -> its groups, and the groups whose coordinator is not told to this client, with Kafka's reason."""
    from kafka import errors
    from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

    manager, kind = admin._manager, CoordinatorType.GROUP
    by_node: dict[Any, list[str]] = {}
    denied: dict[str, str] = {}
    unknown = []
    for group in groups:
        node = manager.cluster.get_coordinator(group, kind)
        if node is None:
            unknown.append(group)
        else:
            by_node.setdefault(node, []).append(group)
    if not unknown:
        return by_node, denied
    if manager.broker_version_data.api_version(FindCoordinatorRequest) >= 4:
        asked = FindCoordinatorRequest(key_type=kind.value, coordinator_keys=unknown, min_version=4)
        rows = [(row.key, row) for row in (await manager.send(asked)).coordinators]
    else:
        rows = [
            (g, await manager.send(FindCoordinatorRequest(key=g, key_type=kind.value, max_version=3))) for g in unknown
        ]
    for group, row in rows:
        if row.error_code in RETRY:
            raise errors.for_code(row.error_code)(f"coordinator of {group}")
        if row.error_code:
            denied[group] = error_name(row.error_code)
        else:
            node = manager.cluster.add_coordinator(row, kind, group, synthesize_node_id=False)
            by_node.setdefault(node, []).append(group)
    return by_node, denied


def forget_coordinators(admin: Any) -> None:
    """Look coordinators up again at the next request."""
    admin._manager.cluster._coordinators.clear()


def error_name(code: int) -> str:
    """Kafka's name of an error code (``GROUP_AUTHORIZATION_FAILED``)."""
    from confluent_kafka import KafkaError

    return str(KafkaError(code).name())
