"""The controller for applications that a hook of the installation moves: an executable, called at each moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from topicshift.adapters.controllers import hooks
from topicshift.adapters.controllers.plain import PlainController
from topicshift.core.errors import Transient
from topicshift.core.spec.kinds import HookSettings
from topicshift.core.text import parse_json
from topicshift.ports import ClusterAdmin, ControlContext, InstanceState, Participant, ParticipantState

NOT_NOW = 75
"""Exit code (``EX_TEMPFAIL`` of ``sysexits.h``) of a hook that cannot do it yet: it is called again."""

_STATUS = ("running", "stopped")


class HookController(PlainController):
    """Calls each participant's hook with the moment as its argument; participants are called in parallel.

    What a hook answers to *stop*, *point* and *start* is no evidence.
    """

    needs_person = False
    model: type[HookSettings] = HookSettings

    def __init__(self, admin: ClusterAdmin, call: hooks.Call) -> None:
        super().__init__(admin)
        self._call_hook = call

    def settings_of(self, who: Participant) -> HookSettings:
        """The participant's settings."""
        return self.model.model_validate(dict(who.settings))

    # ------------------------------------------------------------------------------------------------ before

    def can_i(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[str]:
        """What is wrong with each participant's hook: not there, or its own answer to *can_i*."""
        lines = self.side_by_side(participants, lambda p: self._able(ctx, p))
        return [f"{p.name}: {line}" for p, line in zip(participants, lines, strict=True) if line]

    def _able(self, ctx: ControlContext, who: Participant) -> str:
        answer = self._call(ctx, who, "can_i")
        if answer.missing:
            return answer.why
        hook = self.settings_of(who).hook
        return "" if answer.code == 0 else f"its hook {hook} says no to can_i ({answer.text()})"

    # ------------------------------------------------------------------------------------------------ acts

    def stop(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Call *stop*. Raises ``Transient`` for hooks that failed or ran out of time: they are called again."""
        self._do(ctx, participants, "stop")

    def point(self, ctx: ControlContext, participants: Sequence[Participant], topic: str) -> None:
        """Call *point* with the topic. Raises as ``stop`` does."""
        self._do(ctx, participants, "point", topic)

    def start(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Call *start*. Raises as ``stop`` does."""
        self._do(ctx, participants, "start")

    def _do(self, ctx: ControlContext, participants: Sequence[Participant], moment: str, topic: str = "") -> None:
        ctx.still()
        answers = self.side_by_side(participants, lambda p: self._call(ctx, p, moment, topic))
        failed = []
        for who, answer in zip(participants, answers, strict=True):
            ctx.say(who.name, {"moment": moment, "hook": self.settings_of(who).hook, "answer": answer.text()})
            if answer.code != 0:
                later = "cannot do it yet" if answer.code == NOT_NOW else "failed"
                failed.append(f"the hook of {who.name} {later} at {moment} ({answer.text()})")
        if failed:
            raise Transient("; ".join(failed))

    # --------------------------------------------------------------------------------------------- observing

    def observed(self, ctx: ControlContext, who: Participant) -> ParticipantState:
        """What the hook says of one participant. What it does not say clearly, or in time, is unknown."""
        answer = self._call(ctx, who, "observe")
        try:
            if answer.code != 0:
                raise ValueError(f"it does not say ({answer.text()})")
            said = parse_json(answer.out)
            status, topic, reason = said["status"], said.get("topic"), said.get("reason", "")
            if status not in _STATUS or not isinstance(topic, str | None) or not isinstance(reason, str):
                raise ValueError("status is not running or stopped, or topic or reason is no text")
            if status == "running" and topic is None:
                raise ValueError("it runs, and on which topic is not said")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            heard = f": {answer.out!r:.200}" if answer.code == 0 else ""
            why = f"the answer of its hook to observe is not understood: {error}{heard}"
            return ParticipantState(who, "unknown", None, reason=why)
        return ParticipantState(who, status, topic, (InstanceState(who.name, status, topic, None),), reason[:200])

    # ------------------------------------------------------------------------------------------------ hooks

    def _call(
        self, ctx: ControlContext, who: Participant, moment: str, topic: str = "", more: Mapping[str, str] | None = None
    ) -> hooks.Answer:
        settings = self.settings_of(who)
        told = {**_told(ctx, who, moment, topic), **(more or {})}
        return self._call_hook(settings.hook, moment, told, settings.timeout.total_seconds())


class CommandController(HookController):
    """A producer's state is what its *observe* says, checked by the fence against the ends of the source; a consumer's
    is what Kafka says of its group."""

    kind = "command"

    def __init__(self, admin: ClusterAdmin, folder: Path | None) -> None:
        super().__init__(admin, hooks.caller(folder))

    def observe(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[ParticipantState]:
        """One state for each participant. What a hook does not say clearly, or in time, is unknown."""
        producers = [p for p in participants if p.role == "producer"]
        consumers = [p for p in participants if p.role == "consumer"]
        states = [
            *self.side_by_side(producers, lambda p: self.observed(ctx, p)),
            *self._groups.observe(ctx, consumers),
        ]
        found = {s.participant: s for s in states}
        return [found[p] for p in participants]


def _told(ctx: ControlContext, who: Participant, moment: str, topic: str) -> Mapping[str, str]:
    told = {
        "MOMENT": moment,
        "PARTICIPANT": who.name,
        "ROLE": who.role,
        "GROUP": who.group or "",
        "MIGRATION": ctx.migration,
        "EPOCH": str(ctx.epoch),
        "SOURCE": ctx.source,
        "TARGET": ctx.target,
        "TOPIC": topic,
        "LEASE_UNTIL": ctx.lease_until.isoformat() if ctx.lease_until is not None else "",
    }
    return {f"TOPICSHIFT_{name}": value for name, value in told.items()}
