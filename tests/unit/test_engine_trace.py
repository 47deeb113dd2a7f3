"""What an act was decided on is kept in the audit trail, and gives the same decision again."""

from __future__ import annotations

import json

import pytest
from tests.unit.world import World

from topicshift.core.engine.engine import next_act
from topicshift.core.engine.trace import dump, view_of


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_every_act_of_a_migration_is_decided_again_from_its_trail(cutover: str) -> None:
    world = World(cutover=cutover)
    world.advance()
    acts = [e.data for e in world.journal.events(world.claim.migration_id) if e.kind == "act"]
    assert len(acts) > 15
    for act in json.loads(json.dumps(acts)):
        again = next_act(view_of(act))
        assert (again.act, again.subject, again.rule) == (act["act"], act["subject"], act["rule"])


def test_a_view_comes_back_whole() -> None:
    world = World()
    world.advance()
    for event in world.journal.events(world.claim.migration_id):
        if event.kind == "act":
            view = view_of(event.data)
            assert view_of({"view": json.loads(json.dumps(dump(view)))}) == view
