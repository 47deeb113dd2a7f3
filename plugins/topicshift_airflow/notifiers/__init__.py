"""Who is told of alarms and notices: Airflow's own notifiers, configured without a change of code.

* The connection ``topicshift_alarms`` (type HTTP), if it exists: a :class:`~.webhook.WebhookNotifier` posts there.
* The variable ``topicshift_notifiers``, if it exists: a JSON list of ``{"class": "dotted.path.ToNotifier", "kwargs":
  {...}, "only": [...]}``. Any subclass of Airflow's ``BaseNotifier`` will do; its templates see ``alarm``, a mapping
  with ``migration``, ``run``, ``topic``, ``group``, ``code``, ``lag``, ``text`` and ``title``. ``only`` names the codes
  that it is told of; without it, all.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from topicshift.core.text import parse_json

CONNECTION = "topicshift_alarms"
VARIABLE = "topicshift_notifiers"
_NO_LIST = f"{VARIABLE}: it is no JSON list of objects with class, kwargs and only"
log = logging.getLogger("topicshift")


class _Notifier(NamedTuple):
    """A configured notifier. ``only`` None: it is told everything."""

    name: str
    make: Any
    only: frozenset[str] | None = None


def anybody() -> bool:
    """Whether somebody is configured, or that cannot be told."""
    failed: list[str] = []
    return bool(_configured(failed) or failed)


def tell(alarm: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Tell every notifier that wants it; the names of those that took it, and of those that failed with why.

    Raises nothing.
    """
    message = {"title": f"{alarm.get('topic')}: {alarm.get('code')}", **alarm}
    told: list[str] = []
    failed: list[str] = []
    for notifier in _configured(failed):
        if notifier.only is not None and message.get("code") not in notifier.only:
            continue
        try:
            notifier.make()({"alarm": message})
        except Exception as error:  # noqa: BLE001 - a notifier of any kind must not end the wait
            # Only the kind: the text of an HTTP client's error may hold an address with a token in it.
            failed.append(f"{notifier.name}: {type(error).__name__}")
            log.warning("the alarm could not be told by %s: %s", notifier.name, type(error).__name__)
        else:
            told.append(notifier.name)
    return told, failed


def _configured(failed: list[str]) -> list[_Notifier]:
    from airflow.sdk import Variable

    from topicshift_airflow.notifiers.webhook import WebhookNotifier
    from topicshift_airflow.runtime import find_connection

    found: list[_Notifier] = []
    text = None
    try:
        if find_connection(CONNECTION) is not None:
            found.append(_Notifier(f"WebhookNotifier({CONNECTION})", WebhookNotifier))
    except Exception as error:  # noqa: BLE001 - whoever cannot be looked up must not end the wait
        failed.append(f"{CONNECTION}: {type(error).__name__}")
    try:
        text = Variable.get(VARIABLE, default=None)
    except Exception as error:  # noqa: BLE001 - as above
        failed.append(f"{VARIABLE}: {type(error).__name__}")
    if text:
        try:
            found += [_notifier(row) for row in parse_json(text)]
        except (ValueError, TypeError, KeyError, AttributeError):
            failed.append(_NO_LIST)
            log.warning("the variable %s", _NO_LIST)
    return found


def _notifier(row: Mapping[str, Any]) -> _Notifier:
    path, only = row["class"], row.get("only")
    return _Notifier(
        path.rsplit(".", 1)[-1], _maker(path, dict(row.get("kwargs", {}))), None if only is None else frozenset(only)
    )


def _maker(path: str, kwargs: Mapping[str, Any]) -> Any:
    def make() -> Any:
        from airflow.sdk.bases.notifier import BaseNotifier

        module, _, name = path.rpartition(".")
        cls = getattr(import_module(module), name)
        if not (isinstance(cls, type) and issubclass(cls, BaseNotifier)):
            raise TypeError(f"{path} is no notifier")
        return cls(**kwargs)

    return make
