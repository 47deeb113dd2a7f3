"""Simulated people: what becomes of an answer, and of what was done by hand for it."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.history import Event
from tests.simulation.people import AFTER_S, People
from tests.simulation.run import Simulation
from tests.simulation.scenario import Mood, Scenario
from tests.simulation.seeds import KEPT
from tests.simulation.test_manual import STOP, made


def test_an_answer_that_nothing_takes_any_more_is_none() -> None:
    world, _, group = made()
    presses: list[str] = []

    def press(said: str, in_vain: Callable[[], None]) -> bool:
        presses.append(said)
        in_vain()
        return False

    People(world, (Mood(1.0),)).ask("switch_consumers.stop", STOP, press)
    world.kernel.run(2.0)
    assert (presses, group.running) == (["yes"], False)
    assert [e["said"] for e in world.history.of("too_late")] == ["yes"] and not list(world.history.of("answered"))
    world.kernel.run(2.0 + AFTER_S)
    assert group.running, "they put back what they did for it"


def pressed(scenario: Scenario) -> list[Event]:
    """What people said to the cut-over in a run."""
    simulation = Simulation(scenario)
    simulation.run()
    events = simulation.history.of("asked", "answered", "too_late")
    return [e for e in events if e["question"] == "switch_producers.switch"]


def test_the_page_of_a_task_that_was_cleared_answers_what_it_asks_by_now() -> None:
    """Airflow knows a question by its task: whoever still looks at it answers the one that stands there."""
    kept = KEPT["the page of a task that was cleared takes a no to what is asked by now"]
    assert [e.what for e in pressed(kept)][:4] == ["asked", "asked", "answered", "answered"]


def test_the_page_of_a_task_that_was_cleared_answers_nothing_before_it_asks_again() -> None:
    kept = KEPT["the page of a task that was cleared takes a no to what is asked by now"]
    early = Scenario(kept.seed, kept.shape, (), kept.hands, (Mood(5.6), Mood(5.0), Mood(5.0, "no"), Mood(1.08)))
    assert [e.what for e in pressed(early)][:3] == ["asked", "too_late", "asked"]
