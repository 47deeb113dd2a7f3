"""Ask a service by HTTP and JSON, at the address and with the log-in of a connection that the installation holds."""

from __future__ import annotations

import base64
import json
import os
import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from topicshift.core.errors import AccessDenied, NotFound, Refused, SpecError, TopicshiftError, Transient, Unreadable
from topicshift.core.text import parse_json

TIMEOUT_S = 5.0
"""Bound of one request, in seconds."""

MAX_BYTES = 10_000_000
"""Bytes of the longest answer that is read."""

MAX_FAILURE = 100_000
"""Bytes that are read of what a failure says."""

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")


class Conflict(Transient):
    """HTTP 409: what was to be changed is not as it was read, or the service cannot change it now."""


class Failed(Transient):
    """HTTP 5xx. ``said``: what the service answered, which may hold a secret and is in no message."""

    def __init__(self, message: str, said: bytes = b"") -> None:
        super().__init__(message)
        self.said = said


@dataclass(frozen=True)
class Endpoint:
    """Where a service answers, and as whom it is asked. ``login`` and ``password`` never show in its text.

    ``token_file`` holds a bearer token and is read for each request, because such tokens are renewed there. ``trust``
    makes the TLS context for what the system's certificates do not cover. ``more`` are headers of the service's own,
    which may be secret as well and come before those that are made of login and password.
    """

    url: str
    login: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    token_file: str = ""
    trust: Callable[[], ssl.SSLContext] | None = field(default=None, repr=False, compare=False)
    more: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def headers(self) -> dict[str, str]:
        """Basic authentication where there is a login; a bearer token where there is a password or a file alone.

        Raises ``Unreadable`` where the file cannot be read.
        """
        if self.login:
            word = base64.b64encode(f"{self.login}:{self.password}".encode()).decode()
            return {"Authorization": f"Basic {word}", **self.more}
        token = self.password
        if self.token_file:
            try:
                token = Path(self.token_file).read_text().strip()
            except OSError as error:
                raise Unreadable(f"The token file {self.token_file} cannot be read ({error.strerror}).") from None
        return {**({"Authorization": f"Bearer {token}"} if token else {}), **self.more}


Endpoints = Callable[[str], Endpoint]
"""The endpoint of a connection's name. Raises ``SpecError`` for one that is missing or is no HTTP address."""


def endpoint(name: str, fields: Mapping[str, Any]) -> Endpoint:
    """The endpoint of an Airflow connection: ``conn_type``, ``host``, ``port``, ``schema``, ``login``, ``password``.

    The host may be a whole URL; ``headers`` in the ``extra`` are sent with each request. One of type ``kubernetes`` has
    both in files that its ``extra`` names, see :mod:`topicshift.adapters.kube_connection`. Raises ``SpecError`` for
    what is no HTTP address; its log-in is never repeated.
    """
    kind = str(fields.get("conn_type") or "")
    if kind == "kubernetes":
        from topicshift.adapters.kube_connection import kubernetes_endpoint

        return kubernetes_endpoint(name, fields.get("extra"))
    host = str(fields.get("host") or "").strip().rstrip("/")
    if "://" not in host:
        scheme = str(fields.get("schema") or ("https" if kind == "https" else "http"))
        port = f":{fields['port']}" if fields.get("port") else ""
        host = f"{scheme}://{host}{port}"
    try:
        parts = urlsplit(host)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and "@" not in parts.netloc
    except ValueError:
        good = False
    if not good or kind not in ("http", "https"):
        raise SpecError(
            f"The connection {name!r} is no HTTP address (type {kind or 'not said'!r}). Nobody could be asked through "
            "it. Give it the type http, a host, a port, and the schema http or https; login and password in its fields."
        )
    login, password = str(fields.get("login") or ""), str(fields.get("password") or "")
    return Endpoint(host, login, password, more=_headers(name, fields.get("extra")))


def _headers(name: str, extra: Any) -> dict[str, str]:
    """The ``headers`` of a connection's extra. Raises ``SpecError``; their values are never repeated."""
    try:
        found = parse_json(extra) if isinstance(extra, str | bytes) and extra.strip() else extra or {}
        given = found.get("headers") or {}
        given = parse_json(given) if isinstance(given, str) else given
        good = isinstance(given, dict) and all(
            _HEADER.fullmatch(key) and isinstance(value, str) and value.isprintable() for key, value in given.items()
        )
    except (ValueError, AttributeError):
        good = False
    if not good:
        raise SpecError(
            f"The extra of the connection {name!r} is not understood. Nobody could be asked through it as it is meant. "
            'Write it as JSON, with headers as an object of names and texts: {"headers": {"X-Name": "..."}}.'
        )
    return dict(given)


