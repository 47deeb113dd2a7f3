"""What an operator does once all is healed: dismisses the dead, clears the run, marks it failed, rolls back, closes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from topicshift.acts.close import close
from topicshift.acts.context import MigrationContext
from topicshift.acts.rollback import going_back
from topicshift.core.route.records import ack_key
from topicshift.ports import MigrationRow

from . import orchestra
from .retirement import cancel, retire

if TYPE_CHECKING:
    from .run import Simulation

WINDOW_S = 150.0
"""For so long after all was healed a migration that waits for its window is left alone."""

OF_A_WINDOW = ("arm", "lengthen_retention")
"""Rows that come and go with each window, and bring a migration that misses it no nearer to its end."""

DISMISS = re.compile(r"topicshift route dismiss ([\w.-]+) ([\w.-]+)")
"""What a reason says to do about an instance that is dead."""

STUCK_S = 75.0
"""A migration of which nothing changes for so long after all was healed gets the operator's next attempt."""


class Operator:
    """Follows the runbook for whatever is left open. ``gave_up``: no attempt is left."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self.gave_up = self.closed = False

    def begin(self) -> None:
        """All is healed: look every few seconds."""
        self._attempts = [
            self._clear_run,
            self._clear_run,
            self._fail_run,
            self._roll_back_left,
            self._clear_run,
            self._close,
        ]
        self._stands: set[tuple[str, str, str]] = set()
        self._begun = self._sim.kernel.now
        self._since = self._sim.kernel.now - STUCK_S
        self._sim.kernel.every(5.0, self._operate)

    def _operate(self) -> float | None:
        """What an operator does with what is left: clear its run, mark it as failed, roll back; and look again."""
        if self._sim.all_over():
            return -1.0
        # An act that is told again (arm, certify) is written down each time, and brings nothing nearer to its end.
        windows = self._sim.scenario.shape.window is not None
        stands = {
            (m, step, row.state)
            for m, rows in self._sim.journal._steps.items()
            for step, row in rows.items()
            if not (windows and step in OF_A_WINDOW)
        }
        if stands != self._stands:
            self._since = self._sim.kernel.now if self._stands else self._since
            self._stands = stands
        if windows and self._sim.kernel.now < self._begun + WINDOW_S:
            self._since = self._sim.kernel.now
        if self._sim.kernel.now - self._since < STUCK_S:
            return None
        if not self._attempts:
            self.gave_up = True
            return -1.0
        self._since = self._sim.kernel.now
        if not self._dismiss_the_dead():
            self._attempts.pop(0)()
        return None

    def _dismiss_the_dead(self) -> bool:
        """`topicshift route dismiss`, as the reason says, for each dead instance that somebody waits for."""
        routes, world = self._sim.world.routes, self._sim.world
        alive = {i.name for app in (*world.producers, *world.consumers) for i in app.instances if i.alive}
        said = " ".join(self._sim.said.values())
        named = {(logical, who) for logical, who in DISMISS.findall(said) if who not in alive}
        dead = sorted((logical, who) for logical, who in named if ack_key(logical, who) in routes.acks)
        for logical, who in dead:
            routes.dismiss(logical, who)
            self._sim.history.add("command.route", "note", kind="dismissed", text=f"{who} of {logical} is dead")
        return bool(dead)

    def _owning_run(self) -> orchestra.DagRun | None:
        return next((r for r in self._sim.runs for row in self._left() if r.owner == row.owner), None)

    def _clear_run(self) -> None:
        if self._retiring():
            self._sim.by_hand("retire_asked", retire)
            return
        run = self._owning_run()
        if run is not None and run.state != "deleted":
            run.clear(3)
        else:
            orchestra.Task(self._sim, "command", "advance", orchestra.forward, lambda *_: None).start()

    def _retiring(self) -> bool:
        """Whether what is left is a retirement alone."""
        rows = self._left()
        back = any(going_back(self._sim.journal, r.migration_id) for r in rows)
        return bool(rows) and all(r.state == "done" for r in rows) and not back

    def _fail_run(self) -> None:
        if self._retiring():
            self._sim.by_hand("retirement_cancelled", cancel)
            return
        run = self._owning_run()
        if run is not None and run.state == "running":
            run.fail("marked as failed by hand")
        else:
            self._roll_back_left()

    def _close(self) -> None:
        """The last word: `topicshift close`, which names what is left."""
        self.closed = True
        for run in self._sim.runs:
            run.stop_tasks()
            run.state, run.alive = "failed", False

        def work(ctx: MigrationContext) -> None:
            for line in close(ctx, "it does not go on", even_frozen=True)["left"]:
                self._sim.history.add("command.close", "note", kind="left", text=line)  # as the command prints it

        for row in self._left():
            owner = f"command/{row.migration_id}"
            self._sim.beside[owner] = row.migration_id
            orchestra.Task(self._sim, owner, "close", work, lambda *_: None).start()

    def _left(self) -> list[MigrationRow]:
        """The migrations that have not ended."""
        return [r for r in self._sim.journal.find(source=self._sim.world.source) if r.active or r.state == "open"]

    def _roll_back_left(self) -> None:
        rows = self._left()
        if rows:
            self._sim.roll_back(rows[-1].migration_id)
