"""Verify a drain by reading: does any record lie unread between a group's committed offset and the fence?

Usage (with ``spark-submit --jars ...``, the jars of ``build/jars/spark``)::

    drain_verification.py --certificate FILE --output DIR (--bootstrap-server HOST:PORT | --kafka-config FILE)
    drain_verification.py --armed --topic T --requests DIR --deadline SECONDS --output DIR ...

The certificate is that of ``topicshift drain --json`` (topic, topic id, fence offsets, committed offsets). The ranges
of all groups are merged, each offset is read once, with read_committed; then END_U and the topic id are asked again.
The answer is ``DIR/drain_verification.json``; exit code 0 verified, 3 not drained or written to after the fence, 4
unknown, 2 wrong use.

**Armed**, the job is submitted before the fence: it starts its session, reads a few records so that classes and
connections are warm, writes ``ready.json`` into ``--requests``, and waits; it writes the file ``alive`` there every two
seconds, so that a job that was killed is told from one that is at work. Each ``NAME.certificate.json`` that appears
in ``--requests`` is answered as ``NAME.verification.json`` in ``--output``, and again when its content changes. So no
JVM starts inside the freeze. The file ``done`` in ``--requests`` ends the job (exit code 0), the file ``abort`` or the
deadline end it with 4; ``verifier.json`` in ``--output`` says which, and what was answered.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError
from pyspark.sql import SparkSession

from topicshift.core.drain.certificate import DrainCertificate
from topicshift.core.drain.decision import in_doubt
from topicshift.core.errors import NotFound, SpecError, TopicshiftError, Unreadable
from topicshift.core.proof.verification import (
    Answer,
    DrainVerification,
    ReadPlan,
    decide,
    no_answer,
    read_plans,
    snapshot_of,
    with_later_ends,
)
from topicshift_spark.files import Folder
from topicshift_spark.offsets import OffsetsProbe
from topicshift_spark.requests import heartbeat, mark_of, owner_alive, serve
from topicshift_spark.result import first_cause, prepare_folder, run
from topicshift_spark.session import get_session
from topicshift_spark.source import Cluster, client_properties
from topicshift_spark.tails import count_segments

RESULT = "drain_verification.json"
READY = "ready.json"
READY_SCHEMA = "topicshift/verifier-ready/v1"
SESSION_RESULT = "verifier.json"
SESSION_SCHEMA = "topicshift/verifier/v1"
_WARM_OFFSETS = 100
_SETTINGS = {
    "spark.ui.enabled": "false",
    # The only shuffle carries one row a segment; more reducers, or a second look at the plan, only cost time.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
}


@dataclass(frozen=True)
class Question:
    """A certificate to verify, and the SHA-256 of the bytes it came in."""

    certificate: DrainCertificate
    digest: str


def parse_question(data: bytes, where: str) -> Question:
    """Read a certificate. Raises ``SpecError`` that names the place and the first thing that is wrong."""
    try:
        certificate = DrainCertificate.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(p) for p in first["loc"]) or "the file"
        raise SpecError(
            f"{where} is not a drain certificate: {place}: {first['msg']}. "
            "Give the JSON that `topicshift drain --json` prints."
        ) from error
    return Question(certificate, hashlib.sha256(data).hexdigest())


def answer(
    spark: SparkSession,
    properties: Mapping[str, str],
    question: Question,
    *,
    probe: OffsetsProbe | None = None,
    cluster: Cluster | None = None,
    timeout_s: float = 15.0,
) -> DrainVerification:
    """Verify one certificate against the broker. Never raises for what the broker or the read does: it is *unknown*.

    ``probe`` (of the same topic) or ``cluster`` save the set-up when the session is asked more than once.
    """
    started = time.monotonic()
    certificate = question.certificate
    own = None
    try:
        if probe is None:
            own = None if cluster is not None else Cluster(spark, properties, timeout_s)
            probe = OffsetsProbe(cluster or own, certificate.topic)  # type: ignore[arg-type]
        return _verify(spark, properties, question, probe, started)
    except TopicshiftError as error:
        return no_answer(
            Answer.UNKNOWN,
            str(error),
            topic=certificate.topic,
            now=datetime.now(UTC),
            certificate=certificate,
            question=question.digest,
            seconds=round(time.monotonic() - started, 3),
        )
    finally:
        if own is not None:
            own.close()


def _verify(
    spark: SparkSession,
    properties: Mapping[str, str],
    question: Question,
    probe: OffsetsProbe,
    started: float,
) -> DrainVerification:
    certificate = question.certificate
    topic = probe.topic()
    snapshot = snapshot_of(
        certificate,
        topic_id=topic.topic_id if topic is not None else None,
        partitions=len(topic.partitions) if topic is not None else 0,
        offsets=probe.offsets(topic) if topic is not None else {},
        now=datetime.now(UTC),
    )
    doubts = in_doubt(snapshot)
    plans = read_plans(doubts)
    found, error = {}, None
    try:
        found = count_segments(spark, properties, certificate.topic, plans)
    except Exception as failure:  # noqa: BLE001 - whatever Spark or Kafka throws, the tail was not read
        error = first_cause(failure)
    later = probe.topic()
    snapshot = with_later_ends(
        snapshot,
        later.topic_id if later is not None else None,
        probe.offsets(later) if later is not None else {},
    )
    return decide(
        snapshot,
        doubts,
        plans,
        found,
        error=error,
        seconds=round(time.monotonic() - started, 3),
        question=question.digest,
        certificate_taken_at=certificate.taken_at,
    )


def warm_up(spark: SparkSession, properties: Mapping[str, str], topic: str, probe: OffsetsProbe) -> int:
    """Do once, on a few records, all that the answer will do; returns the number of records read.

    Both forms of the query run: one start a partition (the usual case) and several (groups at different offsets).
    Raises ``NotFound`` for a missing topic, ``Unreadable`` if the source cannot be read.
    """
    described = probe.topic()
    if described is None:
        raise NotFound(f"Topic {topic} does not exist (or this user may not see it). Check --topic.")
    plans: dict[int, ReadPlan] = {}
    for p, seen in probe.offsets(described).items():
        if seen.log_start is None or seen.end_committed is None:
            raise Unreadable(f"Partition {p} of {topic} could not be read: {seen.error}")
        start = max(seen.log_start, seen.end_committed - _WARM_OFFSETS)
        if start < seen.end_committed:
            plans[p] = ReadPlan(p, (start,), seen.end_committed)
    if not plans:
        return 0
    split = {
        p: ReadPlan(p, (plan.starts[0], plan.stop - 1) if plan.stop - plan.starts[0] > 1 else plan.starts, plan.stop)
        for p, plan in plans.items()
    }
    try:
        count_segments(spark, properties, topic, split)
        return sum(s.records for s in count_segments(spark, properties, topic, plans).values())
    except Exception as failure:
        raise Unreadable(f"A few records of {topic} could not be read: {first_cause(failure)}") from failure


def _say(result: DrainVerification) -> None:
    print(f"{result.verdict.value}: {result.reason or 'every group has read everything up to the fence'}", flush=True)


def _armed(args: argparse.Namespace, properties: Mapping[str, str]) -> int:
    began, alive = time.monotonic(), owner_alive()
    spark = get_session("topicshift drain_verification (armed)", _SETTINGS)
    requests, output = Folder(args.requests, spark), Folder(args.output, spark)
    armed = mark_of(requests)
    answered: dict[str, str] = {}
    with Cluster(spark, properties, args.timeout) as cluster:
        probe = OffsetsProbe(cluster, args.topic)
        warmed = warm_up(spark, properties, args.topic, probe)

        def reply(name: str, content: bytes, last_try: bool) -> bool:
            try:
                question = parse_question(content, f"{name}.certificate.json")
            except SpecError as error:
                if not last_try:
                    return False
                digest = hashlib.sha256(content).hexdigest()
                result = no_answer(Answer.UNKNOWN, str(error), topic=args.topic, now=datetime.now(UTC), question=digest)
            else:
                same = probe if question.certificate.topic == args.topic else None
                result = answer(spark, properties, question, probe=same, cluster=cluster, timeout_s=args.timeout)
            output.write(f"{name}.verification.json", result.model_dump_json(indent=1) + "\n")
            answered[name] = result.verdict.value
            _say(result)
            return True

        state = {
            "schema": READY_SCHEMA,
            "topic": args.topic,
            "pid": os.getpid(),
            "ready_at": datetime.now(UTC).isoformat(),
            "seconds": round(time.monotonic() - began, 3),
            "records_read": warmed,
            "requests": args.requests,
            "output": args.output,
            "deadline_s": args.deadline,
        }
        with heartbeat(requests):
            requests.write(READY, json.dumps(state, indent=1) + "\n")
            print(f"ready: certificates are answered that come to {args.requests}", flush=True)
            left = max(0.0, args.deadline - (time.monotonic() - began))
            end = serve(requests, reply, seconds=left, alive=alive, armed=armed)
    summary = {
        "schema": SESSION_SCHEMA,
        "verdict": end.value,
        "topic": args.topic,
        "ended_at": datetime.now(UTC).isoformat(),
        "answers": answered,
        **({} if armed is None else {"armed": armed}),
    }
    output.write(SESSION_RESULT, json.dumps(summary, indent=1) + "\n")
    print(f"{end.value}: {len(answered)} certificates answered", flush=True)
    return end.exit_code


def _once(args: argparse.Namespace, properties: Mapping[str, str]) -> int:
    try:
        question = parse_question(Path(args.certificate).read_bytes(), args.certificate)
    except OSError as error:
        raise SpecError(f"--certificate {args.certificate} cannot be read: {error.strerror}.") from error
    if args.topic and args.topic != question.certificate.topic:
        raise SpecError(
            f"--topic {args.topic}: the certificate speaks of topic {question.certificate.topic}. Leave --topic out."
        )
    spark = get_session("topicshift drain_verification", _SETTINGS)
    result = answer(spark, properties, question, timeout_s=args.timeout)
    Folder(args.output).write(RESULT, result.model_dump_json(indent=1) + "\n")
    _say(result)
    return result.exit_code


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="drain_verification.py", description=(__doc__ or "").split("\n\n", 1)[0])
    kafka = parser.add_argument_group("Kafka")
    kafka.add_argument("--bootstrap-server", metavar="HOST:PORT", help="address of a broker")
    kafka.add_argument("--kafka-config", metavar="FILE", help="client properties; secrets belong here")
    kafka.add_argument(
        "--timeout", type=float, default=15.0, metavar="SECONDS", help="for each question to the broker (15)"
    )
    parser.add_argument("--certificate", metavar="FILE", help="verify this certificate and end")
    parser.add_argument("--output", metavar="DIR", required=True, help=f"folder for {RESULT}")
    parser.add_argument("--topic", metavar="T", help="the source topic (armed: needed to warm up)")
    armed = parser.add_argument_group("armed")
    armed.add_argument("--armed", action="store_true", help="get ready before the fence and wait for certificates")
    armed.add_argument("--requests", metavar="DIR", help="answer each NAME.certificate.json that appears here")
    armed.add_argument("--deadline", type=float, metavar="SECONDS", help="end after so long, whatever is unanswered")
    return parser


def check(args: argparse.Namespace) -> None:
    """Raise ``SpecError`` for options that do not go together."""
    if args.armed:
        missing = [n for n in ("topic", "requests", "deadline") if getattr(args, n) in (None, "")]
        if missing:
            raise SpecError(f"--armed also needs {', '.join('--' + n for n in missing)}.")
        if args.certificate:
            raise SpecError("--certificate and --armed exclude each other: armed, certificates come to --requests.")
        if not 0 < args.deadline <= 30 * 86400:
            raise SpecError(f"--deadline {args.deadline:g}: give seconds, more than 0 and at most 30 days.")
    elif not args.certificate:
        raise SpecError("Nothing to verify: give --certificate FILE, or --armed with --requests DIR.")
    if not 0 < args.timeout <= 600:
        raise SpecError(f"--timeout {args.timeout:g}: give seconds, more than 0 and at most 600.")


def main(argv: Sequence[str]) -> int:
    """Run the job; returns its exit code. Raises ``TopicshiftError`` for wrong use and for a failed warm-up."""
    args = arguments().parse_args(argv)
    check(args)
    properties = client_properties(args.kafka_config, args.bootstrap_server)
    if args.armed:
        return _armed(args, properties)
    (prepare_folder(args.output) / RESULT).unlink(missing_ok=True)
    return _once(args, properties)


if __name__ == "__main__":
    run(main)
