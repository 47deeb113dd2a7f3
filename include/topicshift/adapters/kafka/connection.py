"""One way to a cluster: the config from a file, a command line or an Airflow connection, and bounded clients.

Everything that speaks to Kafka's admin API goes through :class:`Connection`: each request is bounded in time, and
each error comes out typed by what it says about the world (:mod:`topicshift.core.errors`).
"""

from __future__ import annotations

import concurrent.futures
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from topicshift.adapters.kafka.client_config import check_config, load_client_properties
from topicshift.adapters.kafka.python_client import admin_client
from topicshift.core.errors import (
    AccessDenied,
    NotFound,
    Refused,
    SpecError,
    TopicshiftError,
    Transient,
    Unreadable,
)

log = logging.getLogger(__name__)
_client_log = logging.getLogger("topicshift.librdkafka")
_client_log.addHandler(logging.NullHandler())
_client_log.propagate = False  # reconnection chatter; what matters is raised, with the last cause in it

PROPERTIES_FILE_KEY = "topicshift.properties.file"
"""Key of an Airflow connection's extra that names a client properties file with the secrets."""

DEFAULT_TIMEOUT_S = 15.0
"""Seconds that one request may take, broker look-up and connection included."""

_T = TypeVar("_T")
_LOG_IN = re.compile(
    r"authentication (error|fail)|ssl handshake failed|mechanism handshake failed|unsupported sasl", re.IGNORECASE
)
_HOST_PORT = re.compile(
    r"^(?:(?i:plaintext|ssl|sasl_plaintext|sasl_ssl)://)?(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?$"
)
_CALLBACKS = frozenset({"error_cb", "throttle_cb", "stats_cb", "log_cb", "on_commit", "on_delivery", "logger"})


def _check_bootstrap(servers: str, where: str) -> str:
    parts = [s.strip() for s in servers.split(",") if s.strip()]
    if not parts:
        raise SpecError(f"{where} is empty. Name at least one broker as host:port.")
    for part in parts:
        match = _HOST_PORT.match(part)
        if match is None or (match[1] and not 0 < int(match[1]) < 65536):
            raise SpecError(f"{where}: {part!r} is not host:port. Write for instance broker-1.example.org:9092.")
    return ",".join(parts)


