"""The engine's vocabulary: steps, states, acts, questions and facts, each as one enum.

Journal rows, Airflow's task groups, the command line and the report all use these words.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from topicshift.core.spec.cutover import Cutover


class MigrationState(StrEnum):
    """State of a migration as a whole. Every state but ``open`` gives both topics free once nothing is in effect."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"
    ROLLED_BACK = "rolled_back"
    RETIRED = "retired"
    REHEARSED = "rehearsed"
    """A rehearsal is over: nothing of it is left but its evidence."""


class StepState(StrEnum):
    """State of one journal row. ``intended``, ``done`` and ``undoing`` mean that the step is in effect."""

    INTENDED = "intended"
    """The intent is written; the act may have happened in part."""
    DONE = "done"
    UNDOING = "undoing"
    """The step is being taken back; it is still in effect, in whole or in part. A freeze in this state still runs."""
    UNDONE = "undone"
    """The step was taken back; nothing of it is in effect."""

    @property
    def in_effect(self) -> bool:
        """Whether something of the step may be in effect."""
        return self is not StepState.UNDONE


class Row(StrEnum):
    """Names of journal rows. A row about one consumer group is named ``row:group``, see :func:`row_of`."""

    CHECK = "check"
    CREATE_TARGET = "create_target"
    BEFORE = "before"
    ARM = "arm"
    LENGTHEN_RETENTION = "lengthen_retention"
    FREEZE = "freeze"
    STOP_PRODUCERS = "stop_producers"
    FENCE = "fence"
    FENCE_AGAIN = "fence_again"
    CERTIFICATE = "certificate"
    VERIFICATION = "verification"
    SWITCH_PRODUCERS = "switch_producers"
    WIDE_DENY = "wide_deny"
    TARGET_DENY = "target_deny"
    FIRST_DENY = "first_deny"
    """No row of the journal: both DENYs of the way forward, as the way back has to lift them."""
    SWITCH_GROUP = "switch_consumer"
    ORDER_PROOF = "order_proof"
    REPLAY = "replay"
    SHADOW = "shadow"
    """The topics and groups of a rehearsal: nothing of the migration itself."""
    ROLLBACK = "rollback"
    SCREAM_TEST = "scream_test"
    DELETE_SOURCE = "delete_source"
    WATCH = "watch"
    QUESTION = "ask"
    PAUSE = "pause"
    POSTPONE = "postpone"


READ_ONLY_ROWS: Final = frozenset(
    {
        *(Row.CHECK, Row.BEFORE, Row.CERTIFICATE, Row.VERIFICATION, Row.ORDER_PROOF, Row.WATCH, Row.QUESTION),
        *(Row.PAUSE, Row.POSTPONE, Row.SHADOW),
    }
)
"""Rows that record an observation, an answer or a person's order. Every other row changes something and makes its
migration active."""


DENIES: Final = frozenset({Row.FENCE, Row.WIDE_DENY, Row.TARGET_DENY})
"""Rows that set DENY bindings, on any way."""

_OF_A_WAY_BACK: Final = re.compile(r"back\d+\.")


def way_of(number: int) -> str:
    """What stands before the names of rows of the n-th way back, see :mod:`topicshift.core.engine.mirror`."""
    return f"back{number}."


def plain_name(step: str) -> str:
    """The name of a journal row without its way back."""
    return _OF_A_WAY_BACK.sub("", step, count=1) if _OF_A_WAY_BACK.match(step) else step


def row_of(row: Row, subject: str = "") -> str:
    """Journal name of a row, for one consumer group (or question) where ``subject`` is given."""
    return f"{row}:{subject}" if subject else str(row)


class Ask(StrEnum):
    """Questions to a person; each is answered for exactly what it was about."""

    PLAN = "approve.plan"
    ABORT_TRANSACTIONS = "stop_producers.transactions"
    FREEZE = "stop_producers.go"
    STOP_BY_HAND = "stop_producers.fence"
    CERTIFICATE = "switch_producers.switch"
    START_BY_HAND = "switch_producers.by_hand"
    STOP_GROUP = "switch_consumers.switch"
    STRAYS = "verify.strays"
    ROLLBACK = "rollback.approve"
    RETIRE = "retire.approve"


BY_HAND: Final = frozenset({Ask.STOP_BY_HAND, Ask.START_BY_HAND, Ask.STOP_GROUP})
"""Questions whether a person has done something."""

OF_A_MOMENT: Final = BY_HAND | {Ask.FREEZE, Ask.STRAYS}
"""Questions to which a no, or silence, is true of that moment ("not now"), so that they are asked again later."""


