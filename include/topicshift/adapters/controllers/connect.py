"""The controller for Kafka Connect connectors: sinks and MirrorMaker 2 are consumers, other sources are producers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any
from urllib.parse import quote

from topicshift.adapters.controllers import connect_mirror as mirrors
from topicshift.adapters.controllers.connect_mirror import MirrorAt
from topicshift.adapters.controllers.plain import PlainController
from topicshift.adapters.rest import Ask
from topicshift.core.errors import NotFound, SpecError, TopicshiftError, Transient, Unreadable
from topicshift.core.kafka import connect
from topicshift.core.kafka.connect import Connector
from topicshift.core.kafka.mirror import SETS_OFFSETS_FROM, Flow
from topicshift.core.spec.kinds import ConnectSettings
from topicshift.ports import Clock, ClusterAdmin, ControlContext, InstanceState, Participant, ParticipantState

_TRIES, _PAUSE_S = 4, 1.0


class ConnectController(PlainController):
    """Moves connectors by their workers' REST interface: stopped, its topics changed, resumed, failed tasks restarted.

    What a worker answers to an act is no evidence: a connector stands once its worker lists no task of it and, of a
    sink, its group has no members; it runs once all its tasks do and, of a sink, its group has committed in every
    partition that holds records. Of MirrorMaker 2 its own offsets are looked at instead of commits. ``ask_of`` gives
    what asks the worker of a connection.
    """

    kind = "connect"
    needs_person = False

    def __init__(self, admin: ClusterAdmin, ask_of: Callable[[str], Ask], clock: Clock) -> None:
        super().__init__(admin)
        self._clock = clock
        self._admin = admin
        self._ask_of = cache(ask_of)

    # ------------------------------------------------------------------------------------------------ before

    def can_i(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[str]:
        """What would keep each connector from being moved, by its worker's answers; changes nothing.

        A worker that cannot answer now, or has a connector or a task on its way to another worker, is asked again for
        a few seconds: workers that rebalance are soon done.
        """
        return self.lines_of(participants, lambda p: self._patiently(ctx, p))

    def _patiently(self, ctx: ControlContext, who: Participant) -> list[str]:
        for _ in range(_TRIES - 1):
            try:
                return self._unable(ctx, who, placed=True)
            except Transient:
                self._clock.sleep(_PAUSE_S)
        try:
            return self._unable(ctx, who)
        except Unreadable as error:
            raise Unreadable(f"{who.name}: {error}") from None

    def _unable(self, ctx: ControlContext, who: Participant, *, placed: bool = False) -> list[str]:
        try:
            seen = self._look(who)
            if placed and not seen.placed:
                raise Transient(seen.text())
            root = self._ask(who)("GET", "/", None)
            wrong = [*self._elsewhere(root, who), *self._wrong(ctx, who, seen)]
        except (SpecError, NotFound) as error:
            return [str(error)]
        why = connect.can_stop(root)
        if not why and _settings(who).mirror:
            why = connect.too_old(root, SETS_OFFSETS_FROM, "set the offsets of a connector")
        return [*([why] if why else []), *wrong]

    def _elsewhere(self, root: Any, who: Participant) -> Iterator[str]:
        if _settings(who).mirror:
            return  # it works with the cluster that it copies to
        theirs, ours = root.get("kafka_cluster_id"), self._admin.cluster().cluster_id
        if theirs and theirs != ours:
            yield f"its worker works with the Kafka cluster {theirs}, and this migration is in {ours}"

    def _wrong(self, ctx: ControlContext, who: Participant, seen: Connector) -> Iterator[str]:
        other = mirrors.misdeclared(who, seen, _settings(who).mirror, ctx.target)
        if other:
            yield other
            return
        if not seen.runs:
            yield f"{seen.text()}; it has to run before it can be moved and put back as it was"
        hidden = connect.masked(seen.config)
        if hidden:
            yield f"its worker hides the values of {', '.join(hidden)}, so its settings cannot be written back"
        named = list(self._topics_wrong(ctx, who, seen))
        yield from named
        if _settings(who).mirror:
            yield from self._mirror_wrong(ctx, who, seen)
        elif who.role == "consumer":
            yield from self._sink_wrong(who, seen)
        if not named and not hidden:
            yield from self._refused(ctx, who, seen)

    def _topics_wrong(self, ctx: ControlContext, who: Participant, seen: Connector) -> Iterator[str]:
        setting = _setting(who)
        value = seen.config.get(setting, "")
        if seen.config.get("topics.regex"):
            yield "it names its topics by topics.regex, which may match the target as well; name them in `topics`"
        elif connect.renamed(value, ctx.source, ctx.target) is None:
            yield f"its setting {setting} is {value!r}; it has to name {ctx.source}, and not {ctx.target}"
        kept = {setting, *_settings(who).keep}
        for key in connect.names_too(seen.config, ctx.source, kept):
            yield f"its setting {key} names {ctx.source} as well, or is made of a topic's name; see `keep`"

    def _sink_wrong(self, who: Participant, seen: Connector) -> Iterator[str]:
        group = connect.group_of(seen)
        if group != who.group:
            yield f"it reads as group {group}, and the spec says {who.group}"
        why = connect.versions_by_offset(seen.config)
        if why and who.stored_offsets != "handled":
            yield (
                f"{why}; on the target offsets start at 0 again, so every update of an old key would be dropped, with "
                "lag 0. Deal with it (a new index, or external.version.header), then say `stored_offsets: handled`"
            )

    def _mirror_wrong(self, ctx: ControlContext, who: Participant, seen: Connector) -> Iterator[str]:
        value = connect.renamed(seen.config.get("topics", ""), ctx.source, ctx.target)
        wanted = None if value is None else {**seen.config, "topics": value}
        yield from mirrors.unable(ctx, who, seen, wanted, self._admin)
        why = mirrors.unlike(self._at(who, seen).own(ctx.source), ctx, self._admin)
        if why:
            yield why

    def _refused(self, ctx: ControlContext, who: Participant, seen: Connector) -> Iterator[str]:
        wanted = self._pointed(who, seen, ctx.source, ctx.target)
        plugin = quote(seen.config.get("connector.class", ""), safe="")
        answer = self._ask(who)("PUT", f"/connector-plugins/{plugin}/config/validate", wanted)
        try:
            bad = [c["value"]["name"] for c in answer["configs"] if c["value"]["errors"]]
        except (KeyError, TypeError):
            raise Unreadable(f"whether {seen.name} would take {ctx.target} is not understood") from None
        if bad or answer.get("error_count"):
            yield f"its worker would not take it with {ctx.target}: wrong: {', '.join(map(str, bad)) or 'its settings'}"

    # ------------------------------------------------------------------------------------------------ acts

    def stop(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Stop each connector; its settings and offsets stay. Raises ``Transient`` where a worker does not answer."""
        self.each(_heard(ctx, participants), participants, self._stop)

    def _stop(self, ctx: ControlContext, who: Participant) -> None:
        seen = self._look(who)
        if _settings(who).mirror:
            self._remembered(ctx, self._at(who, seen, ctx))
        if seen.state != "STOPPED":
            self._do(ctx, who, "stop", "PUT", "/stop", {"was": seen.text()})

    def point(self, ctx: ControlContext, participants: Sequence[Participant], topic: str) -> None:
        """Put the topic in the place of the other one. Raises ``Transient`` while a connector is not STOPPED."""
        self.each(_heard(ctx, participants), participants, lambda c, p: self._point(c, p, topic))

    def _point(self, ctx: ControlContext, who: Participant, topic: str) -> None:
        seen, setting = self._look(who), _setting(who)
        if _on(seen, who, ctx) == topic:
            return
        wanted = self._pointed(who, seen, ctx.target if topic == ctx.source else ctx.source, topic)
        if seen.state != "STOPPED":
            raise Transient(f"it is pointed to {topic} once it is STOPPED: {seen.text()}")
        if _settings(who).mirror:
            self._place(ctx, who, seen, topic)
        said = {"setting": setting, "before": seen.config[setting], "after": wanted[setting]}
        self._do(ctx, who, "point", "PUT", "/config", said, wanted)
        now = self._look(who).config
        if now.get(setting) != wanted[setting]:
            raise Transient(f"it does not show its setting {setting} as it was written")
        others = sorted(key for key in {*now, *wanted} if now.get(key) != wanted.get(key))
        if others:  # of a change by somebody else at this moment
            ctx.say(who.name, {"moment": "point", "differs": ", ".join(others)})

    def _place(self, ctx: ControlContext, who: Participant, seen: Connector, topic: str) -> None:
        """Set the offsets at which a mirror begins on the topic, before its settings name it."""
        at = self._at(who, seen, ctx)
        if not seen.stopped or self._remembered(ctx, at):
            raise Transient(f"its offsets are set once it is STOPPED and its position is on record: {seen.text()}")
        said, body = mirrors.patch(ctx, at, topic, self._admin)
        if body:
            self._do(ctx, who, "offsets", "PATCH", "/offsets", said, body)

    def _remembered(self, ctx: ControlContext, at: MirrorAt) -> bool:
        """Put on record where a mirror was before it was touched; whether that was still to be done."""
        on = _on(at.seen, at.who, ctx)
        if at.home is not None or on is None:
            return False
        ctx.say(at.who.name, mirrors.remembered(at, on))
        return True

    def start(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Resume each connector, and restart what has failed of it. Raises as ``stop`` does."""
        self.each(ctx, participants, self._start)

    def _start(self, ctx: ControlContext, who: Participant) -> None:
        seen = self._look(who)
        if seen.state in ("STOPPED", "PAUSED"):
            on = _on(seen, who, ctx)
            if _settings(who).mirror and on is not None:
                why = mirrors.would_skip(self._at(who, seen), on, self._admin)
                if why:
                    raise Transient(why)
            self._do(ctx, who, "start", "PUT", "/resume", {"was": seen.text()})
        elif seen.failed:
            path = "/restart?includeTasks=true&onlyFailed=true"
            self._do(ctx, who, "restart", "POST", path, {"was": seen.text()})

    def _do(
        self, ctx: ControlContext, who: Participant, moment: str, method: str, path: str, said: Any, body: Any = None
    ) -> None:
        ctx.still()
        self._ask(who)(method, _path(who) + path, body)
        ctx.say(who.name, {"moment": moment, "connector": _settings(who).connector, **said})

    def _pointed(self, who: Participant, seen: Connector, old: str, new: str) -> dict[str, str]:
        setting = _setting(who)
        value = connect.renamed(seen.config.get(setting, ""), old, new)
        if value is None:
            raise Transient(
                f"it is not pointed to {new}: its setting {setting} is {seen.config.get(setting)!r}, without "
                f"{old} alone. Somebody has changed it; put it right by hand."
            )
        return {**seen.config, setting: value}

    # --------------------------------------------------------------------------------------------- observing

    def observe(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[ParticipantState]:
        """One state for each participant; what its worker or Kafka does not tell is unknown."""
        return self.beside_groups(ctx, participants, lambda p, group: self._observed(ctx, p, group))

    def _observed(self, ctx: ControlContext, who: Participant, group: ParticipantState | None) -> ParticipantState:
        try:
            seen = self._look(who)
            on = _on(seen, who, ctx)
            if _settings(who).mirror:
                return self._mirror(ctx, who, seen, on)
            if group is None:
                return _source(who, seen, on)
            return self._sink(ctx, who, seen, on, group)
        except TopicshiftError as error:
            return ParticipantState(who, "unknown", None, reason=str(error))

    def _sink(
        self, ctx: ControlContext, who: Participant, seen: Connector, on: str | None, group: ParticipantState
    ) -> ParticipantState:
        if group.status == "unknown":
            return ParticipantState(who, "unknown", on, reason=group.reason)
        if group.status == "running" and group.topic != on:
            # What is read counts, whatever the settings say by now.
            reason = group.reason or f"its group reads {group.topic}, and its settings name {on}"
            return ParticipantState(who, "running", group.topic, group.instances, reason)
        if seen.stopped and group.status == "stopped":
            return _state(who, "stopped", on)
        if on != ctx.target:
            return _state(who, "running", on, "" if seen.runs else seen.text())
        if seen.state == "STOPPED":
            still = seen.text() if seen.tasks else f"the connector is STOPPED, and group {who.group} still has members"
            return _state(who, "running", None, still)
        why = seen.text() if not seen.runs else "its group has no members" if group.status == "stopped" else ""
        why = why or self._unread(who, ctx.target)
        return _state(who, "unknown" if why else "running", on, why)

    def _mirror(self, ctx: ControlContext, who: Participant, seen: Connector, on: str | None) -> ParticipantState:
        if seen.stopped:
            skips = mirrors.would_skip(self._at(who, seen), on, self._admin) if on is not None else ""
            return _state(who, "stopped", on, skips)
        if seen.state == "STOPPED" or on is None:
            return _state(who, "running", None, seen.text() if on else f"its topics are {seen.config.get('topics')!r}")
        why = "" if seen.runs else seen.text()
        if on != ctx.target:
            return _state(who, "running", on, why)
        why = why or mirrors.unread(self._at(who, seen), on, self._admin)
        return _state(who, "unknown" if why else "running", on, why)

    def _unread(self, who: Participant, topic: str) -> str:
        """Partitions that hold records and in which the group has committed none; empty where there is none such.

        A connector that is RUNNING may read nothing: one whose commit does not move has not arrived.
        """
        group = str(who.group)
        offsets = self._admin.offsets(topic)
        commits = self._admin.commits([group], topic, sorted(offsets)).get(group)
        if commits is None or commits.error or commits.errors:
            return f"the commits of group {group} on {topic} cannot be read"
        waiting = []
        for p, seen in sorted(offsets.items()):
            at = commits.offsets.get(p)
            if seen.end is None or seen.log_start is None:
                return f"the ends of {topic}[{p}] cannot be read"
            if at is not None and at <= seen.log_start < seen.end:
                waiting.append(f"{topic}[{p}] (at {at} of {seen.end})")
        return f"RUNNING, and its commits do not move on {', '.join(waiting[:5])}" if waiting else ""

    # ------------------------------------------------------------------------------------------------ workers

    def flows(self, connections: Sequence[str]) -> list[Flow]:
        """Every connector of MirrorMaker 2 on the workers of these connections. Raises ``Unreadable``."""
        found = self.side_by_side(connections, lambda name: mirrors.flows_of(name, self._ask_of(name)))
        return [flow for flows in found for flow in flows]

    def copied(self, participants: Sequence[Participant], topic: str) -> dict[str, dict[int, int]]:
        """How far each mirror has copied the topic, by its group. Raises ``Unreadable``."""
        found = self.side_by_side(participants, lambda p: self._at(p, self._look(p)).own(topic))
        return {str(p.group): own for p, own in zip(participants, found, strict=True)}

    def _at(self, who: Participant, seen: Connector, ctx: ControlContext | None = None) -> MirrorAt:
        offsets = self._ask(who)("GET", f"{_path(who)}/offsets", None)
        return MirrorAt(who, seen, offsets, ctx.told(who.name) if ctx is not None else ())

    def _ask(self, who: Participant) -> Ask:
        return self._ask_of(_settings(who).connection)

    def _look(self, who: Participant) -> Connector:
        ask, path = self._ask(who), _path(who)
        try:
            status, config = ask("GET", f"{path}/status", None), ask("GET", f"{path}/config", None)
            return connect.read_connector(status, config)
        except NotFound:
            raise NotFound(
                f"its worker knows no connector {_settings(who).connector!r}; see name and connection"
            ) from None
        except ValueError as error:
            raise Unreadable(f"connector {_settings(who).connector}: {error}") from None


def _heard(ctx: ControlContext, participants: Sequence[Participant]) -> ControlContext:
    """With what the audit trail has of each mirror, read here: the journal is of the caller's own thread."""
    trail = {p.name: ctx.told(p.name) for p in participants if _settings(p).mirror}
    return replace(ctx, told=lambda name: trail.get(name, ()))


def _source(who: Participant, seen: Connector, on: str | None) -> ParticipantState:
    if seen.stopped:
        return _state(who, "stopped", on)
    if seen.runs:
        return _state(who, "running", on)
    if set(seen.tasks.values()) & {"RUNNING"} or seen.state == "STOPPED" or on is None:
        # A task may write on, whatever the connector is said to be; so nothing but no task at all is a stop.
        return _state(who, "running", None, seen.text())
    return _state(who, "unknown", on, seen.text())


def _state(who: Participant, status: Any, on: str | None, why: str = "") -> ParticipantState:
    return ParticipantState(who, status, on, (InstanceState(who.name, status, on, None),), why)


def _on(seen: Connector, who: Participant, ctx: ControlContext) -> str | None:
    """The topic of the migration that its settings name, None where both or neither."""
    named = {*connect.topics_of(seen.config.get(_setting(who), ""))} & {ctx.source, ctx.target}
    return named.pop() if len(named) == 1 else None


def _settings(who: Participant) -> ConnectSettings:
    return ConnectSettings.model_validate(dict(who.settings))


def _setting(who: Participant) -> str:
    """The connector's setting that names its topics: of every sink it is the same, sources differ."""
    return "topics" if who.role == "consumer" else _settings(who).topic_setting


def _path(who: Participant) -> str:
    return f"/connectors/{quote(_settings(who).connector, safe='')}"