def client_config(
    bootstrap: str | None = None,
    properties_file: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One librdkafka config out of a properties file, a bootstrap address and overrides; the later ones win.

    Raises ``SpecError`` when no bootstrap address is given anywhere, when one is malformed, or when a property is
    unknown. Contacts nobody.
    """
    config: dict[str, Any] = dict(load_client_properties(properties_file)) if properties_file is not None else {}
    if bootstrap is not None:
        config["bootstrap.servers"] = bootstrap
    config |= {k: v for k, v in (overrides or {}).items() if v is not None}
    if "sasl.mechanisms" in config:
        config["sasl.mechanism"] = config.pop("sasl.mechanisms")
    servers = config.pop("metadata.broker.list", None) or config.get("bootstrap.servers")
    if servers is None:
        place = f"{properties_file} has no bootstrap.servers" if properties_file else "no bootstrap address is given"
        raise SpecError(f"{place}. Add bootstrap.servers=host:port to the properties, or name it beside them.")
    config["bootstrap.servers"] = _check_bootstrap(str(servers), "bootstrap.servers")
    if overrides:
        check_config(config, name="The Kafka config")
    return config


def from_airflow_extra(extra: Mapping[str, Any]) -> dict[str, Any]:
    """The librdkafka config of an Airflow Kafka connection.

    ``extra`` is the connection's JSON: librdkafka properties, and optionally ``topicshift.properties.file``, the path
    of a client properties file (for secrets that should not stand in Airflow's database); properties of the extra
    itself win over the file. Group ids and other properties of an application are passed over.
    """
    extra = dict(extra)
    file = extra.pop(PROPERTIES_FILE_KEY, None)
    if isinstance(extra.get("oauth_cb"), str):
        raise SpecError(
            "The Kafka connection's extra has oauth_cb, a Python callback, which cannot be handed to every client used "
            "here. Use sasl.oauthbearer.method=oidc with a token endpoint, SCRAM or a certificate."
        )
    application = {"group.id", "group.instance.id", "auto.offset.reset", "enable.auto.commit", "isolation.level"}
    application |= {"auto.commit.interval.ms", "enable.auto.offset.store", "session.timeout.ms", "acks"}
    application |= {"max.poll.interval.ms", "transactional.id", "enable.idempotence", "linger.ms"} | _CALLBACKS
    kept = {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in extra.items() if k not in application}
    return client_config(properties_file=file, overrides=kept)


_DENIED = {"TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"} | {
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
}
_AUTHENTICATION = {"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "_SSL", "UNSUPPORTED_SASL_MECHANISM"}
_MISSING = {"UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "GROUP_ID_NOT_FOUND", "TRANSACTIONAL_ID_NOT_FOUND"}
_MISSING |= {"_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PARTITION"}
_REFUSED = {"TOPIC_ALREADY_EXISTS", "NON_EMPTY_GROUP", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS"}
_REFUSED |= {"INVALID_TOPIC_EXCEPTION", "TOPIC_EXCEPTION", "INVALID_PARTITIONS", "INVALID_REPLICATION_FACTOR"}
_REFUSED |= {"INVALID_CONFIG", "POLICY_VIOLATION", "INVALID_REQUEST", "INVALID_REPLICA_ASSIGNMENT"}
_REFUSED |= {"TOPIC_DELETION_DISABLED", "INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE", "INVALID_TOPIC"}
_REFUSED |= {"INVALID_CONFIGURATION", "INVALID_REPLICATION_ASSIGNMENT"}
_PASSING = {
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "NOT_LEADER_OR_FOLLOWER",
    "REQUEST_TIMED_OUT",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "NOT_CONTROLLER",
    "NETWORK_EXCEPTION",
    "BROKER_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE",
    "KAFKA_STORAGE_ERROR",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE",
    "CONCURRENT_TRANSACTIONS",
    "THROTTLING_QUOTA_EXCEEDED",
    "UNSTABLE_OFFSET_COMMIT",
    "_TIMED_OUT",
    "_TRANSPORT",
    "_WAIT_COORD",
    "_LEADER_NOT_AVAILABLE",
}


def typed_error(
    code: str, text: str, *, operation: str, resource: str, bootstrap: str, principal: str | None = None
) -> TopicshiftError:
    """The error of :mod:`topicshift.core.errors` for a Kafka error code name and its text.

    ``operation`` is the right it took (``DESCRIBE``), ``resource`` what it was asked of (``topic payments``).
    """
    who = f" for {principal}" if principal else ""
    if code in _DENIED:
        return AccessDenied(
            f"{operation} on {resource} is not allowed{who} ({code}). Without this right the answer is unknown, "
            f"which is never a yes. Grant {operation} on {resource}; docs/least-privilege.md lists every right needed."
        )
    if code == "SECURITY_DISABLED":
        return Refused(
            f"{operation} on {resource}: the brokers at {bootstrap} run without an authorizer, so there are no ACLs."
        )
    if code in _AUTHENTICATION:
        return AccessDenied(
            f"The brokers at {bootstrap} do not accept this log-in ({text}). Nothing can be asked of them. Check "
            "security.protocol, sasl.mechanism, user name and password or the certificates."
        )
    if code in _MISSING:
        return NotFound(f"{resource} does not exist on {bootstrap} ({code}). Check its name and the cluster.")
    if code in _REFUSED:
        return Refused(f"The brokers at {bootstrap} refuse {operation} on {resource}: {text} ({code}).")
    if code == "_NOENT":  # librdkafka's word when metadata names no leader for anything that was asked
        return Unreadable(
            f"{operation} on {resource}: the brokers at {bootstrap} show no partition leader of it to this client. "
            f"It may be missing, DESCRIBE on it may not be granted{who}, or leaders are being elected. Check the three."
        )
    if code in _PASSING:
        return Transient(
            f"{operation} on {resource} got no answer now ({code}: {text}) from {bootstrap}. Nothing is known about it "
            "until it is asked again. Check the address, the network and security.protocol if it stays so."
        )
    return Unreadable(f"{operation} on {resource} failed at {bootstrap}: {text} ({code}).")


class Connection:
    """Bounded clients for one cluster, made when first needed. Thread-safe.

    ``config`` is a librdkafka config (see :func:`client_config`); ``timeout_s`` bounds each request.
    """

    def __init__(self, config: Mapping[str, Any], timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self.config = dict(config)
        self.timeout_s = timeout_s
        self.bootstrap = _check_bootstrap(str(config.get("bootstrap.servers", "")), "bootstrap.servers")
        self.principal = f"User:{config['sasl.username']}" if config.get("sasl.username") else None
        self._lock = threading.RLock()
        self._native: Any = None
        self._python: Any = None
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._said: str | None = None

    def __repr__(self) -> str:
        return f"Connection({self.bootstrap})"

    def _heard(self, error: Any) -> None:
        if error.name() != "_ALL_BROKERS_DOWN":
            self._said = error.str()

    @property
    def native(self) -> Any:
        """Confluent-kafka's admin client. Raises ``SpecError`` when librdkafka does not take the config."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        with self._lock:
            if self._native is None:
                defaults: dict[str, Any] = {
                    "client.id": "topicshift",
                    "socket.timeout.ms": int(self.timeout_s * 1000),
                    "socket.connection.setup.timeout.ms": max(1000, int(self.timeout_s * 1000)),
                    "reconnect.backoff.ms": 50,
                    "reconnect.backoff.max.ms": 1000,
                    # A request for the controller waits for the broker that the last metadata names: let one that
                    # died meanwhile be forgotten well within the time-out.
                    "topic.metadata.refresh.interval.ms": 2000,
                    "log.connection.close": "false",
                    "error_cb": self._heard,
                }
                try:
                    self._native = AdminClient({**defaults, **self.config}, logger=_client_log)
                except (KafkaException, TypeError) as exc:
                    check_config(self.config, name="The Kafka config")
                    raise SpecError(f"The Kafka client does not take this config: {exc}") from None
            return self._native

    @property
    def kafka_python(self) -> Any:
        """kafka-python's admin client, for what librdkafka lacks. Raises ``Unreadable`` when no broker answers."""
        from kafka.errors import KafkaError

        with self._lock:
            if self._python is None:
                try:
                    self._python = admin_client(self.config, timeout_s=self.timeout_s)
                except (KafkaError, OSError, ValueError) as exc:
                    raise self.error(exc, operation="DESCRIBE", resource="the cluster") from None
            return self._python

    def result(self, future: concurrent.futures.Future[Any], *, operation: str, resource: str) -> Any:
        """The future's result within the time-out (and a second), or a typed error.

        A refused log-in is told as soon as librdkafka hears it, instead of at the time-out.
        """
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + self.timeout_s + 1.0
        while True:
            left = deadline - time.monotonic()
            try:
                value = future.result(timeout=max(0.0, min(0.25, left)))
            except KafkaException as exc:
                raise self.error(exc, operation=operation, resource=resource) from None
            except concurrent.futures.TimeoutError:
                refused = self._refused_log_in()
                if refused is not None:
                    raise refused from None
                if left <= 0:
                    raise self._no_answer(operation, resource) from None
            else:
                self._said = None
                return value

    def bounded(self, call: Callable[[], _T], *, operation: str, resource: str) -> _T:
        """Run a blocking call of kafka-python in a thread of its own, bounded as :meth:`result` is."""
        from kafka.errors import KafkaError

        with self._lock:
            if self._pool is None:
                self._pool = concurrent.futures.ThreadPoolExecutor(4, thread_name_prefix="topicshift-kafka")
        future = self._pool.submit(call)
        try:
            return future.result(timeout=self.timeout_s + 1.0)
        except (KafkaError, OSError) as exc:
            if isinstance(exc, TimeoutError) and not future.done():
                raise self._no_answer(operation, resource) from None
            raise self.error(exc, operation=operation, resource=resource) from None

    def _refused_log_in(self) -> AccessDenied | None:
        if self._native is not None:
            self._native.poll(0)
        if self._said is None or not _LOG_IN.search(self._said):
            return None
        error = typed_error("_AUTHENTICATION", self._said, operation="", resource="", bootstrap=self.bootstrap)
        return error if isinstance(error, AccessDenied) else None

    def _no_answer(self, operation: str, resource: str) -> Unreadable:
        if self._native is not None:
            self._native.poll(0)  # lets librdkafka hand over what it heard
        cause = f"; the client's last word: {self._said}" if self._said else ""
        return Transient(
            f"{operation} on {resource}: no answer from {self.bootstrap} within {self.timeout_s:g} s{cause}. Unknown "
            "is never taken as a yes. Check the address, the network and security.protocol, then run it again."
        )

    def error(self, exc: BaseException, *, operation: str, resource: str) -> TopicshiftError:
        """The typed error for an exception of confluent-kafka or kafka-python."""
        from confluent_kafka import KafkaError as NativeError
        from kafka import errors as python_errors

        if isinstance(exc, TopicshiftError):
            return exc
        cause = exc.args[0] if exc.args else None
        if isinstance(cause, NativeError):
            if self._native is not None:
                self._native.poll(0)
            code, text = cause.name(), cause.str()
            if self._said and code in {"_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_DESTROY"}:
                return self._refused_log_in() or self._no_answer(operation, resource)
        elif isinstance(exc, python_errors.KafkaError):
            code, text = _python_code(exc), str(exc)
        elif isinstance(exc, TimeoutError | OSError):
            return self._no_answer(operation, resource)
        else:
            code, text = type(exc).__name__, str(exc)
        return typed_error(
            code,
            text,
            operation=operation,
            resource=resource,
            bootstrap=self.bootstrap,
            principal=self.principal,
        )

    def close(self) -> None:
        """Let go of both clients; idempotent."""
        with self._lock:
            python, self._python, self._native = self._python, None, None
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
        if python is not None:
            python.close()


def _python_code(exc: BaseException) -> str:
    from kafka import errors

    if isinstance(exc, errors.KafkaTimeoutError | errors.KafkaConnectionError | errors.NodeNotReadyError):
        return "_TRANSPORT"
    number = getattr(exc, "errno", None)
    if number is not None:
        from confluent_kafka import KafkaError

        return str(KafkaError(number).name())
    if getattr(exc, "retriable", False):
        return "_TRANSPORT"
    return type(exc).__name__


class OfConnection:
    """A part of the methods of :class:`topicshift.ports.ClusterAdmin`, over one connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
