"""The DAG that deletes the source of a finished migration: a run a simulated day, its tasks from left to right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from topicshift.acts.advance import Waiting, advance
from topicshift.acts.context import MigrationContext

from .orchestra import Done, Task

if TYPE_CHECKING:
    from .run import Simulation

_AFTER: Final = ("deletion_approved", "screamed", "source_deleted")
"""Rules of the retirement after the first look, in their order: each task leaves the later ones to the next."""

TASKS: Final = (
    ("check", frozenset(_AFTER)),
    ("approve", frozenset(_AFTER[1:])),
    ("scream_test", frozenset(_AFTER[2:])),
    ("delete", frozenset[str]()),
)


class RetirementRun:
    """One run of it. ``state``: running, or what came of it."""

    def __init__(self, sim: Simulation, owner: str) -> None:
        self.sim, self.owner = sim, owner
        self.state = "running"
        self._left = list(TASKS)

    def begin(self) -> RetirementRun:
        """Start the next task; the run is over after the last."""
        if not self._left:
            self._over("success")
            return self
        name, leave = self._left.pop(0)
        Task(
            self.sim, self.owner, name, lambda ctx: self._step(ctx, name, leave), lambda *how: self._ended(name, *how)
        ).start()
        return self

    def _step(self, ctx: MigrationContext, name: str, leave: frozenset[str]) -> Any:
        outcome = advance(ctx, wanted="retire", leave=leave, **({"patience_s": 0.0} if name == "check" else {}))
        if name == "check" and isinstance(outcome, Waiting):
            self._left = []  # nothing but time speaks against it: the run of another day looks again
            return Done(outcome.why, ctx.record(), outcome.decision)
        return outcome

    def _ended(self, name: str, how: str, result: Any) -> None:
        if how != "failed":
            self.begin()
            return
        self.sim.note(self.owner, "run", f"{name} failed: {result}")
        if name in ("scream_test", "delete"):
            Task(self.sim, self.owner, "let_in_again", cancel, lambda *_: self._over("failed")).start()
        else:
            self._over("failed")

    def _over(self, state: str) -> None:
        self.state = state
        self.sim.retire_later()


def cancel(ctx: MigrationContext) -> Any:
    """Let everybody in again."""
    return advance(ctx, wanted="cancel_retirement")


def retire(ctx: MigrationContext) -> Any:
    """A retirement that somebody asks for by hand, all of it in one."""
    return advance(ctx, wanted="retire")
