"""Judges a history by the promises of the design. Shares no code with the product; reads nothing but the history.

Safety is judged over the whole run, liveness over its last phase, in which every fault is healed.
"""

from __future__ import annotations

from .history import History
from .promises import ends, fence, freeze, records, retirement, route, seats
from .promises.facts import SLACK_S, Facts, Violation, gather

RULES = (*records.RULES, *fence.RULES, *route.RULES, *seats.RULES, *freeze.RULES, *ends.RULES, *retirement.RULES)
"""Every promise."""


def judge(history: History) -> list[Violation]:
    """Every broken promise, in the order of the rules."""
    facts = gather(history)
    return [violation for rule in RULES for violation in rule(facts)]


__all__ = ["RULES", "SLACK_S", "Facts", "Violation", "gather", "judge"]
