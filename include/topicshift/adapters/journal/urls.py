"""Where the journal is: SQLAlchemy URLs, Airflow connection URIs, and the default file.

No message of this module shows a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from topicshift.adapters.home import topicshift_home
from topicshift.core.errors import SpecError
from topicshift.core.text import parse_json

_POSTGRES = {"postgres", "postgresql", "postgresql+psycopg"}
_OTHER_POSTGRES = {"postgresql+psycopg2", "postgresql+asyncpg", "postgresql+pg8000"}
_POSTGRES_QUERY = re.compile(
    r"application_name|channel_binding|connect_timeout|gssencmode|host|hostaddr|keepalives(_count|_idle|_interval)?|"
    r"options|passfile|port|service|ssl(cert|crl|key|mode|rootcert)|target_session_attrs|tcp_user_timeout"
)


def default_url() -> str:
    """The SQLite file under :func:`~topicshift.adapters.home.topicshift_home`."""
    return f"sqlite:///{topicshift_home() / 'journal.db'}"


def from_airflow_uri(uri: str) -> str:
    """An Airflow connection URI (or a SQLAlchemy URL) as the SQLAlchemy URL that the journal opens.

    ``postgres://`` and ``postgresql://`` get the psycopg 3 driver; Airflow's ``__extra__`` and the query keep what
    PostgreSQL understands (``sslmode``, ``sslrootcert``, ...). ``sqlite://%2Fvar%2Flib%2Fjournal.db`` and
    ``sqlite:////var/lib/journal.db`` both name a file. Raises ``SpecError`` for any other database.
    """
    text = uri.strip()
    try:
        scheme = urlsplit(text).scheme.lower()
    except ValueError:
        scheme = ""
    if scheme in _POSTGRES | _OTHER_POSTGRES:
        return _postgres(text).render_as_string(hide_password=False)
    if scheme == "sqlite":
        return _sqlite(text)
    raise SpecError(
        f"The journal cannot be kept in {scheme + '://...' if scheme else 'a URL without a scheme'}: SQLite and "
        "PostgreSQL are supported. Give sqlite:////path/to/journal.db or postgresql://user@host:5432/database."
    )


def _postgres(text: str) -> URL:
    parts = urlsplit(text)
    try:
        port = parts.port
    except ValueError:
        raise SpecError(
            "The port in the journal's URL is not a number. Write postgresql://user@host:5432/name."
        ) from None
    query: dict[str, str] = {}
    for key, value in parse_qsl(parts.query, keep_blank_values=False):
        if key == "__extra__":
            query.update(_extra(value))
        else:
            query[key] = value
    kept = {k: v for k, v in query.items() if _POSTGRES_QUERY.fullmatch(k)}
    database = unquote(parts.path.lstrip("/"))
    if not database:
        raise SpecError(
            "The journal's PostgreSQL URL names no database. Write it as postgresql://user@host:5432/database "
            "(in an Airflow connection: the field Schema)."
        )
    return URL.create(
        "postgresql+psycopg",
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        host=unquote(parts.hostname) if parts.hostname else None,
        port=port,
        database=database,
        query=kept,
    )


def _extra(value: str) -> Mapping[str, str]:
    try:
        loaded = parse_json(value)
    except ValueError:
        raise SpecError("The extra of the journal's Airflow connection is not JSON. Correct it there.") from None
    if not isinstance(loaded, dict):
        raise SpecError("The extra of the journal's Airflow connection is not a JSON object. Correct it there.")
    return {str(k): str(v) for k, v in loaded.items() if isinstance(v, str | int | float) and not isinstance(v, bool)}


def _sqlite(text: str) -> str:
    rest = text.split("://", 1)[1].split("?", 1)[0]
    path = unquote(rest[1:] if rest.startswith("/") else rest)
    if not path or path == ":memory:":
        raise SpecError(
            "A journal in memory would forget what a migration did as soon as its first task ends. "
            "Give a file: sqlite:////path/to/journal.db."
        )
    return f"sqlite:///{Path(path).expanduser().absolute()}"


def has_password(uri: str) -> bool:
    """Whether this URL carries a password. Any URL that cannot be read counts as one that does."""
    try:
        return bool(make_url(uri).password) or "password" in urlsplit(uri).query.lower()
    except (ArgumentError, ValueError):
        return "@" in uri


def shown(url: str) -> str:
    """The URL without its password, for messages."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):
        return "(unreadable URL)"
