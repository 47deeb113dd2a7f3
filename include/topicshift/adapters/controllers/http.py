"""The controller for applications that have an interface of their own: an admin API, an actuator, a flag service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Protocol

from topicshift.adapters.controllers.plain import SAYS_NO, PlainController, patiently
from topicshift.adapters.rest import Endpoints, asker
from topicshift.core.errors import (
    AccessDenied,
    NotFound,
    OwnershipLost,
    Refused,
    SpecError,
    TopicshiftError,
    Transient,
)
from topicshift.core.fence.acls import concerning
from topicshift.core.http.answers import Seen, judge
from topicshift.core.http.templates import filled, filled_path
from topicshift.core.spec.http import MAX_ACT_S, HttpSettings, Look, Request
from topicshift.ports import Clock, ClusterAdmin, ControlContext, InstanceState, Participant, ParticipantState


@dataclass(frozen=True)
class Call:
    """One request as it is sent. ``reads``: what the answer says matters, and has to be JSON."""

    method: str
    path: str
    body: Any
    content_type: str
    timeout_s: float
    reads: bool


class Services(Protocol):
    """The connections of the installation, as far as they lead to services that are asked by HTTP."""

    def know(self, connection: str) -> None:
        """Raises ``SpecError`` for a connection that is missing or is no HTTP address."""

    def send(self, connection: str, call: Call) -> Any:
        """The answer's JSON. Raises as :func:`topicshift.adapters.rest.asker` does."""


class RestServices:
    """:class:`Services` over HTTP."""

    def __init__(self, endpoint: Endpoints) -> None:
        self._endpoint = cache(endpoint)

    def know(self, connection: str) -> None:
        """See :class:`Services`."""
        self._endpoint(connection)

    def send(self, connection: str, call: Call) -> Any:
        """See :class:`Services`."""
        ask = asker(
            self._endpoint(connection), call.timeout_s, content_type=call.content_type, any_answer=not call.reads
        )
        return ask(call.method, call.path, call.body)


