"""Client properties: one file with Java's names or librdkafka's, read into librdkafka's names.

Kafka's own tools take a ``client.properties`` file; librdkafka spells several of its facts differently (a JAAS line
becomes user name and password, a PEM trust store becomes ``ssl.ca.location``). What has no counterpart is said by
name and line, with the way round it; nothing that concerns security is dropped quietly.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from topicshift.core.errors import SpecError
from topicshift.core.kafka.properties import Property, parse_properties, unescape

log = logging.getLogger(__name__)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Properties of an application, not of the connection: Topicshift sets its own, so they are passed over.
_APPLICATION = _words(
    """acks allow.auto.create.topics auto.commit.interval.ms auto.offset.reset batch.size buffer.memory check.crcs
    compression.type default.api.timeout.ms delivery.timeout.ms enable.auto.commit enable.auto.offset.store
    enable.idempotence enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes
    group.id group.instance.id group.protocol heartbeat.interval.ms interceptor.classes isolation.level
    key.deserializer key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection
    max.partition.fetch.bytes max.poll.interval.ms max.poll.records max.request.size metadata.max.idle.ms
    metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
    partitioner partitioner.class request.timeout.ms retries session.timeout.ms transaction.timeout.ms
    transactional.id value.deserializer value.serializer bootstrap.controllers client.rack
    metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms auto.include.jmx.reporter"""
)

# Java's tuning of the JVM's TLS or SASL machinery, without effect on what librdkafka does.
_JVM_ONLY = _words(
    """ssl.protocol ssl.provider ssl.secure.random.implementation ssl.keymanager.algorithm
    ssl.trustmanager.algorithm ssl.enabled.protocols security.providers sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.retry.backoff.ms
    sasl.login.retry.backoff.max.ms send.buffer.bytes receive.buffer.bytes"""
)

_PEM_WAY = (
    "Export it once as PEM (keytool -exportcert -rfc, or openssl pkcs12 -in STORE -out FILE.pem -nodes) and name the "
    "PEM file instead"
)
_OIDC_HANDLER = "OAuthBearerLoginCallbackHandler"
_OPTION = re.compile(r"""([\w.\-]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;]+)""")


@dataclass
class Translation:
    """Librdkafka's names in ``config``, where each came from in ``origin``, and the keys ``passed_over``."""

    config: dict[str, str] = field(default_factory=dict)
    origin: dict[str, Property] = field(default_factory=dict)
    passed_over: list[str] = field(default_factory=list)

    def put(self, key: str, value: str, source: Property) -> None:
        """Set one librdkafka property and remember where it came from."""
        self.config[key] = value
        self.origin[key] = source


def load_client_properties(path: str | Path) -> dict[str, str]:
    """Read a client properties file (Java's or librdkafka's names) into librdkafka's names.

    Raises ``SpecError`` that names file, line and key: unreadable file, malformed line, unknown key (with a
    suggestion), bad value, or a Java setting that librdkafka cannot be given (JKS stores, login modules of one's
    own), with what to do instead. Values of secrets are never part of the message.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SpecError(
            f"The Kafka client properties file {file} does not exist. Give the path of a readable file."
        ) from None
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8 text"
        raise SpecError(
            f"The Kafka client properties file {file} cannot be read: {why}. Give the path of a readable text file."
        ) from None
    result = translate(parse_properties(text, name=str(file)), name=str(file))
    _try_out(result, name=str(file))
    if result.passed_over:
        log.info("%s: not needed here and passed over: %s", file, ", ".join(sorted(result.passed_over)))
    return result.config


def translate(properties: list[Property], *, name: str) -> Translation:
    """Librdkafka's spelling of the properties; raises ``SpecError`` for what cannot be said in it."""
    by_key = {p.key: p for p in properties}
    out = Translation()
    if "config.providers" in by_key:
        raise _cannot(name, by_key["config.providers"], "Config providers run inside Java only", "Write the values")
    for prop in properties:
        handler = _SPECIAL.get(prop.key)
        if prop.value == "" and prop.key != "ssl.endpoint.identification.algorithm":
            raise SpecError(f"{name}, line {prop.line}: {prop.key} is empty. Give it a value, or take the line out.")
        if handler is not None:
            handler(prop, by_key, out, name)
        elif prop.key in _APPLICATION or prop.key in _JVM_ONLY:
            out.passed_over.append(prop.key)
        else:
            out.put(_SAME.get(prop.key, prop.key), prop.value, prop)
    return out


