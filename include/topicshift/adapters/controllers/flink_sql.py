"""A Flink job that is made from SQL: what would keep it from being started, and how it is, by a SQL Gateway."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from topicshift.adapters.controllers.flink_access import Access, Snapshot
from topicshift.adapters.flink_gateway import NOWHERE, TARGET, Session, SqlGateway
from topicshift.adapters.rest import Ask
from topicshift.core.errors import Refused
from topicshift.core.flink.job import filled
from topicshift.core.spec.flink import FlinkSqlSettings
from topicshift.ports import Clock, ControlContext, Participant

JOB_ID = "$internal.pipeline.job-id"
NAME = "pipeline.name"
PARALLELISM = "parallelism.default"
RECOVERS = "execution.state-recovery.path"
LEAVES = "execution.state-recovery.ignore-unclaimed-state"
"""Keys of the settings of the session from which a job is started."""

_SETS = re.compile(r"^\s*(?:SET|RESET)\s+'([^']+)'", re.IGNORECASE)


def _settings(who: Participant) -> FlinkSqlSettings:
    """Of a participant. The spec has checked them."""
    return FlinkSqlSettings.model_validate(dict(who.settings))


@dataclass(frozen=True)
class SqlAccess(Access):
    """What is asked about one job from SQL, which is started from its compiled plan in a session of its own."""

    gateway: SqlGateway
    id_in: ClassVar[str] = f"`SET '{JOB_ID}'` in the session of EXECUTE PLAN"

    @classmethod
    def of(
        cls,
        ask_of: Callable[[str], Ask],
        clock: Clock,
        who: Participant,
        ctx: ControlContext,
        told: Sequence[Mapping[str, Any]],
    ) -> SqlAccess:
        """What is asked about a participant's job, at the JobManager and at the gateway of its connections."""
        settings = _settings(who)
        gateway = SqlGateway(ask_of(settings.gateway), clock)
        return cls(ask_of(settings.connection), who, ctx, told, gateway)

    @property
    def settings(self) -> FlinkSqlSettings:
        """The settings of its participant."""
        return _settings(self.who)

    # ------------------------------------------------------------------------------------------------ before

    def cannot_begin(self, config: Any, version: tuple[int, int]) -> Iterator[str]:
        """What is wrong with its gateway, its statements, or its plans of both topics."""
        seen = self.gateway.version()
        if seen != version:
            said = ".".join(map(str, seen)) if seen else "a version that it does not say"
            yield f"its SQL Gateway is of Flink {said}, and its JobManager of {version[0]}.{version[1]}"
            return
        own = {JOB_ID, NAME, PARALLELISM, RECOVERS, LEAVES, TARGET}
        for key in (found[1] for s in self.settings.statements if (found := _SETS.match(s)) and found[1] in own):
            yield f"its statements set {key!r}, which is set where the job is started; leave it out"
        if self.who.role == "consumer" and self.settings.target_uid is None:
            yield "which uid its source has on the target is not said, and another plan decides that; see `target_uid`"
            return
        for topic in (self.ctx.source, self.ctx.target):
            yield from self._unplanned(topic)

    def _unplanned(self, topic: str) -> Iterator[str]:
        try:
            with self.gateway.session({TARGET: NOWHERE}) as session:
                self._known(session, topic)
                session.translate(self._execute(topic), f"the plan {self._plan(topic)}")
        except Refused as error:
            yield f"it could not be started on {topic}: {error}"

    # ------------------------------------------------------------------------------------------------ starting

    def begin(self, jid: str, topic: str, snapshot: Snapshot, parallelism: int) -> None:
        """Execute its plan. Raises ``Refused`` and ``Transient`` as the gateway does."""
        told = {JOB_ID: jid, NAME: self.settings.job, PARALLELISM: str(parallelism), RECOVERS: snapshot.path}
        told[LEAVES] = str(self.leaves(topic, snapshot)).lower()
        with self.gateway.session(told) as session:
            self._known(session, topic)
            self.ctx.still()
            session.run(self._execute(topic), f"EXECUTE PLAN {self._plan(topic)}")

    def _known(self, session: Session, topic: str) -> None:
        """Make its tables known."""
        for number, statement in enumerate(filled(self.settings.statements, topic, self.uid(topic)), 1):
            session.run(statement, f"statement {number} of {len(self.settings.statements)}")

    def _plan(self, topic: str) -> str:
        return filled([self.settings.plan], topic, self.uid(topic))[0]

    def _execute(self, topic: str) -> str:
        return f"EXECUTE PLAN '{self._plan(topic)}'"
