"""Operators between fence and switch: the gate, the drain, and the verifier's answer."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topicshift.acts.fence import rehearse
from topicshift.acts.on_record import require_target
from topicshift.acts.participants import consumers_of, current_freeze, describe, producers_of, require_lease
from topicshift.core.drain.certificate import Verdict
from topicshift.core.errors import DrainTimedOut, FenceBroken, GuardViolated, Transient, Unreadable
from topicshift.core.spec.model import Cutover
from topicshift_airflow.operators.base import StepOperator
from topicshift_airflow.operators.cutover import (
    SWITCHED,
    freeze_deadline,
    group_switched,
    kinds,
    people,
    read_fence,
    recheck,
    require_time_to_begin,
    skip_unless,
    switched,
    too_late,
)
from topicshift_airflow.operators.names import certificate_name, file_name, suffix, verification_name
from topicshift_airflow.operators.spark import work_folder
from topicshift_airflow.runtime import Run, open_run, typed_failures

if TYPE_CHECKING:
    from topicshift.core.drain.certificate import DrainCertificate

ALL = "all"
DRAIN_PATIENCE = timedelta(days=2)
"""For ``producers_first``, where nobody stands still while a group drains."""


def requests_folder(migration_id: str) -> Path:
    """Certificates for the armed verifier, one file each; ``ready.json``, ``done`` and ``abort`` lie there too."""
    return work_folder() / migration_id / "requests"


def answers_folder(migration_id: str) -> Path:
    """The armed verifier's answers."""
    return work_folder() / migration_id / "answers"


def put(path: Path, data: bytes) -> None:
    """Write a file that another process waits for: it is there whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(data)
    part.replace(path)


def drain_inputs(run: Run, consumer: str = "") -> dict[str, Any]:
    """What is certified: every declared group, or one. Plain values, for a trigger."""
    from topicshift.acts.drain_inputs import DrainInputs

    inputs = DrainInputs.from_spec(run.spec, consumer=consumer).values()
    return {**inputs, "topic": run.row.source, "readers": [r.model_dump(mode="json") for r in run.spec.readers]}


def raise_for(event: Mapping[str, Any]) -> None:
    """The error that a trigger has met, as the step's own."""
    if event.get("status") == "error":
        raise (Transient if event.get("retryable") else Unreadable)(str(event.get("message")))


def past_drain(run: Run, consumer: str = "") -> bool:
    """Whether what this certificate is for has happened: the switch of the producers, or of one consumer's group."""
    if not consumer:
        return switched(run)
    return any(group_switched(run, c.group) for c in run.spec.consumers if c.name == consumer)


class Deferring(StepOperator):
    """A step that waits in the triggerer and takes another look when it is woken."""

    def resume(self, context: Any, event: dict[str, Any]) -> Any:
        """Called with the trigger's event."""
        with typed_failures(context), open_run(context) as run:
            raise_for(event)
            return self.woken(run, context, event)

    def woken(self, run: Run, context: Mapping[str, Any], event: Mapping[str, Any]) -> Any:
        """Take the look."""
        raise NotImplementedError