_SAME = {
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}


def _cannot(name: str, prop: Property, why: str, do: str) -> SpecError:
    return SpecError(f"{name}, line {prop.line}: {prop.key} cannot be translated. {why}. {do}.")


def _jaas(prop: Property, by_key: Mapping[str, Property], out: Translation, name: str) -> None:
    module = prop.value.split(None, 1)[0].rsplit(".", 1)[-1]
    options = {k: unescape(v[1:-1]) if v[0] in "\"'" else v for k, v in _OPTION.findall(prop.value)}
    if module in {"PlainLoginModule", "ScramLoginModule"}:
        wanted = {"username": "sasl.username", "password": "sasl.password"}
    elif module == "Krb5LoginModule":
        wanted = {"principal": "sasl.kerberos.principal"}
        if "keyTab" in options:
            wanted["keyTab"] = "sasl.kerberos.keytab"
        if "serviceName" in options:
            wanted["serviceName"] = "sasl.kerberos.service.name"
    elif module == "OAuthBearerLoginModule":
        out.put("sasl.oauthbearer.method", "oidc", prop)
        wanted = {}
        for option, key in (("clientId", "client.id"), ("clientSecret", "client.secret"), ("scope", "scope")):
            if option in options:
                wanted[option] = f"sasl.oauthbearer.{key}"
    else:
        raise _cannot(
            name,
            prop,
            f"The login module {module} runs inside Java only",
            "Use PLAIN, SCRAM, GSSAPI or OAUTHBEARER with client credentials",
        )
    for option, key in wanted.items():
        if option not in options:
            raise SpecError(
                f'{name}, line {prop.line}: {prop.key} has no {option}. The line should end in {option}="...";. Add it.'
            )
        out.put(key, options[option], prop)


def _truststore(prop: Property, by_key: Mapping[str, Property], out: Translation, name: str) -> None:
    kind = by_key["ssl.truststore.type"].value.upper() if "ssl.truststore.type" in by_key else None
    if kind is None and prop.value.lower().endswith((".pem", ".crt", ".cer")):
        kind = "PEM"
    if kind != "PEM":
        raise _cannot(
            name,
            prop,
            f"librdkafka reads PEM trust stores only, and this one is {kind or 'JKS, which is the default type'}",
            f"{_PEM_WAY}, with ssl.truststore.type=PEM or as ssl.ca.location",
        )
    out.put("ssl.ca.location", prop.value, prop)


def _keystore(prop: Property, by_key: Mapping[str, Property], out: Translation, name: str) -> None:
    kind = by_key["ssl.keystore.type"].value.upper() if "ssl.keystore.type" in by_key else None
    lower = prop.value.lower()
    if kind is None:
        kind = "PEM" if lower.endswith(".pem") else "PKCS12" if lower.endswith((".p12", ".pfx", ".pkcs12")) else "JKS"
    if kind == "PEM":
        out.put("ssl.certificate.location", prop.value, prop)
        out.put("ssl.key.location", prop.value, prop)
    elif kind == "PKCS12":
        out.put("ssl.keystore.location", prop.value, prop)
    else:
        raise _cannot(
            name,
            prop,
            f"librdkafka reads PEM and PKCS12 key stores, and this one is {kind}",
            f"{_PEM_WAY}, with ssl.keystore.type=PEM",
        )


def _keystore_password(prop: Property, by_key: Mapping[str, Property], out: Translation, name: str) -> None:
    location = by_key.get("ssl.keystore.location")
    kind = by_key["ssl.keystore.type"].value.upper() if "ssl.keystore.type" in by_key else ""
    if kind == "PEM" or (location is not None and location.value.lower().endswith(".pem")):
        out.passed_over.append(prop.key)
    else:
        out.put("ssl.keystore.password", prop.value, prop)


def _endpoint(prop: Property, by_key: Mapping[str, Property], out: Translation, name: str) -> None:
    out.put(prop.key, prop.value or "none", prop)


def _callback(prop: Property, by_key: Mapping[str, Property], out: Translation, name: str) -> None:
    if not prop.value.endswith(_OIDC_HANDLER):
        raise _cannot(
            name,
            prop,
            f"The class {prop.value} runs inside Java only",
            "Use OAUTHBEARER with client credentials (sasl.oauthbearer.token.endpoint.url), SCRAM or a certificate",
        )
    out.put("sasl.oauthbearer.method", "oidc", prop)


