"""A certificate authority for one run: server and client certificates in PEM files of mode 0600."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lab.runfolder import write_private

LASTS = timedelta(days=2)
_PEM = serialization.Encoding.PEM


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


class Authority:
    """An authority with a key of its own; ``ca`` is the file that those name who trust it."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = _name("Topicshift laboratory")
        ends = x509.BasicConstraints(ca=True, path_length=0)
        self._certificate = (
            self._builder(name, self._key.public_key(), name)
            .add_extension(ends, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca = write_private(self.folder / "ca.pem", self._certificate.public_bytes(_PEM).decode())

    def issue(self, name: str, *, server: bool = False, passphrase: str | None = None) -> tuple[Path, Path]:
        """A certificate and its key, as PEM files; ``server``: for 127.0.0.1 and localhost."""
        key = ec.generate_private_key(ec.SECP256R1())
        use = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = self._builder(_name(name), key.public_key(), self._certificate.subject).add_extension(
            x509.ExtendedKeyUsage([use]), critical=False
        )
        if server:
            hosts = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        lock = (
            serialization.BestAvailableEncryption(passphrase.encode()) if passphrase else serialization.NoEncryption()
        )
        text = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, lock).decode()
        chain = builder.sign(self._key, hashes.SHA256()).public_bytes(_PEM).decode()
        stem = f"{name}{'-server' if server else ''}{'-locked' if passphrase else ''}"
        return (
            write_private(self.folder / f"{stem}.crt.pem", chain),
            write_private(self.folder / f"{stem}.key.pem", text),
        )

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePublicKey, issuer: x509.Name) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(issuer_name=issuer, subject_name=name, public_key=key)
        builder = builder.serial_number(x509.random_serial_number())
        return builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + LASTS)
