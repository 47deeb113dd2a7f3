"""Set the write fence, prove it, check it again, and take it away exactly.

Latency counts here, since producers stand still meanwhile: everything that a sample needs is asked at once, and
samples follow each other at ``poll_s``.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TypeVar

from topicshift.core.errors import (
    AccessDenied,
    DrainTimedOut,
    FenceBroken,
    NotFound,
    Refused,
    TopicshiftError,
    Transient,
    Unreadable,
)
from topicshift.core.fence.acls import RouteProducer, concerning, deny_bindings
from topicshift.core.fence.decision import (
    FenceDecision,
    FenceSample,
    FenceSettings,
    FenceVerdict,
    Stop,
    decide_fence,
    settled_tail,
)
from topicshift.core.fence.record import Broken, FenceRecord, Violation, compare, evidence
from topicshift.core.kafka.cluster import Acl
from topicshift.ports import Claim, Clock, ClusterAdmin, Journal, ParticipantState, StepRow

STEP = "fence"
"""The journal's name of the step."""

Progress = Callable[[str], None]
_T = TypeVar("_T")
_KEEP_S = 10.0


def fence(
    admin: ClusterAdmin,
    journal: Journal,
    claim: Claim,
    clock: Clock,
    source: str,
    exempt_principals: Iterable[str],
    settings: FenceSettings,
    observe_participants: Callable[[], Sequence[ParticipantState]],
    progress: Progress,
    *,
    unnamed_route_producers: Sequence[str] = (),
) -> FenceRecord:
    """Set the DENY bindings, with the intent written before, and wait until nobody provably writes to ``source``.

    ``exempt_principals`` (those of producers on the route) are never denied. ``observe_participants`` gives the
    state of every producer. Safe to repeat: after a restart the fence that was proven is proven again, against the
    same offsets.

    Raises ``FenceBroken`` when the source changed under it, ``DrainTimedOut`` when somebody still writes or a
    transaction is still open at ``settings.deadline_s``, ``Unreadable`` when something could not be read until
    then, ``AccessDenied`` at once when a right is missing. The bindings stay in each case; :func:`unfence` removes
    them.
    """
    row = journal.step(claim.migration_id, STEP)
    with _Reader(admin, source, clock) as reader:
        if row is None or row.state not in ("intended", "done"):
            row = _intend(admin, journal, claim, source, exempt_principals, unnamed_route_producers)
        data = row.data
        added = _acls(data["acls_added"])
        _create_missing(admin, added)
        for note in data["notes"]:
            progress(f"fence of {source}: {note}")
        if row.state == "done":
            record = FenceRecord.model_validate(data["record"])
            progress(f"fence of {source}: proving it again, against the offsets of {record.taken_at}")
            _prove(reader, journal, claim, clock, data, settings, observe_participants, progress, record)
            return record
        began = clock.now()
        tail = _prove(reader, journal, claim, clock, data, settings, observe_participants, progress, None)
        last = tail[-1]
        record = FenceRecord(
            topic=source,
            topic_id=data["topic_id"],
            partitions=data["partitions"],
            fence_offsets={p: o.end for p, o in sorted((last.offsets or {}).items()) if o.end is not None},
            began_at=began.isoformat(),
            taken_at=datetime.fromtimestamp(last.ended, UTC).isoformat(),
            settings=settings,
            samples=evidence(tail, began.timestamp()),
            acls_before=_acls(data["acls_before"]),
            acls_added=list(added),
            exempt_principals=data["exempt_principals"],
            notes=data["notes"],
            producers=list(last.producers or ()),
            stopped=[s.name for s in last.stops or ()],
        )
        journal.finish(claim, STEP, {"record": record.model_dump(mode="json")})
        progress(f"fence of {source}: proven at {record.records:,} over {record.partitions} partitions")
        return record


def recheck(admin: ClusterAdmin, record: FenceRecord, clock: Clock | None = None) -> None:
    """Compare the source with its fence, just before an act. Cheap: one description and the offsets.

    Raises ``FenceBroken`` naming partition, count, rate and producers where records came after the fence (or the
    topic is another one), ``Unreadable`` where it cannot be told.
    """
    with _Reader(admin, record.topic, clock) as reader:
        sample = reader.sample(None, ())
        violations = compare(record, sample, at=reader.now())
        if not violations:
            return
        if any(v.kind is Broken.GROWN for v in violations):
            # Without the right to see producers the break stands all the same, only without a name.
            with contextlib.suppress(AccessDenied):
                named = reader.sample(None, (), producers=range(record.partitions))
                if named.offsets is not None:
                    violations = compare(record, named, at=reader.now()) or violations
    _raise(record, violations)