class ReadyToFence(Deferring):
    """The gate before the freeze. Holds no worker while it waits."""

    def step(self, run: Run, context: Mapping[str, Any]) -> Any:
        """Lengthen the retention where records could expire before they are read; then wait."""
        from topicshift.acts.retention import lengthen_retention
        from topicshift.adapters.kafka.reader import KafkaDrainReader

        if switched(run):
            return SWITCHED
        reader = KafkaDrainReader.from_config(run.config)
        try:
            lines = lengthen_retention(run.admin, reader, run.journal, run.claim, run.row.source, run.spec, run.clock)
        finally:
            reader.connection.close()
        for line in lines:
            run.progress(line)
        # Route clients can only report once their topics exist.
        run.cast(kinds([*producers_of(run.spec), *consumers_of(run.spec)])).prepare()
        return self._wait(run, context)

    def _wait(self, run: Run, context: Mapping[str, Any], pause_s: float = 1.0) -> Any:
        from topicshift_airflow.triggers.drain import GateTrigger

        self.defer(
            trigger=GateTrigger(
                kafka_conn_id=run.spec.kafka_conn_id,
                migration_id=run.row.migration_id,
                inputs=drain_inputs(run),
                deadline=freeze_deadline(run, context).timestamp(),
                budget_s=run.spec.freeze_budget.total_seconds(),
                ready_file=str(requests_folder(run.row.migration_id) / "ready.json"),
                ended_file=str(answers_folder(run.row.migration_id) / "verifier.json"),
                pause_s=pause_s,
            ),
            method_name="resume",
        )

    def woken(self, run: Run, context: Mapping[str, Any], event: Mapping[str, Any]) -> Any:
        """Every participant must answer as well; if one does not, the gate is waited at again."""
        deadline = freeze_deadline(run, context)
        if event["status"] == "deadline":
            raise too_late(deadline, "; ".join(event.get("waits", [])))
        require_time_to_begin(run, context, "; ".join(event.get("waits", [])))
        everybody = [*producers_of(run.spec), *consumers_of(run.spec)]
        cast = run.cast(kinds(everybody))
        manual = people(cast, everybody)
        states = cast.observe([p for p in everybody if p not in manual])
        bad = [s for s in states if s.status != "running"]
        if bad:
            run.progress(f"not ready for the fence: {describe(bad)}")
            return self._wait(run, context, pause_s=4.0)
        require_target(run.admin, run.journal, run.row)
        rehearse(run.admin, run.row.source)
        return dict(event)


