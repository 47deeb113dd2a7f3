"""The one decision of the product: what a migration does next, and which facts that needs.

Airflow's tasks, the command line, the model check and the simulator all run :func:`next_act`. It is pure: the same
view gives the same decision, for a first try, a retry, a cleared task and a second advancer alike.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from topicshift.core.engine.back import RESUME, ROLLBACK
from topicshift.core.engine.decision import Decision, Rule, Table, wait
from topicshift.core.engine.forward import FORWARD
from topicshift.core.engine.mirror import in_names
from topicshift.core.engine.retire import RETIRE
from topicshift.core.engine.view import Record, View
from topicshift.core.engine.words import Fact, Row, StepState

Wanted = Literal["forward", "resume", "rollback", "retire", "cancel_retirement"]

RULES: Final[dict[str, list[Rule]]] = {
    "forward": FORWARD.rules,
    "resume": RESUME.rules,
    "rollback": ROLLBACK.rules,
    "retire": RETIRE.rules,
}
"""Every rule of the product, by table, in order."""


def table_of(record: Record, wanted: Wanted) -> str:
    """Which table decides: what was begun and is not finished goes before what is wanted."""
    if record.mirrored and wanted == "rollback":
        wanted = "forward"  # going back after the switch is going forward with source and target exchanged
    if record.at(Row.ROLLBACK) is StepState.INTENDED:
        return "rollback"
    if record.at(Row.FREEZE) is StepState.UNDOING:
        return "resume"
    if wanted == "rollback":
        return "rollback"
    return "retire" if wanted in ("retire", "cancel_retirement") else "forward"


def facts_needed(record: Record, wanted: Wanted = "forward") -> frozenset[Fact]:
    """The facts that :func:`next_act` may look at for this record; asked all at once, in parallel."""
    return _in_play(record, wanted)[1]


def _in_play(record: Record, wanted: Wanted) -> tuple[list[Rule], frozenset[Fact]]:
    """The rules that are in play for this record, and the facts that they need."""
    table = table_of(record, wanted)
    rules = RULES[table]
    known = record.in_play.get(table)
    if known is None or known[0] is not rules:
        kept = [rule for rule in rules if rule.when(record)]
        known = record.in_play[table] = rules, (kept, frozenset().union(*(rule.needs for rule in kept)))
    return known[1]


def next_act(view: View) -> Decision:
    """What to do now, and why. The first rule that speaks decides."""
    for rule in _in_play(view.record, view.wanted)[0]:
        decision = rule.decide(view)
        if decision is not None:
            why, do = (in_names(view.record, text) for text in (decision.why, decision.do))
            return replace(decision, why=why, do=do, rule=rule.name, step=decision.step or rule.step)
    return wait("no rule has anything to say")


__all__ = ["RULES", "Decision", "Rule", "Table", "Wanted", "facts_needed", "next_act", "table_of"]