def rehearse(admin: ClusterAdmin, source: str) -> None:
    """Ask everything that the fence will ask, once, while producers still run: connections are open and warm after.

    Raises ``AccessDenied`` for a right that would be missed inside the freeze, ``NotFound`` for a missing source,
    ``Unreadable`` for what no broker answers. Changes nothing.
    """
    seen = admin.topic(source)
    if seen is None:
        raise NotFound(f"topic {source} does not exist, so there is nothing to fence. Check the name.")
    admin.acls()
    with _Reader(admin, source, None) as reader:
        sample = reader.sample(None, (), producers=range(seen.partitions))
    if sample.errors:
        text = "; ".join(f"{what}: {why}" for what, why in sample.errors.items())
        raise Unreadable(f"The fence of {source} could not be proven now: {text}. Nothing was changed.")


def unfence(admin: ClusterAdmin, journal: Journal, claim: Claim, source: str) -> tuple[Acl, ...]:
    """Remove exactly the bindings that the fence added, and return them. Nothing to do where no fence was begun.

    Idempotent, and right after a kill at any point: the intent names the bindings that were not there before.
    Raises ``Refused`` for a fence of another topic, ``Unreadable`` when the bindings still show afterwards.
    """
    row = journal.step(claim.migration_id, STEP)
    if row is None or row.state not in ("intended", "done"):
        return ()
    if row.data["topic"] != source:
        raise Refused(f"The fence of this migration is on {row.data['topic']}, not on {source}. Nothing was changed.")
    added = _acls(row.data["acls_added"])
    if added:
        admin.delete_acls(added)
        if set(added) & admin.acls():
            raise Transient(
                f"DENY bindings on {source} are still shown after their deletion. Producers may still be denied. "
                "Run it again."
            )
    journal.finish(claim, STEP, {"removed": [asdict(a) for a in added]}, state="undone")
    return tuple(added)


# ------------------------------------------------------------------------------------------------ inner part


def _intend(
    admin: ClusterAdmin,
    journal: Journal,
    claim: Claim,
    source: str,
    exempt_principals: Iterable[str],
    unnamed_route_producers: Sequence[str],
) -> StepRow:
    topic = admin.topic(source)
    if topic is None:
        raise NotFound(f"topic {source} does not exist, so there is nothing to fence. Check the name.")
    acls = admin.acls()
    exempt_principals = sorted(set(exempt_principals))
    producers = [RouteProducer(p, p) for p in exempt_principals]
    producers += [RouteProducer(name, None) for name in unnamed_route_producers]
    plan = deny_bindings(acls, source, producers)
    return journal.intend(
        claim,
        STEP,
        {
            "topic": source,
            "topic_id": topic.topic_id,
            "partitions": topic.partitions,
            "acls_before": [asdict(a) for a in concerning(acls, source)],
            "acls_added": [asdict(a) for a in plan.bindings],
            "exempt_principals": exempt_principals,
            "notes": list(plan.notes),
            "record": None,
        },
    )


def _create_missing(admin: ClusterAdmin, added: Sequence[Acl]) -> None:
    if added:
        admin.create_acls(added)


def _acls(rows: Iterable[Mapping[str, Any]]) -> list[Acl]:
    return [Acl(**row) for row in rows]


def _prove(
    reader: _Reader,
    journal: Journal,
    claim: Claim,
    clock: Clock,
    data: Mapping[str, Any],
    settings: FenceSettings,
    observe_participants: Callable[[], Sequence[ParticipantState]],
    progress: Progress,
    record: FenceRecord | None,
) -> list[FenceSample]:
    """Sample until fenced; returns the samples that prove it, or raises."""
    source, partitions = str(data["topic"]), int(data["partitions"])
    added = tuple(_acls(data["acls_added"]))
    deadline = clock.now().timestamp() + settings.deadline_s
    series: list[FenceSample] = []
    in_force = not added
    said = ""
    while True:
        sample = reader.sample(observe_participants, () if in_force else added, producers=range(partitions))
        in_force = in_force or sample.deny_missing == ()
        series.append(sample)
        # The first one stays: it tells what the topic was when this began.
        series = series[:1] + [s for s in series[1:] if sample.ended - s.ended <= 2 * settings.settle_s + _KEEP_S]
        if record is not None:
            broken = [v for v in compare(record, sample, at=clock.now()) if v.kind is not Broken.UNREADABLE]
            if broken:
                _raise(record, broken)
        decision = decide_fence(
            series,
            settings,
            topic=source,
            topic_id=str(data["topic_id"]),
            partitions=partitions,
            now_ms=int(clock.now().timestamp() * 1000),
        )
        if decision.verdict is FenceVerdict.FENCED:
            return settled_tail(series, partitions)
        text = "; ".join(decision.reasons)
        if decision.verdict is FenceVerdict.BROKEN:
            journal.event(claim, "fence_broken", "topicshift", decision.model_dump(mode="json"))
            raise FenceBroken(
                f"No fence on {source}: {text}. Nothing was switched. Find out who did this, and plan again."
            )
        signals = "; ".join(w.signal for w in decision.waits_for)
        if signals != said:
            progress(f"fence of {source}: {text}")
            said = signals
        if clock.now().timestamp() >= deadline:
            journal.event(claim, "fence_not_proven", "topicshift", decision.model_dump(mode="json"))
            _give_up(source, decision, settings, text)
        clock.sleep(settings.poll_s)