class HttpController(PlainController):
    """Moves applications by the requests that the spec declares, and believes what *observe* shows, never an answer.

    Each request goes to every connection of the participant (one an instance), and each instance has to show the state
    that is waited for. A producer is what its interface shows, checked by the fence against the ends of the source; a
    consumer is, besides, what Kafka shows of its group. Every act may be sent again: the spec says so of each request.
    """

    kind = "http"
    needs_person = False

    def __init__(self, admin: ClusterAdmin, services: Services, clock: Clock) -> None:
        super().__init__(admin)
        self._admin, self._services, self._clock = admin, services, clock

    # ------------------------------------------------------------------------------------------------ before

    def can_i(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[str]:
        """What would keep each application from being moved, as far as reading shows; changes nothing.

        An interface that does not answer now is asked again for a few seconds.
        """
        return self.lines_of(
            participants,
            lambda p: patiently(p.name, lambda: self._unable(ctx, p), self._clock, (*SAYS_NO, Refused)),
        )

    def _unable(self, ctx: ControlContext, who: Participant) -> list[str]:
        settings = _settings(who)
        if settings.can_i is not None:
            for name in settings.can_i.connections or settings.connections:
                self._read(ctx, who, settings.can_i, name)
        for request in (*settings.stop, *settings.point, *settings.start):
            for name in request.connections or settings.connections:
                self._services.know(name)
        wrong = [
            f"{name}: {_text(seen)}; it has to run on {ctx.source} before it can be moved and put back as it was"
            for name, seen in self._look(ctx, who).items()
            if (seen.status, seen.topic) != ("running", ctx.source)
        ]
        if who.role == "producer" and settings.restarts_on == "source" and not self._can_be_denied(ctx.source):
            wrong.append(
                f"a process of it that starts and cannot ask works on {ctx.source} (restarts_on: source), and no DENY "
                "would keep it from writing there after the switch: no ALLOW covers the topic, or ACLs are not in "
                "force. Let such a process not start (then say restarts_on: pointed), or give the topic its ACLs"
            )
        return wrong

    def _can_be_denied(self, source: str) -> bool:
        if self._admin.cluster().authorizer is False:
            return False
        return any(a.permission == "ALLOW" for a in concerning(self._admin.acls(), source))

    # ------------------------------------------------------------------------------------------------ acts

    def stop(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Send the requests of *stop*. Raises ``Transient`` where one was not answered: they are sent again."""
        self.each(ctx, participants, lambda c, p: self._do(c, p, "stop", _settings(p).stop))

    def point(self, ctx: ControlContext, participants: Sequence[Participant], topic: str) -> None:
        """Send the requests of *point* to an application that stands, and see that it shows the topic.

        Raises ``Transient`` while it does not stand, and where it was told and shows another topic: it would be
        started on the wrong one. A refusal of one that shows the topic all the same keeps nobody from going back.
        """
        self.each(ctx, participants, lambda c, p: self._point(c, p, topic))

    def start(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Send the requests of *start*. Raises as ``stop`` does."""
        self.each(ctx, participants, lambda c, p: self._do(c, p, "start", _settings(p).start))

    def _point(self, ctx: ControlContext, who: Participant, topic: str) -> None:
        before = self._look(ctx, who)
        stands = all(s.status == "stopped" for s in before.values())
        if {s.topic for s in before.values()} == {topic} and not stands:
            return  # it is there, and what runs is not pointed
        for name, seen in before.items():
            if seen.status != "stopped":
                raise Transient(f"it is pointed to {topic} once it stands: {name}: {_text(seen)}")
        settings, refused = _settings(who), None
        try:
            self._do(ctx, who, "point", settings.point, {"topic": topic, "value": _known(settings, ctx)[topic]})
        except OwnershipLost:
            raise
        except (AccessDenied, NotFound, Refused) as error:
            refused = error
        after = self._look(ctx, who)
        if refused is not None:
            if any(seen.topic != topic for seen in after.values()):
                raise refused
            ctx.say(who.name, {"moment": "point", "refused": f"it shows {topic} all the same"})
        for name, seen in after.items():
            if seen.topic != topic:
                on = seen.topic or seen.why or "another topic"
                raise Transient(f"it was told to use {topic}, and nothing has come of it yet: {name} still shows {on}")

    def _do(
        self,
        ctx: ControlContext,
        who: Participant,
        moment: str,
        requests: Sequence[Request],
        more: Mapping[str, Any] | None = None,
    ) -> None:
        settings, until = _settings(who), self._clock.now() + timedelta(seconds=MAX_ACT_S)
        names = {**_names(ctx, who), **(more or {})}
        for request in requests:
            path = filled_path(request.path, names)
            for name in request.connections or settings.connections:
                call = Call(
                    request.method,
                    path,
                    filled(request.body, names),
                    request.content_type,
                    self._left(settings, until),
                    reads=False,
                )
                ctx.still()
                self._services.send(name, call)
                ctx.say(who.name, {"moment": moment, "request": f"{request.method} {path}", "connection": name})

    def _left(self, settings: HttpSettings, until: datetime) -> float:
        left = (until - self._clock.now()).total_seconds()
        if left <= 0:
            raise Transient(f"its requests took longer than {MAX_ACT_S:g} s; they are sent again")
        return min(left, settings.timeout.total_seconds())

    # --------------------------------------------------------------------------------------------- observing

    def observe(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[ParticipantState]:
        """One state for each participant; what its interface or Kafka does not tell clearly is unknown."""
        return self.beside_groups(ctx, participants, lambda p, group: self._observed(ctx, p, group))

    def _observed(self, ctx: ControlContext, who: Participant, group: ParticipantState | None) -> ParticipantState:
        try:
            mine = _together(who, self._look(ctx, who))
        except TopicshiftError as error:
            mine = ParticipantState(who, "unknown", None, reason=str(error))
        return mine if group is None else _with_group(mine, group, ctx)

    def _look(self, ctx: ControlContext, who: Participant) -> dict[str, Seen]:
        """What each instance shows of itself, by the connection that leads to it; all are asked at once."""
        settings = _settings(who)
        look, known = settings.observe, _known(settings, ctx)
        names = list(dict.fromkeys(look.connections or settings.connections))

        def ask(name: str) -> Seen:
            return judge(self._read(ctx, who, look, name), look.running, look.stopped, look.topic, known)

        return dict(zip(names, self.side_by_side(names, ask), strict=True))

    def _read(self, ctx: ControlContext, who: Participant, look: Look, connection: str) -> Any:
        path = filled_path(look.path, _names(ctx, who))
        seconds = _settings(who).timeout.total_seconds()
        return self._services.send(connection, Call("GET", path, None, "application/json", seconds, reads=True))


def _together(who: Participant, seen: Mapping[str, Seen]) -> ParticipantState:
    """All instances: one that is unknown makes the whole unknown, and one that runs makes it run."""
    instances = tuple(InstanceState(f"{who.name} at {name}", s.status, s.topic, None) for name, s in seen.items())
    topics, states = {s.topic for s in seen.values()}, {s.status for s in seen.values()}
    on = topics.pop() if len(topics) == 1 else None
    status = next(s for s in ("unknown", "running", "stopped") if s in states)
    if status == "running" and len(states) > 1:
        on = None  # some have not come as far as the others
    text = "; ".join(f"{name}: {_text(s)}" for name, s in seen.items() if s.why or on is None)
    return ParticipantState(who, status, on, instances, text[:500])


def _with_group(mine: ParticipantState, group: ParticipantState, ctx: ControlContext) -> ParticipantState:
    """A consumer: what its group does counts, whatever its interface says; it stands once both say so."""

    def state(how: Any, topic: str | None, why: str) -> ParticipantState:
        return ParticipantState(mine.participant, how, topic, group.instances or mine.instances, why)

    if group.status == "unknown" or mine.status == "unknown":
        first = group if group.status == "unknown" else mine
        if group.status == "running" and group.topic is not None and group.topic != mine.topic:
            return state("running", group.topic, first.reason)  # it reads there, so there it has to be stopped
        return state("unknown", mine.topic, first.reason)
    if group.status == "running":
        if mine.status == "running" and mine.topic == group.topic:
            return state("running", group.topic, "")
        why = f"its group reads {group.topic or 'more than one topic'}, and it says that it is {mine.status}"
        return state("running", group.topic, group.reason or f"{why} on {mine.topic}")
    if mine.status == "stopped":
        return mine
    why = "it says that it runs, and its group has no members"
    return state("running" if mine.topic == ctx.source else "unknown", mine.topic, why)


def _settings(who: Participant) -> HttpSettings:
    return HttpSettings.model_validate(dict(who.settings))


def _known(settings: HttpSettings, ctx: ControlContext) -> dict[str, Any]:
    """Each topic of the migration, and the value by which the application knows it. Raises ``SpecError``."""
    topics = (ctx.source, ctx.target)
    if not settings.values:
        return dict(zip(topics, topics, strict=True))
    missing = [t for t in topics if t not in settings.values]
    if missing:
        raise SpecError(f"its `values` say nothing of {missing[0]}, so it could not be pointed there; add it")
    return {t: settings.values[t] for t in topics}


def _names(ctx: ControlContext, who: Participant) -> dict[str, Any]:
    return {"participant": who.name, "group": who.group or "", "migration": ctx.migration}


def _text(seen: Seen) -> str:
    state = f"it is {seen.status}" + (f" on {seen.topic}" if seen.topic else "")
    return f"{state} ({seen.why})" if seen.why else state