class Drain(Deferring):
    """Wait for the drain certificate: of every group, or of one (``consumer``) with ``producers_first``."""

    template_fields = ("consumer",)

    def __init__(self, *, cutover: Cutover | None = None, consumer: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cutover = cutover
        self.consumer = consumer

    def step(self, run: Run, context: Mapping[str, Any]) -> Any:
        """Take a certificate at once; wait only if it is not drained yet."""
        skip_unless(run, self.cutover)
        if past_drain(run, self.consumer):
            return SWITCHED
        return self._look(run)

    def woken(self, run: Run, context: Mapping[str, Any], event: Mapping[str, Any]) -> Any:
        """Take the certificate anew: what the trigger has seen is a moment old."""
        if event["status"] == "deadline":
            raise DrainTimedOut(
                f"Not every group has drained {run.row.source} in the time allowed: {event.get('left')}. "
                f"Producers go back to the source. What to do: {event.get('why')}"
                + "".join(f" Alarm: {text}" for text in event.get("alarms", ()))
            )
        return self._look(run)

    def _look(self, run: Run) -> Any:
        from topicshift.acts.drain import take_certificate
        from topicshift.adapters.kafka.reader import KafkaDrainReader
        from topicshift_airflow.triggers.drain import DrainTrigger, inputs_of

        fence = read_fence(run)
        inputs = drain_inputs(run, self.consumer)
        reader = KafkaDrainReader.from_config(run.config)
        try:
            certificate = take_certificate(
                reader,
                inputs_of(inputs, readers=True),
                fence=fence.point,
                now=run.clock.now,
                issued_by=run.owner,
            )
        finally:
            reader.connection.close()
        if certificate.verdict is Verdict.DRAINED:
            return self._drained(run, certificate)
        recheck(run)
        deadline = run.clock.now() + DRAIN_PATIENCE
        if self.cutover is Cutover.DRAIN_FIRST:
            deadline = require_lease(current_freeze(run.journal, run.claim), run.clock, "draining").act_until
        self.defer(
            trigger=DrainTrigger(
                kafka_conn_id=run.spec.kafka_conn_id,
                migration_id=run.row.migration_id,
                inputs=inputs,
                deadline=deadline.timestamp(),
                progress_name=f"drain_progress{suffix(self.consumer)}.json",
                owner=run.owner,
                epoch=run.claim.epoch,
                alarm_after_s=run.spec.alarm_after.total_seconds(),
            ),
            method_name="resume",
        )
        return None

    def _drained(self, run: Run, certificate: DrainCertificate) -> Any:
        data = certificate.model_dump_json(indent=2).encode()
        self.evidence_url = run.write(certificate_name(self.consumer), data)
        put(requests_folder(run.row.migration_id) / f"{file_name(self.consumer or ALL)}.certificate.json", data)
        run.event("drained", {"groups": [g.group for g in certificate.groups], "taken_at": certificate.taken_at})
        return {"verdict": certificate.verdict.value, "groups": [g.group for g in certificate.groups]}


class ConfirmDrain(StepOperator):
    """Take the armed verifier's answer to this certificate, and compare the source with the fence once more."""

    template_fields = ("consumer",)

    def __init__(self, *, cutover: Cutover | None = None, consumer: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cutover = cutover
        self.consumer = consumer

    def step(self, run: Run, context: Mapping[str, Any]) -> Any:
        """Wait for the answer to exactly this certificate; only *verified* lets the run go on."""
        skip_unless(run, self.cutover)
        if past_drain(run, self.consumer):
            return SWITCHED
        question = run.read(certificate_name(self.consumer))
        answer = self._answer(run, question)
        verdict = answer.get("verdict")
        self.evidence_url = run.write(verification_name(self.consumer), json.dumps(answer, indent=2))
        run.event("verified", {"verdict": verdict, "consumer": self.consumer or ALL, "seconds": answer.get("seconds")})
        if verdict == "fence_broken":
            raise FenceBroken(f"Spark found the source written to after the fence: {answer.get('reason')}")
        if verdict == "not_drained":
            raise GuardViolated(
                f"The certificate says drained, but Spark found records left to read: {answer.get('reason')}. Nothing "
                "is switched. Keep drain_certificate.json and drain_verification.json, and look at the groups named."
            )
        if verdict != "verified":
            raise Unreadable(f"The drain could not be verified by reading: {answer.get('reason')}")
        recheck(run)
        self._release_verifier(run)
        return {"verdict": verdict, "seconds": answer.get("seconds")}

    def _answer(self, run: Run, question: bytes) -> dict[str, Any]:
        wanted = hashlib.sha256(question).hexdigest()
        name = file_name(self.consumer or ALL)
        request = requests_folder(run.row.migration_id) / f"{name}.certificate.json"
        if not request.exists() or request.read_bytes() != question:
            put(request, question)
        path = answers_folder(run.row.migration_id) / f"{name}.verification.json"
        ended = answers_folder(run.row.migration_id) / "verifier.json"
        deadline = run.clock.now() + timedelta(minutes=10)
        if self.cutover is Cutover.DRAIN_FIRST:
            deadline = require_lease(current_freeze(run.journal, run.claim), run.clock, "verifying").act_until
        while True:
            if path.exists():
                answer: dict[str, Any] = json.loads(path.read_bytes())
                if answer.get("question") == wanted:
                    return answer
            if ended.exists():
                raise Unreadable(
                    "The armed verifier has ended before it answered; see the log of verify_drain.drain_verification."
                )
            if run.clock.now() >= deadline:
                raise DrainTimedOut(
                    "The armed verifier did not answer in time; see the log of verify_drain.drain_verification. "
                    "Nothing was switched on the strength of the certificate alone."
                )
            run.clock.sleep(0.05)

    def _release_verifier(self, run: Run) -> None:
        """Let the verifier end once it has answered for everybody."""
        if self.consumer:
            names = {verification_name(c.name) for c in run.spec.consumers}
            if not names <= set(run.evidence.names(run.row.migration_id)):
                return
        put(requests_folder(run.row.migration_id) / "done", b"")


def end_verifier(migration_id: str) -> None:
    """Call the armed verifier off: the run does not go on."""
    put(requests_folder(migration_id) / "abort", b"")


def arm(migration_id: str) -> tuple[Path, Path]:
    """Fresh folders for the armed verifier: what an earlier try left there to end it is taken away."""
    requests, answers = requests_folder(migration_id), answers_folder(migration_id)
    for folder in (requests, answers):
        folder.mkdir(parents=True, exist_ok=True)
    for stale in (requests / "done", requests / "abort", requests / "ready.json", answers / "verifier.json"):
        stale.unlink(missing_ok=True)
    return requests, answers
