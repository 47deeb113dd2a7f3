"""Who is told of an alarm: Airflow's own notifiers, configured without a change of code.

* The connection ``topicshift_alarms`` (type HTTP), if it exists: a :class:`~.webhook.WebhookNotifier` posts there.
* The variable ``topicshift_notifiers``, if it exists: a JSON list of ``{"class": "dotted.path.ToNotifier", "kwargs":
  {...}}``. Any subclass of Airflow's ``BaseNotifier`` will do; its templates see ``alarm``, a mapping with
  ``migration``, ``run``, ``topic``, ``group``, ``code``, ``lag`` and ``text``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from importlib import import_module
from typing import Any

CONNECTION = "topicshift_alarms"
VARIABLE = "topicshift_notifiers"
log = logging.getLogger("topicshift")


def tell(alarm: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Tell every notifier; the names of those that took it, and of those that failed with why. Raises nothing."""
    told: list[str] = []
    failed: list[str] = []
    for name, make in _configured(failed):
        try:
            make()({"alarm": dict(alarm)})
        except Exception as error:  # noqa: BLE001 - a notifier of any kind must not end the wait
            # Only the kind: the text of an HTTP client's error may hold an address with a token in it.
            failed.append(f"{name}: {type(error).__name__}")
            log.warning("the alarm could not be told by %s: %s", name, type(error).__name__)
        else:
            told.append(name)
    return told, failed


def _configured(failed: list[str]) -> list[tuple[str, Any]]:
    from airflow.sdk import Variable

    from topicshift_airflow.notifiers.webhook import WebhookNotifier
    from topicshift_airflow.runtime import find_connection

    found: list[tuple[str, Any]] = []
    text = None
    try:
        if find_connection(CONNECTION) is not None:
            found.append((f"WebhookNotifier({CONNECTION})", WebhookNotifier))
    except Exception as error:  # noqa: BLE001 - whoever cannot be looked up must not end the wait
        failed.append(f"{CONNECTION}: {type(error).__name__}")
    try:
        text = Variable.get(VARIABLE, default=None)
    except Exception as error:  # noqa: BLE001 - as above
        failed.append(f"{VARIABLE}: {type(error).__name__}")
    if text:
        try:
            rows = [(row["class"], dict(row.get("kwargs", {}))) for row in json.loads(text)]
        except (ValueError, TypeError, KeyError, AttributeError):
            failed.append(f"{VARIABLE}: it is no JSON list of objects with class and kwargs")
            log.warning("the variable %s is no JSON list of objects with class and kwargs", VARIABLE)
            rows = []
        found += [(path.rsplit(".", 1)[-1], _maker(path, kwargs)) for path, kwargs in rows]
    return found


def _maker(path: str, kwargs: Mapping[str, Any]) -> Any:
    def make() -> Any:
        from airflow.sdk.bases.notifier import BaseNotifier

        module, _, name = path.rpartition(".")
        cls = getattr(import_module(module), name)
        if not (isinstance(cls, type) and issubclass(cls, BaseNotifier)):
            raise TypeError(f"{path} is no notifier")
        return cls(**kwargs)

    return make