def endpoint_from_env(name: str) -> Endpoint:
    """The endpoint of ``AIRFLOW_CONN_NAME`` in the environment, as JSON or as a URI. Raises ``SpecError``."""
    variable = f"AIRFLOW_CONN_{name.upper()}"
    text = os.environ.get(variable, "").strip()
    if not text:
        raise SpecError(
            f"There is no connection {name!r}. A participant is moved through it, so nobody could be asked. In "
            f"Airflow create it (Admin, Connections); in a terminal set {variable}."
        )
    try:
        fields = parse_json(text) if text.startswith("{") else _from_uri(text)
        if not isinstance(fields, dict):
            raise ValueError
    except ValueError:
        raise SpecError(f"{variable} is neither JSON nor a URI. Write it as Airflow does.") from None
    return endpoint(name, fields)


def _from_uri(text: str) -> dict[str, Any]:
    parts = urlsplit(text)
    return {
        "conn_type": parts.scheme,
        "host": unquote(parts.hostname or ""),
        "port": parts.port,
        "schema": parts.path.strip("/") or None,
        "login": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "extra": dict(parse_qsl(parts.query)),
    }


Ask = Callable[[str, str, Any], Any]
"""One request: method, path and JSON body (None without one) to the answer's JSON (None where it has none)."""


def asker(
    to: Endpoint, timeout_s: float = TIMEOUT_S, *, content_type: str = "application/json", any_answer: bool = False
) -> Ask:
    """Ask this endpoint. Follows no redirect: where a server would send us is not the one that was named.

    ``any_answer``: what a good answer says does not matter, and need not be JSON; it is None then.

    Raises ``Transient`` for no answer, HTTP 409, 429 and 5xx, ``AccessDenied`` for 401 and 403, ``NotFound`` for 404,
    ``Refused`` for any other 4xx and ``Unreadable`` for an answer that is no JSON. No message repeats what was sent or
    answered: either may hold a secret.
    """

    def ask(method: str, path: str, body: Any = None) -> Any:
        from urllib.error import HTTPError, URLError
        from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

        class Stay(HTTPRedirectHandler):
            def redirect_request(self, *_: Any) -> None:
                return None

        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", "Content-Type": content_type, **to.headers()}
        request = Request(to.url + path, data=data, headers=headers, method=method)  # noqa: S310
        what = f"{method} {path} at {to.url}"
        try:
            secure = [HTTPSHandler(context=to.trust())] if to.trust is not None else []
            until = time.monotonic() + timeout_s
            with build_opener(Stay, *secure).open(request, timeout=timeout_s) as answer:
                text = _read(answer, until)
        except HTTPError as error:
            with error:
                raise _typed(error.code, what, _body_of(error)) from None
        except URLError as error:
            raise Transient(f"{what}: no answer ({error.reason}). Nothing is known until it is asked again.") from None
        except (OSError, HTTPException) as error:
            why = type(error).__name__
            raise Transient(f"{what}: no answer ({why}). Nothing is known until it is asked again.") from None
        try:
            return parse_json(text) if text.strip() and not any_answer else None
        except ValueError:
            raise Unreadable(f"{what}: the answer is no JSON. See that this address is the right one.") from None

    return ask


def _read(answer: Any, until: float) -> bytes:
    """The answer, whole. Raises ``TimeoutError`` for one that comes drop by drop beyond its time."""
    parts, size = [], 0
    while size < MAX_BYTES and (part := answer.read1(MAX_BYTES - size)):
        parts.append(part)
        size += len(part)
        if time.monotonic() > until:
            raise TimeoutError
    return b"".join(parts)


def _body_of(error: Any) -> bytes:
    """What a failure says, as far as it comes at once; empty where it does not."""
    try:
        return bytes(error.read(MAX_FAILURE)) if error.code >= 500 else b""
    except (OSError, HTTPException):
        return b""


def _typed(code: int, what: str, said: bytes) -> TopicshiftError:
    if code in (401, 403):
        return AccessDenied(f"{what} is not allowed (HTTP {code}). Check login, password and rights of the connection.")
    if code == 404:
        return NotFound(f"{what}: there is no such thing (HTTP 404). Check the name and the address.")
    if code == 409:
        return Conflict(f"{what} cannot be done now (HTTP 409). It is asked again.")
    if code >= 500:
        return Failed(f"{what} cannot be done now (HTTP {code}). It is asked again.", said)
    if code in (408, 429):
        return Transient(f"{what} cannot be done now (HTTP {code}). It is asked again.")
    if 300 <= code < 400:
        return Unreadable(f"{what}: it sends us elsewhere (HTTP {code}). Name the address itself in the connection.")
    return Refused(f"{what} was refused (HTTP {code}). Its own log says why.")
