"""Locations of evidence that a Connect worker gives, by a connection that the installation holds. Pure."""

from __future__ import annotations

from urllib.parse import quote, unquote

_BY_CONNECTION = "connection:"


def by_connection(connection: str, connector: str) -> str:
    """The location of a connector's own offsets: its worker is reached as the connection says, log-in and all."""
    return f"{_BY_CONNECTION}{quote(connection, safe='')}/{quote(connector, safe='')}"


def connection_of(location: str) -> tuple[str, str] | None:
    """Connection and connector of such a location; None for any other."""
    if not location.startswith(_BY_CONNECTION):
        return None
    connection, slash, connector = location.removeprefix(_BY_CONNECTION).partition("/")
    return (unquote(connection), unquote(connector)) if connection and slash and connector else None