def mark_of(about: Any) -> str:
    """The mark of a question: eight hexadecimal digits that differ as soon as it is about something else."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:8]


class Act(StrEnum):
    """Everything that the engine may want done. One module of :mod:`topicshift.acts` performs each."""

    MAKE_SHADOW = "make_shadow"
    CHECK_PLAN = "check_plan"
    MEASURE_IMPACT = "measure_impact"
    DECIDE_PLAN = "decide_plan"
    CREATE_TARGET = "create_target"
    CAPTURE = "capture"
    ARM = "arm"
    MISS_WINDOW = "miss_window"
    ABORT_TRANSACTIONS = "abort_transactions"
    LENGTHEN_RETENTION = "lengthen_retention"
    START_VERIFIER = "start_verifier"
    BEGIN_FREEZE = "begin_freeze"
    STOP_PRODUCERS = "stop_producers"
    DENY = "deny"
    RECORD_FENCE = "record_fence"
    BEGIN_FENCE_AGAIN = "begin_fence_again"
    RECORD_FENCE_AGAIN = "record_fence_again"
    REPAIR_DENY = "repair_deny"
    REPAIR_TARGET = "repair_target"
    CERTIFY = "certify"
    REQUEST_VERIFICATION = "request_verification"
    READ_TAILS = "read_tails"
    RECORD_VERIFICATION = "record_verification"
    INTEND_SWITCH = "intend_switch"
    POINT_PRODUCERS = "point_producers"
    END_FREEZE = "end_freeze"
    WIDEN_DENY = "widen_deny"
    STOP_GROUP = "stop_group"
    RELEASE_GROUP = "release_group"
    SEED_GROUP = "seed_group"
    FINISH_GROUP = "finish_group"
    PROVE_ORDER = "prove_order"
    REPLAY = "replay"
    FINISH = "finish"
    BEGIN_RESUME = "begin_resume"
    GO_ON = "go_on"
    RESUME_PRODUCERS = "resume_producers"
    UNFENCE = "unfence"
    END_RESUME = "end_resume"
    BEGIN_ROLLBACK = "begin_rollback"
    STOP_ON_TARGET = "stop_on_target"
    DENY_TARGET = "deny_target"
    END_ROLLBACK = "end_rollback"
    OPEN_SOURCE = "open_source"
    SHUT_SOURCE = "shut_source"
    PAUSE_GROUP = "pause_group"
    CALL_OFF_BACK = "call_off_back"
    FINISH_BACK = "finish_back"
    RETURN_GROUP = "return_group"
    RESTORE_RETENTION = "restore_retention"
    DELETE_TARGET = "delete_target"
    DISARM = "disarm"
    FINISH_ROLLBACK = "finish_rollback"
    CLOSE_GONE = "close_gone"
    BEGIN_SCREAM = "begin_scream"
    END_SCREAM = "end_scream"
    DELETE_SOURCE = "delete_source"
    FINISH_RETIREMENT = "finish_retirement"


class Fact(StrEnum):
    """What a decision may have to ask of the world; asked all at once and in parallel."""

    PLAN = "plan"
    IMPACT = "impact"
    TARGET = "target"
    PRODUCERS = "producers"
    GROUPS = "groups"
    FENCE = "fence"
    PROOF = "proof"
    STILL = "still"
    DENY = "deny"
    DRAIN = "drain"
    VERIFIER = "verifier"
    TRANSACTIONS = "transactions"
    GATE = "gate"
    RETENTION = "retention"
    ORDER_PROOF = "order_proof"
    SOURCE = "source"
    POLICY = "policy"


class Step(StrEnum):
    """The steps of the protocol, by the names of the task groups."""

    PLAN = "plan"
    APPROVE = "approve"
    CREATE_TARGET = "create_target"
    STOP_PRODUCERS = "stop_producers"
    DRAIN = "drain"
    VERIFY_DRAIN = "verify_drain"
    SWITCH_PRODUCERS = "switch_producers"
    SWITCH_CONSUMERS = "switch_consumers"
    VERIFY = "verify"
    RETIRE = "retire"


def _order(cutover: Cutover) -> tuple[Step, ...]:
    steps = [step for step in Step if step is not Step.RETIRE]
    if cutover is Cutover.PRODUCERS_FIRST:
        steps.remove(Step.SWITCH_PRODUCERS)
        steps.insert(steps.index(Step.STOP_PRODUCERS) + 1, Step.SWITCH_PRODUCERS)
    return tuple(steps)


ORDER: Final[Mapping[Cutover, tuple[Step, ...]]] = {cutover: _order(cutover) for cutover in Cutover}
"""The steps of a migration in each order, left to right. The retirement follows days later, in a DAG of its own."""


@dataclass(frozen=True)
class StepDoc:
    """A step. README, task docs, plan, demo and report are generated from its words, and the rows follow from it.

    ``rows`` are its journal rows with what each is for a person. How far the first is says how far the step is.
    """

    what: str
    proof: str
    way_back: str
    waits_for: str
    rows: Mapping[Row, str] = field(default_factory=dict)


STEPS: Final[Mapping[Step, StepDoc]] = {
    Step.PLAN: StepDoc(
        "inventory, checks, sizing, key-rehash impact (Spark); changes nothing",
        "no finding of level error, nothing unknown",
        "nothing to undo",
        "the checks and the key-rehash impact",
        {Row.CHECK: "inventory and checks"},
    ),
    Step.APPROVE: StepDoc(
        "a person accepts exactly this plan, by its hash",
        "the recorded answer",
        "reject",
        "the answer to the plan",
    ),
    Step.CREATE_TARGET: StepDoc(
        "topic, configs, ACLs",
        "the topic as described equals the plan",
        "`topic_rollback` deletes it while it is empty",
        "the target as planned",
        {Row.CREATE_TARGET: "the target"},
    ),
    Step.STOP_PRODUCERS: StepDoc(
        "a gate waits until the drain would fit into the freeze budget, and a person says go; then every producer is "
        "stopped and writes to the source are denied",
        "every producer says stopped; ends stand still; no open transaction",
        "producers resume on the source",
        "every producer stopped, and the source standing still",
        {
            Row.FREEZE: "the freeze",
            Row.BEFORE: "what was there before",
            Row.ARM: "participants follow the route closely",
            Row.LENGTHEN_RETENTION: "longer retention of the source",
            Row.STOP_PRODUCERS: "producers stopped",
            Row.FENCE: "DENY and fence offsets",
        },
    ),
    Step.DRAIN: StepDoc(
        "waits in the triggerer, holding no worker",
        "a drain certificate for every group and partition",
        "producers resume on the source",
        "every group to read up to the fence",
        {Row.CERTIFICATE: "drain certificate"},
    ),
    Step.VERIFY_DRAIN: StepDoc(
        "Spark, armed before the fence, reads what is in doubt",
        "nothing left to read; the source still ends at the fence",
        "producers resume on the source",
        "the proof that nothing is left to read",
        {Row.VERIFICATION: "what is in doubt, read"},
    ),
    Step.SWITCH_PRODUCERS: StepDoc(
        "producers go on with the target; a person approves the certificate first, if the spec wants it",
        "each runs on the target, none on the source; the source still ends at the fence",
        "`topic_rollback`: `free` until the first record in the target",
        "every producer to write to the target",
        {
            Row.SWITCH_PRODUCERS: "producers on the target",
            Row.WIDE_DENY: "DENY for everybody on the source",
            Row.FENCE_AGAIN: "the source fenced anew",
        },
    ),
    Step.SWITCH_CONSUMERS: StepDoc(
        "each group gets its offsets on the target at the log start, then reads there",
        "members and offsets on every partition of the target",
        "`topic_rollback`: `free` while the target is empty, `drain_back` once every group reads it",
        "every group to read the target",
        {Row.SWITCH_GROUP: "group on the target"},
    ),
    Step.VERIFY: StepDoc(
        "Spark over both topics",
        "nothing lost, no key crossed, duplicates counted",
        "`topic_rollback` (`drain_back`), until the source is deleted",
        "the proof of order over both topics",
        {Row.ORDER_PROOF: "order proof", Row.REPLAY: "late records replayed"},
    ),
    Step.RETIRE: StepDoc(
        "days later: scream test, then deletes the source",
        "nobody reads or writes it, same topic id, retention passed, approved",
        "none",
        "its retirement: the retention of the source, a scream test and an approval",
        {Row.DELETE_SOURCE: "the source deleted", Row.SCREAM_TEST: "scream test"},
    ),
}
"""The table of the steps."""

BESIDE: Final[Mapping[Row, tuple[str, str]]] = {
    Row.ROLLBACK: ("rollback", "producers and groups back on the source"),
    Row.TARGET_DENY: ("rollback", "DENY on the target"),
    Row.WATCH: ("watch", "what the watch over the source has found"),
    Row.FIRST_DENY: ("rollback", "DENY of the way forward"),
    Row.QUESTION: ("question", "a person's answer"),
    Row.PAUSE: ("order", "nothing new is begun"),
    Row.POSTPONE: ("order", "no freeze before its time"),
    Row.SHADOW: ("rehearsal", "its shadow topics and groups"),
}
"""Rows that belong to no step: what they belong to, and what each is for a person."""

_TOLD: Final = {
    **{row: (step.value, words) for step, doc in STEPS.items() for row, words in doc.rows.items()},
    **BESIDE,
}


def told(name: str) -> tuple[str, str]:
    """The step of a journal row, and its words, for a person; a name that is no row's stands for itself."""
    plain = plain_name(name)
    row, _, subject = plain.partition(":")
    step, words = _TOLD.get(row, (name, ""))  # type: ignore[call-overload]
    if words and plain != name:
        words = f"{words}, on the way back"
    return step, f"{words}: {subject}" if words and subject else words


def label(name: str) -> str:
    """A journal row in one line, for a person: ``stop_producers (the freeze)``."""
    step, words = told(name)
    return f"{step} ({words})" if words else step
