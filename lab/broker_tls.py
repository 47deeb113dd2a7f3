"""The embedded broker with two more doors, as production has them: SASL_SSL with SCRAM, and mutual TLS."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lab import ports_free
from lab.broker import EmbeddedBroker, new_password
from lab.certificates import Authority
from lab.runfolder import write_private

SCRAM = "SCRAM-SHA-512"


class TlsBroker(EmbeddedBroker):
    """One node with an authorizer. Beside the plain listener, on which the superuser works, it has two with TLS.

    Over ``scram`` users log in with a password, over ``mtls`` with a certificate whose common name is theirs; they are
    the same principals. Everything is made at start and gone at stop.
    """

    def __init__(self, users: Iterable[str], folder: str | Path | None = None) -> None:
        super().__init__(folder, authorizer=True)
        self._scram = {name: new_password() for name in users}
        self._doors = dict(zip(("SCRAM", "MTLS"), ports_free.claim(2), strict=True))
        self.authority = Authority(self.folder / "tls")
        chain, key = self.authority.issue("broker", server=True)
        self._store = write_private(self.folder / "tls" / "broker.pem", key.read_text() + chain.read_text())

    def start(self, timeout: float = 240.0) -> TlsBroker:
        """As the plain one; the users' SCRAM credentials are there at the end."""
        super().start(timeout)
        try:
            self._make_users()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, timeout: float = 20.0) -> None:
        """As the plain one."""
        super().stop(timeout)
        ports_free.release(list(self._doors.values()))

    def __enter__(self) -> TlsBroker:
        return self.start()

    def scram(self, user: str) -> dict[str, str]:
        """Connection properties over SASL_SSL, in librdkafka's names."""
        return {
            "bootstrap.servers": f"127.0.0.1:{self._doors['SCRAM']}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.ca),
            "sasl.mechanism": SCRAM,
            "sasl.username": user,
            "sasl.password": self._scram[user],
        }

    def mtls(self, user: str, *, passphrase: str | None = None) -> dict[str, str]:
        """Connection properties with a client certificate; its key is locked where a ``passphrase`` is given."""
        chain, key = self.authority.issue(user, passphrase=passphrase)
        return {
            "bootstrap.servers": f"127.0.0.1:{self._doors['MTLS']}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority.ca),
            "ssl.certificate.location": str(chain),
            "ssl.key.location": str(key),
            **({"ssl.key.password": passphrase} if passphrase else {}),
        }

    def _properties(self, node: int) -> dict[str, object]:
        plain = super()._properties(node)
        store = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._store,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.ca,
        }
        doors = "".join(f",{name}://127.0.0.1:{port}" for name, port in self._doors.items())
        return {
            **plain,
            "listeners": f"{plain['listeners']}{doors}",
            "advertised.listeners": f"{plain['advertised.listeners']}{doors}",
            "listener.security.protocol.map": f"{plain['listener.security.protocol.map']},SCRAM:SASL_SSL,MTLS:SSL",
            "listener.name.scram.sasl.enabled.mechanisms": SCRAM,
            f"listener.name.scram.{SCRAM.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.mtls.ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
            **{f"listener.name.{door}.{key}": value for door in ("scram", "mtls") for key, value in store.items()},
        }

    def _make_users(self) -> None:
        from confluent_kafka import admin as kafka

        api: Any = kafka  # its type hints lack the SCRAM part
        how = api.ScramCredentialInfo(api.ScramMechanism.SCRAM_SHA_512, 4096)
        wanted: list[Any] = [
            api.UserScramCredentialUpsertion(name, how, word.encode()) for name, word in self._scram.items()
        ]
        admin = api.AdminClient(self.config())  # it ends what it has under way when nobody holds it any more
        for future in admin.alter_user_scram_credentials(wanted).values():
            future.result(30)
