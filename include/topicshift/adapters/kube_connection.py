"""Where a Kubernetes API server answers and as whom it is asked: from the files that an Airflow connection names."""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from topicshift.adapters.rest import Endpoint
from topicshift.core.errors import SpecError
from topicshift.core.text import parse_json

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its own token and the certificates of its API server."""

_UNSUPPORTED = ("exec", "auth-provider")


def kubernetes_endpoint(name: str, extra: Any) -> Endpoint:
    """The endpoint of a connection of type ``kubernetes``: the extras ``kube_config_path`` or ``in_cluster``.

    ``kube_config_path`` names a kubeconfig file, ``cluster_context`` a context other than its current one. Raises
    ``SpecError`` for what is missing or not understood; nothing of a file's content is repeated.
    """
    fields = _fields(name, extra)
    if str(fields.get("in_cluster", "")).lower() in ("true", "1"):
        return _in_cluster(name)
    path = str(fields.get("kube_config_path") or "")
    if not path:
        raise SpecError(
            f"The connection {name!r} names no API server. Give it the extra kube_config_path (a kubeconfig file that "
            "workers can read), or in_cluster where workers run as pods of that cluster."
        )
    try:
        config = yaml.safe_load(Path(path).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SpecError(
            f"The kubeconfig {path} of connection {name!r} cannot be read ({type(error).__name__})."
        ) from None
    try:
        return _from_config(config, Path(path).parent, str(fields.get("cluster_context") or ""))
    except (KeyError, TypeError, AttributeError, StopIteration, ValueError) as error:
        why = str(error) if isinstance(error, _Wrong) else "it has no context with a cluster and a user"
        raise SpecError(f"The kubeconfig {path} of connection {name!r} is not understood: {why}.") from None


class _Wrong(ValueError):
    """What is wrong, in words that repeat no content."""


def _fields(name: str, extra: Any) -> Mapping[str, Any]:
    try:
        found = parse_json(extra) if isinstance(extra, str) and extra.strip() else extra or {}
    except ValueError:
        found = None
    if not isinstance(found, Mapping):
        raise SpecError(f"The extra of connection {name!r} is no JSON object. Write it as Airflow does.")
    # Airflow once kept extras of this type under a prefix.
    return {str(k).removeprefix("extra__kubernetes__"): v for k, v in found.items()}


def _in_cluster(name: str) -> Endpoint:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    token, ca = SERVICE_ACCOUNT / "token", SERVICE_ACCOUNT / "ca.crt"
    if not host or not port or not token.exists():
        raise SpecError(f"The connection {name!r} says in_cluster, and this process is in no pod with a token.")
    host = f"[{host}]" if ":" in host else host
    return Endpoint(f"https://{host}:{port}", token_file=str(token), trust=lambda: _context(ca=ca.read_bytes()))


def _from_config(config: Any, folder: Path, context: str) -> Endpoint:
    wanted = context or config["current-context"]
    chosen = next(c["context"] for c in config["contexts"] if c["name"] == wanted)
    cluster = next(c["cluster"] for c in config["clusters"] if c["name"] == chosen["cluster"])
    user = next(u["user"] for u in config["users"] if u["name"] == chosen["user"]) or {}
    for word in _UNSUPPORTED:
        if word in user:
            raise _Wrong(f"its user has {word}, which would run a program; give it a token, tokenFile or a certificate")
    if cluster.get("insecure-skip-tls-verify"):
        raise _Wrong("it skips the check of the server's certificate; name its certificate-authority")
    ca = _content(cluster, "certificate-authority", folder)
    certificate, key = _content(user, "client-certificate", folder), _content(user, "client-key", folder)
    server = str(cluster["server"]).rstrip("/")
    if not server.startswith("https://"):
        raise _Wrong("its server is no https address")
    token_file = str(user.get("tokenFile") or "")
    return Endpoint(
        server,
        str(user.get("username") or ""),
        str(user.get("password") or user.get("token") or ""),
        str(folder / token_file) if token_file else "",
        lambda: _context(ca, certificate, key),
    )


def _content(part: Mapping[str, Any], name: str, folder: Path) -> bytes | None:
    """A certificate or key, which a kubeconfig has in itself or in a file that it names."""
    if part.get(f"{name}-data"):
        return base64.b64decode(str(part[f"{name}-data"]), validate=True)
    if not part.get(name):
        return None
    try:
        return (folder / str(part[name])).read_bytes()
    except OSError as error:
        raise _Wrong(f"the file of its {name} cannot be read ({error.strerror})") from None


def _context(ca: bytes | None = None, certificate: bytes | None = None, key: bytes | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=ca.decode() if ca is not None else None)
    if certificate is not None:
        # The library takes a client's certificate from a file alone: one that only we can read, for this moment.
        with tempfile.NamedTemporaryFile() as file:
            file.write(certificate + b"\n" + (key or b""))
            file.flush()
            context.load_cert_chain(file.name)
    return context
