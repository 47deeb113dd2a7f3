"""Posts an alarm as JSON to a web hook: ``{"text": ...}``, which chat services take, with the alarm's fields beside."""

from __future__ import annotations

import json
from typing import Any

from airflow.sdk import BaseHook
from airflow.sdk.bases.notifier import BaseNotifier

TIMEOUT_S = 10.0


class WebhookNotifier(BaseNotifier):
    """``conn_id`` is an HTTP connection: host (and schema, port), ``password`` as bearer token, ``extra.path``.

    ``text`` is a template over ``alarm``. Raises ``OSError`` when the hook does not answer with 2xx.
    """

    template_fields = ("text",)

    def __init__(
        self,
        conn_id: str = "topicshift_alarms",
        text: str = "{{ alarm.topic }}: {{ alarm.text }} ({{ alarm.migration }})",
    ) -> None:
        super().__init__()
        self.conn_id = conn_id
        self.text = text

    def notify(self, context: Any) -> None:
        """Post it."""
        from urllib.request import Request, urlopen

        connection = BaseHook.get_connection(self.conn_id)
        host = str(connection.host or "").rstrip("/")
        if "://" not in host:
            port = f":{connection.port}" if connection.port else ""
            host = f"{connection.schema or 'https'}://{host}{port}"
        path = str(connection.extra_dejson.get("path", ""))
        body = json.dumps({"text": self.text, "alarm": dict(context["alarm"])}).encode()
        request = Request(host + path, data=body, headers={"Content-Type": "application/json"})  # noqa: S310
        if not request.full_url.startswith(("http://", "https://")):
            raise ValueError("the connection is no HTTP address")
        if connection.password:
            request.add_header("Authorization", f"Bearer {connection.password}")
        with urlopen(request, timeout=TIMEOUT_S):  # noqa: S310 - the scheme is checked above
            pass
