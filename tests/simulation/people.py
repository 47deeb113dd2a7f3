"""Simulated people: they answer questions late, twice, with no, never; they do by hand what they are asked to do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from .manual import ManualConsumer, do_by_hand, start_group
from .scenario import Mood
from .world import World

Press = Callable[[str, Callable[[], None]], bool]
"""Takes what somebody says, and what to call where it counts for nothing; False where nothing takes it any more."""

AFTER_S = 3.0
"""A person who is told to start something, or that a yes counts for nothing, has done what follows after so long."""


class People:
    """Whoever answers. The n-th question meets the n-th mood; once all is healed, everybody says yes at once."""

    def __init__(self, world: World, moods: tuple[Mood, ...]) -> None:
        self._world, self._moods = world, moods
        self._asked = 0
        self.healed = False

    def ask(self, question: str, about: Mapping[str, Any], answer: Press) -> None:
        """Show a question; ``answer`` is called with what they say, when they say it.

        Where the answer counts for nothing, they put back what they did by hand for it. One on a page that takes no
        answer any more, because its task was cleared and asks something else, or nothing, is no answer.
        """
        mood = Mood(2.0) if self.healed else self._moods[self._asked % len(self._moods)]
        self._asked += 1
        shown = json.dumps(dict(about), sort_keys=True)
        self._world.history.add("person", "asked", question=question, shown=shown)
        if mood.says == "never":
            return

        def say() -> None:
            put_back = do_by_hand(self._world, dict(about)) if mood.says == "yes" else _nothing
            taken = answer(mood.says, lambda: self._world.kernel.after(AFTER_S, put_back))
            what = "answered" if taken else "too_late"
            self._world.history.add("person", what, question=question, shown=shown, said=mood.says)

        self._world.kernel.after(mood.after, say)
        if mood.twice:
            self._world.kernel.after(mood.after + 0.7, say)

    def told(self, why: str) -> None:
        """A task says what it waits for: a manual group that is to be started is started."""
        for consumer in self._world.consumers:
            if isinstance(consumer, ManualConsumer) and not consumer.running and f"group {consumer.group}" in why:
                self._start(consumer.group, why)

    def _start(self, group: str, why: str) -> None:
        found = re.search(r"a person has to start it on (the target|[\w.-]+)", why)
        if found is not None:
            topic = self._world.target if found[1] == "the target" else found[1]
            self._world.kernel.after(AFTER_S, lambda: start_group(self._world, group, topic))


def _nothing() -> None:
    """Nothing was done by hand."""
