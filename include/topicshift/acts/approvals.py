"""Approvals: a person's yes is for exactly one thing, named by its hashes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topicshift.ports import Claim, EventRow, Journal


def find_approval(journal: Journal, migration_id: str, act: str, about: Mapping[str, Any]) -> EventRow | None:
    """The recorded yes to ``act`` for exactly ``about`` (plan hash, certificate hash), or None."""
    for event in reversed(journal.events(migration_id)):
        if event.kind == "approved" and event.data.get("act") == act and event.data.get("about") == dict(about):
            return event
    return None


def asked_about(journal: Journal, migration_id: str, act: str, map_index: int = -1) -> Mapping[str, Any] | None:
    """What the last question for ``act`` was about, None if it was never asked.

    The instances of a mapped task ask side by side: ``map_index`` says whose question is meant.
    """
    for event in reversed(journal.events(migration_id)):
        if event.kind == "asked" and (event.data.get("act"), event.data.get("map_index", -1)) == (act, map_index):
            about: Mapping[str, Any] = event.data.get("about", {})
            return about
    return None


def record_approval(
    journal: Journal, claim: Claim, act: str, about: Mapping[str, Any], *, actor: str, how: str
) -> EventRow:
    """Write down who said yes to what. ``how`` is ``person`` or ``auto`` (the spec says so)."""
    return journal.event(claim, "approved", actor, {"act": act, "about": dict(about), "how": how})
