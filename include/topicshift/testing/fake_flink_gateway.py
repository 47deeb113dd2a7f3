"""A Flink SQL Gateway in memory, in front of a :class:`~topicshift.testing.fake_flink.FakeJobManager`.

Held against the real one by the contract that ``tests/integration/test_flink_sql_real.py`` runs on both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from topicshift.adapters.rest import Failed
from topicshift.core.errors import NotFound, Refused
from topicshift.testing.fake_flink import FakeJobManager

_EXECUTE = re.compile(r"^EXECUTE PLAN '([^']+)'$")
_TOPIC = re.compile(r"'topic'\s*=\s*'([^']+)'")


@dataclass
class FakeSession:
    """One session: its settings, the topic of its table, how each operation ended, and why one failed."""

    settings: dict[str, str]
    topic: str = ""
    why: str = ""
    ended: list[str] = field(default_factory=list)


class FakeGateway:
    """A gateway. ``plans``: the uid of the source in each plan, by its file; ``refuses``: statements that fail.

    The JobManager's ``on_call`` hears of each request before it is answered, and of each job before and after it is
    submitted.
    """

    def __init__(self, manager: FakeJobManager) -> None:
        self.manager = manager
        self.version = "2.3.0"
        self.plans: dict[str, str] = {}
        self.refuses: Callable[[str], bool] = lambda _: False
        self.hangs: Callable[[str], bool] = lambda _: False
        self.open: dict[str, FakeSession] = {}
        self._count = 0

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        """Answer one request. Raises the errors that a real gateway's answers become."""
        self.manager.on_call(f"gateway {method} {path}")
        parts = path.strip("/").split("/")[1:]
        if parts == ["info"]:
            return {"productName": "Apache Flink", "version": self.version}
        if parts == ["sessions"]:
            self._count += 1
            self.open[f"s{self._count}"] = FakeSession(dict(body["properties"]))
            return {"sessionHandle": f"s{self._count}"}
        session = self.open.get(parts[1])
        if session is None:
            raise NotFound(f"{method} {path}: there is no such thing (HTTP 404).")
        if method == "DELETE":
            del self.open[parts[1]]
            return {"status": "CLOSED"}
        if parts[2] == "statements":
            session.ended.append(self._run(session, body["statement"]))
            return {"operationHandle": f"o{len(session.ended) - 1}"}
        status = session.ended[int(parts[3][1:])]
        if parts[4] == "status":
            return {"status": status}
        if status != "FINISHED":
            said = f"Caused by: org.apache.flink.Outer: hush\\nCaused by: {session.why}: hush"
            raise Failed(f"{method} {path} cannot be done now (HTTP 500).", said.encode())
        return {"resultType": "EOS", "results": {"columns": [], "data": []}}

    def _run(self, session: FakeSession, statement: str) -> str:
        if self.hangs(statement):
            return "RUNNING"
        session.why = "org.apache.flink.table.api.ValidationException"
        if self.refuses(statement):
            return "ERROR"
        told = _TOPIC.search(statement)
        session.topic = told[1] if told else session.topic
        plan = _EXECUTE.match(statement)
        if plan is None:
            return "FINISHED"
        if plan[1] not in self.plans:
            return "ERROR"
        if session.settings.get("execution.target"):
            session.why = "java.lang.IllegalStateException: No ExecutorFactory found to execute the application"
            return "ERROR"
        return self._submit(session.settings, session.topic, plan[1])

    def _submit(self, told: Mapping[str, str], topic: str, plan: str) -> str:
        jid, path = told["$internal.pipeline.job-id"], told["execution.state-recovery.path"]
        if jid in self.manager.jobs:
            return "ERROR"
        args = [told["pipeline.name"], self.plans[plan], topic]
        leaves = told["execution.state-recovery.ignore-unclaimed-state"] == "true"
        self.manager.on_call(f"submit {jid}")
        try:
            self.manager.go_on(jid, args, int(told["parallelism.default"]), path, leaves)
        except Refused:
            return "ERROR"
        self.manager.on_call(f"submit {jid} answered")
        return "FINISHED"