def _drop(prop: Property, by_key: Mapping[str, Property], out: Translation, name: str) -> None:
    out.passed_over.append(prop.key)


def _rename(key: str) -> Callable[[Property, Mapping[str, Property], Translation, str], None]:
    def put(prop: Property, by_key: Mapping[str, Property], out: Translation, name: str) -> None:
        out.put(key, prop.value, prop)

    return put


def _java_class(prop: Property, by_key: Mapping[str, Property], out: Translation, name: str) -> None:
    raise _cannot(name, prop, f"The class {prop.value} runs inside Java only", "Take the line out, or use PEM files")


_SPECIAL: dict[str, Callable[[Property, Mapping[str, Property], Translation, str], None]] = {
    "sasl.jaas.config": _jaas,
    "ssl.truststore.location": _truststore,
    "ssl.truststore.type": _drop,
    "ssl.truststore.password": _drop,
    "ssl.truststore.certificates": _rename("ssl.ca.pem"),
    "ssl.keystore.location": _keystore,
    "ssl.keystore.type": _drop,
    "ssl.keystore.password": _keystore_password,
    "ssl.keystore.key": _rename("ssl.key.pem"),
    "ssl.keystore.certificate.chain": _rename("ssl.certificate.pem"),
    "ssl.endpoint.identification.algorithm": _endpoint,
    "sasl.login.callback.handler.class": _callback,
    "sasl.client.callback.handler.class": _java_class,
    "sasl.login.class": _java_class,
    "ssl.engine.factory.class": _java_class,
}

_KNOWN = sorted(
    {"bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.username", "sasl.password", "client.id"}
    | {"ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password", "ssl.ca.pem"}
    | {"sasl.kerberos.service.name", "sasl.kerberos.keytab", "sasl.kerberos.principal", "debug"}
    | {"sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.method", "socket.timeout.ms"}
    | set(_SPECIAL)
    | _APPLICATION
    | _JVM_ONLY
)


def check_config(config: Mapping[str, Any], *, name: str) -> None:
    """Ask librdkafka whether it takes these properties, without contacting a broker.

    Raises ``SpecError`` naming the key, and a suggestion for a misspelt one.
    """
    _try_out(Translation(config=dict(config)), name=name)


def _try_out(result: Translation, *, name: str) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    quiet = logging.getLogger("topicshift.librdkafka.check")
    quiet.disabled = True  # what matters comes back as the exception
    try:
        AdminClient({**result.config, "bootstrap.servers": "127.0.0.1:1"}, logger=quiet)
    except KafkaException as exc:
        said = exc.args[0].str()
    except TypeError as exc:
        said = str(exc)
    else:
        return
    missing = _missing_for_sasl(result.config)
    if missing is not None:
        protocol = result.config["security.protocol"]
        raise SpecError(f"{name} has no {missing}, without which security.protocol={protocol} cannot log in. Add it.")
    quoted = re.search(r'configuration property "([^"]+)"', said)
    key = quoted[1] if quoted else next((k for k in sorted(result.config, key=len, reverse=True) if k in said), None)
    prop = result.origin.get(key or "")
    where = f"{name}, line {prop.line}: {prop.key}" if prop else f"{name}: {key}"
    if said.startswith("No such configuration property"):
        near = difflib.get_close_matches(key or "", _KNOWN, n=1)
        hint = f"Did you mean {near[0]}?" if near else "Take the line out, or correct its name."
        raise SpecError(f"{where} is not a Kafka client property. {hint}")
    if key is None:
        raise SpecError(f"{name}: the Kafka client does not accept these properties together: {said}. Correct them.")
    raise SpecError(f"{where} is not accepted by the Kafka client: {said}. Correct the value.")


def _missing_for_sasl(config: Mapping[str, Any]) -> str | None:
    """What a log-in by SASL needs and the properties do not have; librdkafka names it badly or not at all."""
    if not str(config.get("security.protocol", "")).upper().startswith("SASL_"):
        return None
    mechanism = str(config.get("sasl.mechanism", "")).upper()
    if not mechanism:
        return "sasl.mechanism (such as PLAIN or SCRAM-SHA-512)"
    wanted = ("sasl.username", "sasl.password") if mechanism == "PLAIN" or mechanism.startswith("SCRAM-") else ()
    absent = [key for key in wanted if not config.get(key)]
    return f"{' and no '.join(absent)} (nor a sasl.jaas.config with them)" if absent else None
