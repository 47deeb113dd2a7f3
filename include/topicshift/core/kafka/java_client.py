"""Connection facts in the words of a Java client. Pure, except that named PEM files are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from topicshift.core.errors import SpecError

TRANSLATED = frozenset({
    "sasl.username", "sasl.password", "sasl.mechanisms", "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location",
    "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem", "enable.ssl.certificate.verification",
})  # fmt: skip
"""Names of librdkafka that no Java client knows, and :func:`java_properties` translates."""

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_KRB5 = "com.sun.security.auth.module.Krb5LoginModule"


def protocol_of(config: Mapping[str, Any]) -> str:
    """``security.protocol`` of a librdkafka config, in upper case."""
    return str(config.get("security.protocol", "PLAINTEXT")).upper()


def mechanism_of(config: Mapping[str, Any]) -> str:
    """Its SASL mechanism, in upper case; GSSAPI is Kafka's default."""
    return str(config.get("sasl.mechanism", config.get("sasl.mechanisms", "GSSAPI"))).upper()


def checks_host(config: Mapping[str, Any]) -> bool:
    """Whether the broker's certificate must name its host."""
    return str(config.get("ssl.endpoint.identification.algorithm", "https")).lower() == "https"


def java_properties(config: Mapping[str, Any]) -> dict[str, str]:
    """The properties of a Java client for a librdkafka config: addresses, client id, credentials, certificates.

    They hold secrets: hand them over in a file that only its reader can read, never in an argument list. Certificates
    and keys are taken from their files into the properties, since another machine may read these. Raises
    ``SpecError`` for what the Java client has no counterpart for, and for a PEM file that cannot be read.
    """
    if "sasl.username" in config and not {"sasl.mechanism", "sasl.mechanisms"} & config.keys():
        raise SpecError(
            "sasl.username is set and sasl.mechanism is not. Name it: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."
        )
    protocol = protocol_of(config)
    out = {"bootstrap.servers": _with_ports(config["bootstrap.servers"]), "security.protocol": protocol}
    if "client.id" in config:
        out["client.id"] = str(config["client.id"])
    if protocol.startswith("SASL"):
        mechanism = mechanism_of(config)
        out["sasl.mechanism"] = mechanism
        out["sasl.jaas.config"] = str(config.get("sasl.jaas.config") or _jaas_line(mechanism, config))
        if mechanism == "GSSAPI":
            out["sasl.kerberos.service.name"] = str(config.get("sasl.kerberos.service.name", "kafka"))
        if mechanism == "OAUTHBEARER":
            out["sasl.oauthbearer.token.endpoint.url"] = str(config.get("sasl.oauthbearer.token.endpoint.url", ""))
            out["sasl.login.callback.handler.class"] = (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
            )
    if protocol.endswith("SSL"):
        out |= _java_tls(config)
    return out


def _with_ports(servers: Any) -> str:
    """The addresses, each with its port: Java's client takes none without, librdkafka and kafka-python mean 9092."""
    parts = [s.strip() for s in str(servers).split(",") if s.strip()]
    return ",".join(s if re.search(r":\d+$", s) and not s.endswith("]") else f"{s}:9092" for s in parts)


def _java_tls(config: Mapping[str, Any]) -> dict[str, str]:
    if str(config.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        raise SpecError(
            "enable.ssl.certificate.verification=false has no counterpart in Java, and the Spark jobs would fail. "
            "Name the broker's CA in ssl.ca.location instead."
        )
    out = {"ssl.endpoint.identification.algorithm": "https" if checks_host(config) else ""}
    if "ssl.ca.pem" in config or "ssl.ca.location" in config:
        out |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _pem(config, "ssl.ca")}
    if "ssl.keystore.location" in config:
        out |= {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(config["ssl.keystore.location"]),
        }
        if "ssl.keystore.password" in config:
            out["ssl.keystore.password"] = str(config["ssl.keystore.password"])
            out["ssl.key.password"] = str(config["ssl.keystore.password"])
    elif "ssl.certificate.pem" in config or "ssl.certificate.location" in config:
        out["ssl.keystore.type"] = "PEM"
        out["ssl.keystore.certificate.chain"] = _pem(config, "ssl.certificate")
        out["ssl.keystore.key"] = _private_key(config)
    return out


def _pem(config: Mapping[str, Any], stem: str) -> str:
    if f"{stem}.pem" in config:
        return str(config[f"{stem}.pem"])
    place = str(config.get(f"{stem}.location", ""))
    try:
        return Path(place).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        raise SpecError(f"{stem}.location: {place!r} cannot be read as PEM. Give a readable PEM file.") from None


def _private_key(config: Mapping[str, Any]) -> str:
    """The key as Java's client reads it: PKCS#8, and unlocked, since Java 17 cannot open what OpenSSL 3 locks.

    It is no less safe so: the passphrase would stand beside it.
    """
    text = _pem(config, "ssl.key")
    if "-----BEGIN PRIVATE KEY-----" in text:
        return text
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization as pem

    password = str(config["ssl.key.password"]).encode() if "ssl.key.password" in config else None
    try:
        locked = "ENCRYPTED" in text
        key = pem.load_pem_private_key(text.encode(), password if locked else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise SpecError(
            "ssl.key: no private key can be read from it. Give a PEM file that holds one, and its passphrase in "
            "ssl.key.password if it has one."
        ) from None
    return key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.NoEncryption()).decode()


def _quoted(value: Any) -> str:
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _jaas_line(mechanism: str, config: Mapping[str, Any]) -> str:
    if mechanism in {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}:
        module = _PLAIN if mechanism == "PLAIN" else _SCRAM
        options = {"username": config.get("sasl.username", ""), "password": config.get("sasl.password", "")}
    elif mechanism == "OAUTHBEARER":
        module = _OAUTH
        options = {
            option: config[f"sasl.oauthbearer.{key}"]
            for option, key in (("clientId", "client.id"), ("clientSecret", "client.secret"), ("scope", "scope"))
            if f"sasl.oauthbearer.{key}" in config
        }
    elif mechanism == "GSSAPI":
        module = _KRB5
        options = {"useKeyTab": "true", "storeKey": "true"} if "sasl.kerberos.keytab" in config else {}
        options |= {"keyTab": config["sasl.kerberos.keytab"]} if options else {"useTicketCache": "true"}
        if "sasl.kerberos.principal" in config:
            options["principal"] = config["sasl.kerberos.principal"]
    else:
        raise SpecError(
            f"sasl.mechanism: {mechanism} is not known to Spark's Kafka client. Use PLAIN, SCRAM or OAUTHBEARER."
        )
    return f"{module} required " + " ".join(f"{k}={_quoted(v)}" for k, v in options.items()) + ";"