def _give_up(source: str, decision: FenceDecision, settings: FenceSettings, text: str) -> None:
    if decision.verdict is FenceVerdict.UNKNOWN:
        raise Unreadable(
            f"Whether {source} is fenced could not be told within {settings.deadline_s:g} s: {text}. Unknown never "
            "counts as fenced. Make what is named readable, and start again."
        )
    raise DrainTimedOut(
        f"{source} could not be fenced within {settings.deadline_s:g} s: {text}. Records may still be written to it, "
        "so nothing was switched. Stop whoever is named, and start again."
        + (
            " A new run waits for open transactions before anybody is stopped (stop_producers.transactions), and "
            "offers one that hangs to a person to abort."
            if decision.transactions
            else ""
        )
    )


def _raise(record: FenceRecord, violations: Sequence[Violation]) -> None:
    text = "; ".join(v.text for v in violations)
    if all(v.kind is Broken.UNREADABLE for v in violations):
        raise Unreadable(
            f"Whether the fence of {record.topic} still holds cannot be told: {text}. Unknown never counts as fenced."
        )
    raise FenceBroken(
        f"The fence of {record.topic}, taken at {record.taken_at}, is broken: {text}. Every certificate that rests "
        "on it is void and nothing further was switched. Stop the writer that is named, then start again."
    )


class _Reader:
    """Reads samples: all questions of one at the same time."""

    def __init__(self, admin: ClusterAdmin, topic: str, clock: Clock | None) -> None:
        self._admin = admin
        self._topic = topic
        self._clock = clock
        self._pool = concurrent.futures.ThreadPoolExecutor(6, thread_name_prefix="topicshift-fence")

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def now(self) -> datetime:
        return self._clock.now() if self._clock is not None else datetime.now(UTC)

    def sample(
        self,
        participants: Callable[[], Sequence[ParticipantState]] | None,
        deny: tuple[Acl, ...],
        *,
        producers: Iterable[int] | None = None,
    ) -> FenceSample:
        """One sample. Without ``producers`` (partitions) only the topic and its offsets are read.

        Raises ``AccessDenied`` at once: waiting does not bring a right.
        """
        began = self.now().timestamp()
        admin, topic = self._admin, self._topic
        wide = producers is not None
        partitions = list(producers or ())
        described = self._pool.submit(admin.topic, topic)
        offsets = self._pool.submit(admin.offsets, topic)
        remembered = self._pool.submit(admin.producers, topic, partitions) if wide else None
        transactions = self._pool.submit(admin.transactions, topic) if wide else None
        stops = self._pool.submit(participants) if participants is not None else None
        acls = self._pool.submit(admin.acls) if deny else None
        errors: dict[str, str] = {}
        info = self._get(described, "topic", errors)
        read = self._get(offsets, "offsets", errors)
        seen_producers = self._get(remembered, "producers", errors)
        seen_transactions = self._get(transactions, "transactions", errors)
        states = self._get(stops, "participants", errors)
        bindings = self._get(acls, "acls", errors)
        missing: tuple[Acl, ...] | None = ()
        if deny:
            missing = None if bindings is None else tuple(a for a in deny if a not in bindings)
        return FenceSample(
            began=began,
            ended=self.now().timestamp(),
            topic_id=info.topic_id if info is not None else None,
            offsets=read,
            producers=None if seen_producers is None else tuple(seen_producers),
            transactions=None if seen_transactions is None else tuple(seen_transactions),
            stops=None if states is None else tuple(Stop(s.participant.name, s.status, s.reason) for s in states),
            deny_missing=missing,
            errors=errors,
            gone=info is None and "topic" not in errors,
        )

    def _get(self, future: concurrent.futures.Future[_T] | None, what: str, errors: dict[str, str]) -> _T | None:
        if future is None:
            return None
        try:
            return future.result()
        except AccessDenied:
            raise
        except (NotFound, Unreadable) as exc:
            errors[what] = str(exc)
            return None
        except TopicshiftError:
            raise
