"""Observe: ask the world for exactly the facts that a decision needs, all at once, and make a view of the answers.

Questions are asked side by side, each at most once; facts are worked out from the answers alone. What could not be
read becomes an :class:`~topicshift.core.engine.view.Unknown` with the reason.

Rows that are read here: ``fence`` (topic_id, partitions, acls_added, record), ``wide_deny`` (acls_added),
``create_target`` (topic_id, partitions, configs, acls_added, may_write), ``lengthen_retention`` (set),
``certificate`` (substance, taken_at), ``verification`` (substance, question: the SHA-256 of the certificate that was
handed to the verifier).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from topicshift.acts.again import STILL
from topicshift.acts.certificate import heard
from topicshift.acts.context import MigrationContext
from topicshift.acts.drain import DrainTaker
from topicshift.acts.drain_inputs import DrainConfig, DrainInputs
from topicshift.acts.fence import late_denies
from topicshift.acts.gate import look_at_gate, with_people
from topicshift.acts.groups import certified_offsets
from topicshift.acts.later import later_migration
from topicshift.acts.planning import plan_now
from topicshift.acts.questions import answers_of
from topicshift.acts.replay import replayed_in_all
from topicshift.acts.transactions import open_transactions
from topicshift.core.checks.installation import forbidden, out_of_bounds
from topicshift.core.drain.decision import forgotten
from topicshift.core.engine.engine import Wanted, facts_needed, table_of
from topicshift.core.engine.view import (
    Answer,
    DenyFact,
    DrainFact,
    FenceFact,
    GateFact,
    GroupFact,
    JobFact,
    PlanFact,
    PolicyFact,
    ProofFact,
    Record,
    Side,
    SourceFact,
    TargetFact,
    TransactionsFact,
    Unknown,
    VerifierFact,
    View,
    Whereabouts,
)
from topicshift.core.engine.where import releasing
from topicshift.core.engine.words import Fact, Row
from topicshift.core.errors import NotFound, TopicshiftError, Unreadable
from topicshift.core.fence import hanging
from topicshift.core.fence.acls import Grant, added_by, grant
from topicshift.core.fence.decision import FenceSample, FenceVerdict, Stop, decide_fence, settings_of
from topicshift.core.fence.point import FencePoint
from topicshift.core.fence.record import Broken, compare
from topicshift.core.kafka.cluster import Acl, PartitionOffsets, TopicInfo, total_end
from topicshift.core.plan.model import Plan
from topicshift.core.plan.source import source_differs
from topicshift.core.plan.target import NOT_COPIED
from topicshift.core.proof.verification import same_topic_id
from topicshift.ports import ParticipantState

T = TypeVar("T")
_KEEP_S = 10.0
_GATE_LOOK = DrainConfig(stuck_after_s=60.0)


def observe(ctx: MigrationContext, record: Record, wanted: Wanted = "forward", focus: str | None = None) -> View:
    """The view for a decision. Raises only what says that this very client may not ask (``AccessDenied`` is a fact)."""
    return _Look(ctx, record, wanted, focus).view()


class _Look:
    """One look: the questions, their answers, and the facts that follow."""

    def __init__(self, ctx: MigrationContext, record: Record, wanted: Wanted, focus: str | None) -> None:
        self.ctx, self.record, self.wanted, self.focus = ctx, record, wanted, focus
        self.needs = facts_needed(record, wanted)
        self.table = table_of(record, wanted)
        self.now = ctx.clock.now()
        self.answers: dict[str, Any] = {}
        self.releasing = self.table == "forward" and releasing(record)

    # ------------------------------------------------------------------------------------------------ questions

    def _questions(self) -> dict[str, Callable[[], Any]]:
        ctx, record, needs, admin = self.ctx, self.record, self.needs, self.ctx.admin
        source, target = record.source, record.target
        ask: dict[str, Callable[[], Any]] = {}
        if needs & {Fact.FENCE, Fact.PROOF, Fact.STILL, Fact.RETENTION, Fact.SOURCE}:
            ask["source"] = lambda: admin.topic(source)
        if needs & {Fact.FENCE, Fact.PROOF, Fact.STILL}:
            alone = not needs & {Fact.PROOF, Fact.STILL}  # a fence that is proven is held against END_U
            ask["ends"] = lambda: admin.offsets(source, ends_alone=alone)
        if needs & {Fact.PROOF, Fact.STILL}:
            partitions = range(int(self._fence_row()["partitions"])) if record.begun(Row.FENCE) else range(0)
            ask["kafka_producers"] = lambda: admin.producers(source, partitions)
            ask["transactions"] = lambda: admin.transactions(source)
        if needs & {Fact.DENY, Fact.TARGET}:
            ask["acls"] = admin.acls
        if Fact.TARGET in needs or self.releasing:
            ask["target"] = lambda: admin.topic(target)
            ask["target_ends"] = lambda: self._ends(target)
        if needs & {Fact.PRODUCERS, Fact.PROOF}:
            driven = ctx.driven(ctx.producers)
            ask["producers"] = lambda: ctx.observe(driven)
        if Fact.GROUPS in needs:
            ask["consumers"] = lambda: ctx.observe(ctx.consumers)
        if Fact.GROUPS in needs and self.releasing:
            groups = self._open_groups()
            ask["members"] = lambda: admin.describe_groups(groups)
            ask["commits"] = lambda: admin.commits(groups, target, self._partitions(target))
            ask["certified"] = self._certified_now
        return ask | self._slow_questions()

    def _slow_questions(self) -> dict[str, Callable[[], Any]]:
        """Questions that are made of several, or that ask files."""
        ctx, record, needs = self.ctx, self.record, self.needs
        ask: dict[str, Callable[[], Any]] = {}
        if Fact.PLAN in needs:
            ask["plan"] = self._plan_now
        if Fact.IMPACT in needs:
            ask["impact"] = lambda: ctx.ports.evidence.read(record.migration_id, "impact.json")
        if Fact.ORDER_PROOF in needs:
            ask["order_proof"] = lambda: ctx.ports.evidence.read(record.migration_id, "order_proof.json")
        if Fact.VERIFIER in needs:
            ask["verifier"] = self._verifier_now
        if Fact.TRANSACTIONS in needs:
            ask["open_transactions"] = lambda: open_transactions(ctx.admin, record.source, ctx.clock)
        if Fact.GATE in needs:
            ask["gate"] = self._gate_now
        if Fact.DRAIN in needs:
            for subject in self._certificates():
                ask[f"drain:{subject}"] = partial(self._drain_now, subject)
        if Fact.SOURCE in needs and self.table == "retire":
            ask["retirement"] = self._retirement_now
        if Fact.SOURCE in needs and self.table == "rollback":
            ask["later"] = lambda: later_migration(ctx.journal, ctx.row)
        return ask

    def _certificates(self) -> list[str]:
        policy = self.record.policy
        if self.record.certificates == ("",):
            return [""]
        return [g for g in policy.groups if self.focus in (None, g) and not self.record.begun(Row.SWITCH_GROUP, g)]

    def _certified_now(self) -> dict[str, dict[int, int]]:
        """On a way back: the offsets at which each group goes on, by its certificate; empty on the way forward."""
        return {g: certified_offsets(self.ctx, g, {}) for g in self._open_groups()} if self.record.mirrored else {}

    def _open_groups(self) -> list[str]:
        groups = self.record.policy.groups
        return [g for g in groups if self.focus in (None, g) and not self.record.done(Row.SWITCH_GROUP, g)]

    def _ends(self, topic: str) -> Mapping[int, Any]:
        try:
            return self.ctx.admin.offsets(topic, ends_alone=not self.releasing)
        except NotFound:
            return {}

    def _partitions(self, topic: str) -> list[int]:
        info = self.ctx.admin.topic(topic)
        if info is None:
            raise Unreadable(f"topic {topic} does not exist")
        return sorted(info.replicas)

    def _plan_now(self) -> Plan:
        return plan_now(self.ctx, with_impact=True)

    def _verifier_now(self) -> VerifierFact:
        verifier, record = self.ctx.ports.verifier, self.record
        state, text = verifier.state()
        answers = {}
        for subject in record.certificates:
            asked = record.step(Row.VERIFICATION, subject)
            answer = heard(self.ctx, record, subject) if asked is not None and asked.state.in_effect else None
            if asked is not None and answer is not None:
                answers[str(asked.data["substance"])] = str(answer.get("verdict"))
                text = str(answer.get("reason") or text)
        return VerifierFact(state, answers, text)

    def _gate_now(self) -> GateFact:
        takers = self.ctx.memory.takers
        taker = takers.get("gate")
        if taker is None:
            taker = takers["gate"] = self._taker("", fence=None)
        return look_at_gate(self.ctx, self.record, taker, self.now)

    def _taker(self, subject: str, *, fence: FencePoint | None) -> DrainTaker:
        ctx = self.ctx
        name = ctx.consumer(subject).name if subject else ""
        evidence = ctx.ports.reader_evidence(ctx.spec, name) if ctx.ports.reader_evidence is not None else None
        inputs = DrainInputs.from_spec(ctx.spec, consumer=name, evidence=evidence)
        issued = f"{ctx.claim.owner}#{ctx.claim.epoch}"
        return DrainTaker(ctx.ports.reader, inputs, fence=fence, config=_GATE_LOOK, now=ctx.clock.now, issued_by=issued)

    def _drain_now(self, subject: str) -> DrainFact:
        ctx, memory = self.ctx, self.ctx.memory
        fence = ctx.fence_of(self.record)
        key = f"{subject}@{fence.taken_at}"
        taker, last = memory.takers.get(key), memory.certificates.get(key)
        if taker is None:
            taker = memory.takers[key] = self._taker(subject, fence=fence.point)
        run = ctx.ports.executor.run
        certificate = run(lambda: taker.take(second_sample=False) if last is None else taker.refresh(last))
        memory.certificates[key] = certificate
        open_ = [g.group for g in certificate.groups if g.verdict.value != "drained"]
        text = ", ".join([*open_[:10], *certificate.reasons[:5]])
        return DrainFact(certificate.verdict.value, certificate.substance, text, forgotten(certificate))

    def _retirement_now(self) -> SourceFact:
        from topicshift.acts.retire import look_at_source

        fact: SourceFact = look_at_source(self.ctx, self.record)
        return fact

    # ---------------------------------------------------------------------------------------------------- facts

    def view(self) -> View:
        """Ask, and work the facts out."""
        ctx, record = self.ctx, self.record
        self.answers = ctx.ports.executor.gather(self._questions())
        told = {key: (self.now - last.at).total_seconds() for key, last in ctx.memory.told.items()}
        facts: dict[str, Any] = {
            name: fact
            for name, need, work in (
                ("plan", Fact.PLAN, self._plan),
                ("impact", Fact.IMPACT, lambda: self._job("impact", "measured")),
                ("order_proof", Fact.ORDER_PROOF, lambda: self._job("order_proof", None)),
                ("target", Fact.TARGET, self._target),
                ("producers", Fact.PRODUCERS, self._producers),
                ("groups", Fact.GROUPS, self._groups),
                ("fence", Fact.FENCE, self._fence),
                ("proof", Fact.PROOF, self._proof),
                ("still", Fact.STILL, self._still),
                ("deny", Fact.DENY, self._deny),
                ("verifier", Fact.VERIFIER, lambda: self._answer("verifier")),
                ("gate", Fact.GATE, self._gate),
                ("drain", Fact.DRAIN, self._drain),
                ("transactions", Fact.TRANSACTIONS, self._transactions),
                ("retention_at_risk", Fact.RETENTION, self._retention),
                ("source", Fact.SOURCE, self._source),
                ("policy", Fact.POLICY, self._policy),
            )
            if need in self.needs
            for fact in [work()]
        }
        answers: dict[str, Answer] = {}
        view = View(
            record=record,
            now=self.now,
            began_at=ctx.began_at,
            wanted=self.wanted,
            focus=self.focus,
            answers=answers,
            told=told,
            times={key: last.times for key, last in ctx.memory.told.items()},
            **facts,
        )
        answers |= answers_of(view)
        return view

    def _policy(self) -> PolicyFact | Unknown:
        ctx = self.ctx
        try:
            policy = ctx.installation()
        except TopicshiftError as error:
            return Unknown(str(error))
        if policy is None:
            return PolicyFact()
        # Where evidence of readers lies no longer matters once the source is read to its end.
        judge = out_of_bounds if self.table == "retire" else forbidden
        return PolicyFact(tuple(f.line() for f in judge(ctx.spec, self.record.target, policy)))

    def _answer(self, question: str) -> Any:
        """The answer; an error of the product becomes an unknown fact."""
        found = self.answers[question]
        return Unknown(str(found)) if isinstance(found, TopicshiftError) else found

    def _plan(self) -> PlanFact | Unknown:
        plan = self._answer("plan")
        if isinstance(plan, Unknown):
            return plan
        return PlanFact(plan.plan_hash, tuple(f.line() for f in plan.blocking()), self._plan_differs(plan))

    def _plan_differs(self, plan: Plan) -> tuple[str, ...]:
        from topicshift.acts.open import differences

        if plan.plan_hash == self.record.plan_hash:
            return ()
        approved = self.ctx.ports.evidence.read(self.record.migration_id, "plan.json")
        return tuple(differences(Plan.model_validate_json(approved), plan)) if approved is not None else ()

    def _job(self, question: str, verdict: str | None) -> JobFact | Unknown:
        data = self._answer(question)
        if isinstance(data, Unknown):
            return data
        if data is None:
            return JobFact(None)
        try:
            result = json.loads(data)
        except ValueError:
            return Unknown(f"{question}.json is not JSON")
        if question == "order_proof" and (self._fenced_since(result) or self._replayed_since(result)):
            return JobFact(None)
        return JobFact(verdict or str(result.get("verdict")), str(result.get("reason") or ""))

    def _gate(self) -> GateFact | Unknown:
        """The gate, with what the freeze would take and whom it would deny."""
        return with_people(self.ctx, self.record, *(self._answer(name) for name in ("gate", "producers", "acls")))

    def _fenced_since(self, proof: Mapping[str, Any]) -> bool:
        """Whether the source was fenced anew after this proof had read it."""
        row, told = self._fence_row().get("record"), proof.get("fence_offsets")
        return row is not None and told is not None and told != {str(p): o for p, o in row["fence_offsets"].items()}

    def _replayed_since(self, proof: Mapping[str, Any]) -> bool:
        """Whether late records were written to the target after this proof had read it."""
        count = replayed_in_all(self.record)
        return bool(count) and "replayed" in proof and proof["replayed"] != count

    def _target(self) -> TargetFact | Unknown:
        info, ends, acls = self._answer("target"), self._answer("target_ends"), self._answer("acls")
        if isinstance(info, Unknown):
            return info
        if info is None:
            return TargetFact(exists=False, used=0)
        used: int | None = None
        if not isinstance(ends, Unknown):
            total = total_end(ends.get(p) for p in info.replicas)
            used = None if total is None else total - self._held()
        row = self.record.step(Row.CREATE_TARGET)
        if row is None or not self.record.done(Row.CREATE_TARGET):
            return TargetFact(True, "", used)
        if isinstance(acls, Unknown):
            return acls
        wanted = [Acl(**a) for a in row.data["acls_added"]]
        ours = same_topic_id(info.topic_id, str(row.data.get("topic_id")))
        missing = tuple(str(a) for a in wanted if a not in acls) if ours else ()
        late = late_denies(self.record, acls, self.record.target)
        may = self._without_deny(acls | set(wanted)) - set(late)
        wrong = self._target_differs(info, row.data, used) or self._may_not_write(row.data, may)
        return TargetFact(True, wrong, used, missing, ours, tuple(map(str, late)))

    def _base(self) -> Mapping[int, int]:
        """On a way back: where the topic that it goes back to ended at its first fence."""
        made = self.record.step(Row.CREATE_TARGET)
        found: Mapping[int, int] = made.data.get("holds", {}) if made is not None else {}
        return found

    def _begins(self, partition: int, log_start: int) -> str:
        base = self._base().get(partition)
        return f"the log starts at {log_start}" if base is None else f"its first fence is at {base}"

    def _held(self) -> int:
        return sum(self._base().values())

    def _without_deny(self, acls: frozenset[Acl]) -> frozenset[Acl]:
        """On a way back: without the DENY that it lifts before anybody is pointed."""
        row = self.record.step(Row.FIRST_DENY)
        return acls - {Acl(**a) for a in row.data.get("acls_added", ())} if row is not None else acls

    def _may_not_write(self, planned: Mapping[str, Any], acls: frozenset[Acl]) -> str:
        """Producers who might write to the target when it was made and may not any more, in words."""
        granted = {p: grant(acls, self.record.target, p) for p in planned.get("may_write", ())}
        lost = [p for p, now in granted.items() if now in (Grant.NONE, Grant.DENIED)]
        return f"{', '.join(lost)} may not write to it any more" if lost else ""

    def _target_differs(self, info: TopicInfo, planned: Mapping[str, Any], used: int | None) -> str:
        if not same_topic_id(info.topic_id, str(planned.get("topic_id"))):
            return f"it was deleted and made again (id {info.topic_id}, was {planned.get('topic_id')})"
        if info.partitions != planned["partitions"]:
            return f"it has {info.partitions} partitions, planned were {planned['partitions']}"
        if self.record.in_effect(Row.SWITCH_PRODUCERS):
            return ""
        if self.record.mirrored:
            return f"it holds {used} more records than at its fence, although nobody was switched to it" if used else ""
        set_here = {e.name: e.value for e in info.configs.values() if e.set_here}
        wanted = dict(planned["configs"])
        names = (set_here.keys() | wanted.keys()) - NOT_COPIED.keys()
        other = sorted(k for k in names if set_here.get(k) != wanted.get(k))
        if other:
            return "its configs differ: " + ", ".join(f"{k}={set_here.get(k, 'not set')}" for k in other)
        return f"it holds {used} records, although nobody was switched to it" if used else ""

    def _producers(self) -> Mapping[str, Whereabouts] | Unknown:
        states = self._answer("producers")
        if isinstance(states, Unknown):
            return states
        return {s.participant.name: self._where(s) for s in states}

    def _where(self, state: ParticipantState) -> Whereabouts:
        sides: dict[str, Side] = {self.record.source: "source", self.record.target: "target"}
        side = sides.get(state.topic) if state.topic is not None else None
        absent = state.status == "stopped" and not state.instances and not self.ctx.manual(state.participant)
        return Whereabouts(state.status, side, state.armed, state.reason, absent)

    def _groups(self) -> Mapping[str, GroupFact | Unknown]:
        states = self._answer("consumers")
        groups = self.record.policy.groups
        if isinstance(states, Unknown):
            return dict.fromkeys(groups, states)
        found = {s.participant.group: self._where(s) for s in states}
        facts: dict[str, GroupFact | Unknown] = {}
        for group in groups:
            where = found.get(group, Whereabouts("unknown", reason="its controller gave no answer"))
            facts[group] = self._group(group, where) if self.releasing else GroupFact(where)
        return facts

    def _group(self, group: str, where: Whereabouts) -> GroupFact | Unknown:
        members, commits, ends, certified = (
            self._answer(q) for q in ("members", "commits", "target_ends", "certified")
        )
        for answer in (commits, ends, certified):
            if isinstance(answer, Unknown):
                return answer
        if group not in self._open_groups():
            return GroupFact(where)
        held = commits.get(group)
        if held is None or held.error or held.errors:
            why = "no answer" if held is None else held.error or dict(held.errors)
            return Unknown(f"the commits of group {group} on the target cannot be read: {why}")
        info = None if isinstance(members, Unknown) else members.get(group)
        count = None if info is None or info.error else len(info.members)
        first = certified.get(group, {})
        unseeded = [p for p in ends if (at := held.offsets.get(p)) is None or at < first.get(p, 0)]
        beyond = []
        for p, seen in sorted(ends.items()):
            at = held.offsets.get(p)
            if at is not None and seen.log_start is None:
                return Unknown(
                    f"the log start of the target's partition {p} cannot be read: {seen.error or 'no answer'}"
                )
            if at is not None and at > self._base().get(p, seen.log_start):
                beyond.append(f"partition {p} at {at}, where {self._begins(p, seen.log_start)}")
        return GroupFact(where, count, len(unseeded), ", ".join(beyond[:5]))

    def _sample(self) -> FenceSample:
        """What was just read of the source, as one sample of the fence."""
        got: dict[str, Any] = {}
        errors: dict[str, str] = {}
        names = {
            "source": "topic", "ends": "offsets", "kafka_producers": "producers",
            "transactions": "transactions", "producers": "participants", "acls": "acls",
        }  # fmt: skip
        for question, name in names.items():
            found = self.answers.get(question)
            if isinstance(found, TopicshiftError):
                errors[name] = str(found)
            got[question] = None if isinstance(found, TopicshiftError) else found
        info, states = got["source"], got["producers"]
        return FenceSample(
            began=self.now.timestamp(),
            ended=self.ctx.clock.now().timestamp(),
            topic_id=info.topic_id if info is not None else None,
            offsets=got["ends"],
            producers=None if got["kafka_producers"] is None else tuple(got["kafka_producers"]),
            transactions=None if got["transactions"] is None else tuple(got["transactions"]),
            stops=None if states is None else tuple(Stop(s.participant.name, s.status, s.reason) for s in states),
            deny_missing=None if got["acls"] is None else tuple(self._missing(got["acls"])),
            errors=errors,
            gone=info is None and "topic" not in errors,
        )

    def _fence_row(self) -> Mapping[str, Any]:
        row = self.record.step(Row.FENCE)
        return row.data if row is not None else {}

    def _proof(self) -> ProofFact | Unknown:
        memory, row = self.ctx.memory, self._fence_row()
        if not self.record.begun(Row.FENCE):
            memory.samples.clear()
            return Unknown("the DENY is not set yet")
        sample = self._sample()
        memory.samples.append(sample)
        # The first one stays: it tells what the topic was when this began.
        settings = settings_of(added_by(row))
        keep = 2 * settings.settle_s + _KEEP_S
        memory.samples[1:] = [s for s in memory.samples[1:] if sample.ended - s.ended <= keep]
        decision = decide_fence(
            memory.samples,
            settings,
            topic=self.record.source,
            topic_id=str(row["topic_id"]),
            partitions=int(row["partitions"]),
            now_ms=int(self.now.timestamp() * 1000),
        )
        text = "; ".join(decision.reasons)
        if decision.verdict is FenceVerdict.BROKEN:
            return ProofFact(False, text, broken=True)
        until = "" if decision.settled_at is None else datetime.fromtimestamp(decision.settled_at, UTC).isoformat()
        proven, open_ = decision.verdict is FenceVerdict.FENCED, len(decision.transactions)
        return ProofFact(proven, text, open_transactions=open_, until=until)

    def _still(self) -> ProofFact | Unknown:
        """Whether the source stands still, with nobody who says that he is stopped."""
        if "record" not in self._fence_row():
            return Unknown("the fence is not proven")
        fence, series = self.ctx.last_fence(self.record), self.ctx.memory.still
        sample = replace(self._sample(), stops=(), deny_missing=())
        series.append(sample)
        series[1:] = [s for s in series[1:] if sample.ended - s.ended <= 2 * STILL.settle_s + _KEEP_S]
        now_ms = int(self.now.timestamp() * 1000)
        decision = decide_fence(
            series, STILL, topic=fence.topic, topic_id=fence.topic_id, partitions=fence.partitions, now_ms=now_ms
        )
        text = "; ".join(decision.reasons)
        if decision.verdict is FenceVerdict.BROKEN:
            return ProofFact(False, text, broken=True)
        return ProofFact(decision.verdict is FenceVerdict.FENCED, text, open_transactions=len(decision.transactions))

    def _fence(self) -> FenceFact | Unknown:
        if "record" not in self._fence_row():
            return Unknown("the fence is not proven")
        fence, sample, at = self.ctx.last_fence(self.record), self._sample(), self.ctx.clock.now()
        sample = replace(sample, offsets=self._latest(sample.offsets, fence.taken_at))
        violations = compare(fence, sample, at=at)
        unread = [v.text for v in violations if v.kind is Broken.UNREADABLE]
        broken = [v for v in violations if v.kind is not Broken.UNREADABLE]
        if any(v.kind is Broken.GROWN for v in broken):
            named = self.ctx.ports.executor.gather(
                {"producers": lambda: self.ctx.admin.producers(fence.topic, range(fence.partitions))}
            )["producers"]
            if not isinstance(named, TopicshiftError):
                sample = FenceSample(**{**sample.__dict__, "producers": tuple(named)})
                broken = [v for v in compare(fence, sample, at=at) if v.kind is not Broken.UNREADABLE] or broken
        if broken:
            text = "; ".join(v.text for v in broken)
            grown = all(v.kind is Broken.GROWN for v in broken) and not unread
            return FenceFact(f"the fence of {fence.topic}, taken at {fence.taken_at}, is broken: {text}", grown)
        return Unknown("; ".join(unread)) if unread else FenceFact()

    def _latest(
        self, ends: Mapping[int, PartitionOffsets] | None, taken_at: str
    ) -> Mapping[int, PartitionOffsets] | None:
        """The ends, each as it was seen last: a look for a certificate comes a moment after the one for the fence."""
        if ends is None:
            return None
        latest = dict(ends)
        looked = [s for s in self._certificates() if isinstance(self.answers.get(f"drain:{s}"), DrainFact)]
        for subject in looked:
            for partition, seen in self.ctx.memory.takers[f"{subject}@{taken_at}"].world.offsets.items():
                known = latest.get(partition)
                if known is not None and known.end is not None and known.end < (seen.end or 0):
                    latest[partition] = seen
        return latest

    def _missing(self, acls: frozenset[Acl]) -> list[Acl]:
        """DENY bindings of this migration that are not in force."""
        wanted: list[Acl] = []
        for row in (self.record.step(Row.FENCE), self.record.step(Row.WIDE_DENY)):
            if row is not None and row.state.in_effect:
                wanted += [Acl(**a) for a in row.data.get("acls_added", ())]
        return [a for a in wanted if a not in acls]

    def _deny(self) -> DenyFact | Unknown:
        acls = self._answer("acls")
        if isinstance(acls, Unknown):
            # Without a DENY of its own a migration needs no right to look at ACLs.
            return DenyFact() if not self._missing(frozenset()) else acls
        return DenyFact(tuple(f"{a.operation} for {a.principal}" for a in self._missing(acls)))

    def _drain(self) -> Mapping[str, DrainFact | Unknown]:
        return {subject: self._answer(f"drain:{subject}") for subject in self._certificates()}

    def _transactions(self) -> TransactionsFact | Unknown:
        seen = self._answer("open_transactions")
        if isinstance(seen, Unknown):
            return seen
        now_ms = int(self.now.timestamp() * 1000)
        ends = [t.ends_by_ms for t in hanging.standing(seen, now_ms) if t.ends_by_ms is not None]
        until = self.now.fromtimestamp(max(ends) / 1000 + 1.0, self.now.tzinfo) if ends else None
        return TransactionsFact(until, tuple(hanging.key(t) for t in hanging.abortable(seen)))

    def _retention(self) -> bool | Unknown:
        info, row = self._answer("source"), self.record.step(Row.LENGTHEN_RETENTION)
        if isinstance(info, Unknown) or info is None:
            return info if info is not None else Unknown("the source does not exist any more")
        wanted = row.data.get("set", {}) if row is not None and row.state.in_effect else {}
        here = {name: info.configs.get(name) for name in wanted}
        return any(e is None or not e.set_here or e.value != str(wanted[name]) for name, e in here.items())

    def _source(self) -> SourceFact | Unknown:
        if self.table == "retire":
            fact: SourceFact | Unknown = self._answer("retirement")
            return fact
        info, later = self._answer("source"), self._answer("later") if self.table == "rollback" else ""
        if isinstance(info, Unknown):
            return info
        if isinstance(later, Unknown):
            return later
        made = self.record.step(Row.CREATE_TARGET)
        planned = made.data if made is not None else {}
        known = planned.get("source_id") or self._fence_row().get("topic_id")
        same = info is not None and (known is None or same_topic_id(info.topic_id, str(known)))
        return SourceFact(exists=info is not None, same=same, differs=source_differs(info, planned), later=later)
