"""A migration with participants of one kind, on its way there and on each way back: killed anywhere, it ends the same.

Beside the kind under test there are a producer that a hook moves (billing) and a group on the route (fraud-g).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from tests.unit.world import SOURCE, TARGET, Killed, World

from topicshift.acts.context import MigrationContext
from topicshift.adapters.readers import evidence_source
from topicshift.core.engine.engine import Wanted
from topicshift.core.engine.words import Step


class KindWorld(World):
    """A world whose controller of one kind speaks to ``fake``, which calls its ``on_call`` at each request."""

    fake: Any
    group: str
    """The group of the consumer of this kind."""
    died = False

    def unharmed(self) -> bool:
        """Everything is as before, and runs."""
        raise NotImplementedError

    def hook_unharmed(self) -> bool:
        """What the hook moves is as before, and runs."""
        hook = self.controllers["command"]
        return bool(hook.topic.get("billing", SOURCE) == SOURCE and hook.running.get("billing", True))

    def back(self) -> None:
        """It has gone back."""
        assert self.unharmed()
        assert self.acls() == self.before

    def arrived(self) -> None:
        """It is done; subclasses look at their participants besides."""
        assert self.journal.current(self.claim.migration_id).state == "done"
        assert set(self.cluster.commits([self.group], TARGET, range(6))[self.group].offsets.values()) == {0}

    def hook_arrived(self) -> None:
        """What the hook moves is on the target."""
        assert self.controllers["command"].topic == {"billing": TARGET}

    def stands(self) -> None:
        """Producers stand."""

    def on_target(self) -> None:
        """The consumer is on the target."""

    def read_target(self) -> None:
        """Both groups read all that the target holds."""
        for group in (self.group, "fraud-g"):
            self.drain(group, TARGET)

    def kill_at(self, call: int) -> None:
        """The process that makes this request, counted from 0, ends there."""
        left = [call]
        self.died = False

        def burn(_: str) -> None:
            left[0] -= 1
            if left[0] == -1:
                self.died = True
                raise Killed

        self.fake.on_call = burn


class OwnOffsetsWorld(KindWorld):
    """A world whose consumer keeps offsets of its own: its group is in the spec alone, and evidence tells of it."""

    ask_of: Any = None
    """What asks the service that has the offsets, by the name of its connection; None where they lie in files."""

    def join(self, group: str, topic: str) -> None:
        if group != self.group:
            super().join(group, topic)

    def drain(self, group: str, topic: str = SOURCE) -> None:
        if group != self.group:
            super().drain(group, topic)

    def context(self, *args: Any, **kwargs: Any) -> MigrationContext:
        """With its offsets as evidence, as the product has them."""
        ctx = super().context(*args, **kwargs)
        ctx.ports.reader_evidence = lambda spec, consumer: evidence_source(
            [r.model_dump(mode="json") for r in spec.readers_of(consumer)], spec.source, ask_of=self.ask_of
        )
        return ctx


W = TypeVar("W", bound=KindWorld)


def frozen(kind: type[W]) -> W:
    """Everybody stands."""
    w = kind()
    w.advanced(until=Step.STOP_PRODUCERS)
    w.stands()
    return w


def moved(kind: type[W]) -> W:
    """The consumer is on the target, and not finished."""
    w = kind()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.advance(leave=frozenset({"finish_group"}))
    w.on_target()
    return w


def written(kind: type[W]) -> W:
    """Everybody is on the target, which holds records that both groups have read."""
    w = kind()
    w.advanced()
    w.write(TARGET, 1, 4)
    w.read_target()
    return w


WAYS: dict[str, tuple[Callable[[type[Any]], Any], Wanted]] = {
    "forward": (lambda kind: kind(), "forward"),
    "resume": (frozen, "resume"),
    "rollback": (moved, "rollback"),
    "drain_back": (written, "rollback"),
}
ALL = pytest.mark.parametrize("way", WAYS)


def holds(w: KindWorld, way: str) -> None:
    """It has ended where this way leads."""
    if way == "forward":
        w.arrived()
    else:
        w.back()


def killed_at_each_effect(kind: type[KindWorld], way: str, is_effect: Callable[[str], bool], count: int) -> None:
    """Killed at each request that changes something, of which there are ``count``, it ends where it would."""
    begin, wanted = WAYS[way]
    w = begin(kind)
    asked: list[str] = []
    w.fake.on_call = asked.append
    w.advanced(wanted=wanted)
    holds(w, way)
    effects = [n for n, call in enumerate(asked) if is_effect(call)]
    assert len(effects) == count
    for n in effects:
        w = begin(kind)
        w.kill_at(n)
        w.until_done([10**6], wanted=wanted)
        holds(w, way)
        assert w.died


def killed_at(kind: type[KindWorld], way: str, calls: list[int]) -> None:
    """Killed at these calls of any port, it ends where it would."""
    begin, wanted = WAYS[way]
    w = begin(kind)
    w.until_done(calls, wanted=wanted)
    holds(w, way)
