"""Simulated orchestrators: runs of an Airflow DAG with their tasks, the command line beside them, and the watch.

All of them call :func:`topicshift.acts.advance.advance` in a simulated process, as the real ones do.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from topicshift.acts import questions
from topicshift.acts.advance import Asking, Done, Waiting, advance, beyond
from topicshift.acts.context import MigrationContext
from topicshift.acts.finish import fail_unbegun
from topicshift.core.engine.words import ORDER, Step
from topicshift.core.errors import OwnershipLost, Refused, TopicshiftError
from topicshift.core.spec.cutover import Cutover

from .kernel import Process

if TYPE_CHECKING:
    from .run import Simulation

RETRIES = 2


class Task:
    """One task of a run, or one command: tries until it is done, asks, or fails; at once with a ``final`` error."""

    def __init__(
        self,
        sim: Simulation,
        owner: str,
        name: str,
        work: Callable[[MigrationContext], Any],
        end: Callable[[str, Any], None],
        *,
        retries: int = RETRIES,
        final: tuple[type[TopicshiftError], ...] = (OwnershipLost,),
    ) -> None:
        self.sim, self.owner, self.name, self.work, self.end = sim, owner, name, work, end
        self.retries, self.final = retries, final
        self.over = False
        self._began: datetime | None = None
        self.tries = 0
        self.waits = 0
        self.process: Process | None = None
        self.stopped = False
        self.ctx: MigrationContext | None = None

    def start(self, after: float = 0.0) -> Task:
        """Begin a try."""
        self.tries += 1
        who = f"{self.owner}.{self.name}.{self.tries}"
        self.process = process = self.sim.process(who, lambda: self._body(process))
        process.on_end = lambda: self._ended(process)
        process.start(after)
        return self

    def stop(self) -> None:
        """Kill it, for good."""
        self.stopped = True
        if self.process is not None:
            self.process.kill()

    def _body(self, process: Process) -> Any:
        self.ctx = self.sim.context(process, self.owner)
        self._began = self.ctx.began_at = self._began or self.ctx.began_at  # a task that was deferred keeps its start
        return self.work(self.ctx)

    def _ended(self, process: Process) -> None:
        if self.stopped or process is not self.process:
            return
        rng = self.sim.world.rng
        if process.doomed:
            self.sim.world.history.add(process.name, "killed")
            self._began = None
            self.start(rng.uniform(8.0, 40.0))
        elif process.error is not None:
            self._failed(process, process.error)
        elif isinstance(process.result, Waiting):
            self.sim.note(process.name, "waits", process.result.why)
            self.sim.people.told(process.result.why)
            self.waits += 1
            self.start(rng.uniform(0.5, 3.0) * min(1 + self.waits, 8))
        elif isinstance(process.result, Asking):
            self._ask(process.result)
        else:
            self._end("done", process.result)

    def _end(self, how: str, result: Any) -> None:
        self.over = True
        self.end(how, result)

    def _failed(self, process: Process, error: BaseException) -> None:
        self.sim.note(process.name, type(error).__name__, str(error))
        if not isinstance(error, TopicshiftError):
            self.sim.broken(process.name, error)
            self._end("failed", error)
        elif self.retries > 0 and not isinstance(error, self.final):
            self.retries -= 1
            self._began = None
            self.start(self.sim.world.rng.uniform(3.0, 10.0))
        else:
            self._end("failed", error)

    def _ask(self, asking: Asking) -> None:
        """Show the question as Airflow does: once, with what it was about then."""
        key, about, place = asking.ask.value, asking.about, (self.owner, self.name)
        headline = asking.decision.why
        timeout = questions.timeout_of(asking.ask, about, asking.view.record, asking.view.now).total_seconds()
        left = [True]

        def show(ctx: MigrationContext) -> Any:
            questions.record_question(ctx, asking.ask, asking.subject, about, headline)

        def shown(how: str, _result: Any) -> None:
            if how == "failed":
                self.start(2.0)
                return
            self.sim.forms[place] = (key, about, answered)
            self.sim.people.ask(key, about, answered)
            self.sim.kernel.after(timeout, silence)

        def silence() -> None:
            if left[0] and not self.stopped:
                answered("silence", lambda: None)

        def answered(said: str, in_vain: Callable[[], None]) -> bool:
            if self.stopped:  # on the page of a task that was cleared: it answers what the task asks by now
                now = self.sim.forms.get(place)
                if now is not None and now[2] is not answered and now[:2] == (key, about):
                    return now[2](said, in_vain)
                in_vain()
                return False
            left[0] = False
            again = 0 if self.over else RETRIES  # a second answer, which nobody waits for any more
            name = f"{self.name}.answer"

            def taken(how: str, result: Any) -> None:
                if isinstance(result, Refused):
                    in_vain()
                go_on(how, result)

            Task(self.sim, self.owner, name, lambda ctx: take(ctx, said), taken, retries=again).start()
            return True

        def take(ctx: MigrationContext, said: str) -> Any:
            questions.record_answer(ctx, asking.ask, asking.subject, about, said, actor="person")  # type: ignore[arg-type]

        def go_on(_how: str, _result: Any) -> None:
            if not self.stopped and not self.over and (self.process is None or self.process.over):
                self.start()

        Task(self.sim, self.owner, f"{self.name}.ask", show, shown).start()


class DagRun:
    """One run of the migration's DAG."""

    def __init__(self, sim: Simulation, name: str) -> None:
        self.sim, self.name = sim, name
        self.owner = f"topic_migration/{name}"
        self.alive = True
        self.state = "running"
        self.paused_until = -1.0
        order = Cutover(sim.scenario.shape.order)
        self.steps = [s for s in ORDER[order] if s is not Step.RETIRE]
        self._drain_first = order is Cutover.DRAIN_FIRST
        self.at = 0
        self.tasks: list[Task] = []
        self.cleared = 0

    def begin(self) -> None:
        """Let the scheduler start the next task."""
        if self.state != "running":
            return
        wait = max(0.0, self.paused_until - self.sim.world.kernel.now)
        if self.at >= len(self.steps):
            self.state, self.alive = "success", False
            self.sim.note(self.owner, "run", "success")
            self.sim.retire_later()
            return
        step = self.steps[self.at]
        subjects: list[str | None] = [None]
        if step is Step.SWITCH_CONSUMERS or (step in (Step.DRAIN, Step.VERIFY_DRAIN) and not self._drain_first):
            subjects = [c.group for c in self.sim.world.consumers]
        left = [len(subjects)]
        self.tasks = []
        for subject in subjects:
            name = step.value + (f"[{subject}]" if subject else "")
            work = self._work(step, subject)
            task = Task(self.sim, self.owner, name, work, lambda how, result: self._task_ended(left, how, result))
            self.tasks.append(task)
            task.start(wait + self.sim.world.rng.uniform(0.1, 1.0))

    @staticmethod
    def _work(step: Step, subject: str | None) -> Callable[[MigrationContext], Any]:
        through = Step.SWITCH_PRODUCERS if step is Step.STOP_PRODUCERS else None
        if step is Step.DRAIN and subject is not None:
            through = Step.SWITCH_CONSUMERS  # a group that has drained is not held up by one that has not
        return lambda ctx: _reached(ctx, step, advance(ctx, until=step, focus=subject, through=through))

    def _task_ended(self, left: list[int], how: str, result: Any) -> None:
        if self.state != "running":
            return
        if how == "failed":
            self.fail(str(result))
            return
        left[0] -= 1
        if left[0] == 0:
            self.at += 1
            self.begin()

    def fail(self, why: str) -> None:
        """A task failed for good: what is left of the freeze is ended, then the run has failed."""
        self.stop_tasks()
        self.state = "failing"
        self.sim.note(self.owner, "run", f"a task failed: {why}")
        self.tasks = [
            Task(self.sim, self.owner, "resume_on_source", _resume, lambda *_: self._over(), retries=5).start()
        ]

    def _over(self) -> None:
        self.state, self.alive = "failed", False
        self.sim.operator_looks(self)

    def stop_tasks(self) -> None:
        """Kill whatever of it runs."""
        for task in self.tasks:
            task.stop()

    # ------------------------------------------------------------------------------------------- people's hands

    def clear(self, back: int) -> None:
        """Clear the tasks from some steps ago on: they run again."""
        self.stop_tasks()
        self.state, self.alive = "running", True
        self.at = max(0, min(self.at, len(self.steps) - 1) - back)
        self.cleared += 1
        self.begin()

    def mark_success(self) -> None:
        """Mark the present task as a success by hand."""
        if self.state == "running":
            self.stop_tasks()
            self.at += 1
            self.begin()

    def delete(self) -> None:
        """The run is deleted, its processes are killed."""
        self.stop_tasks()
        self.state, self.alive = "deleted", False


def _reached(ctx: MigrationContext, step: Step, outcome: Any) -> Any:
    """A task whose own step is done does not wait for a later one."""
    if isinstance(outcome, Waiting) and beyond(outcome.decision, step, ORDER[ctx.policy.cutover]):
        return Done(outcome.why, ctx.record(), outcome.decision)
    return outcome


def _resume(ctx: MigrationContext) -> Any:
    ctx.ports.verifier.abort()
    outcome = advance(ctx, wanted="resume")
    if isinstance(outcome, Done):
        fail_unbegun(ctx, outcome.record)
    return outcome


def watch(ctx: MigrationContext) -> Any:
    """What the watch over a freeze does: resume, without calling anything else off."""
    return advance(ctx, wanted="resume")


def forward(ctx: MigrationContext) -> Any:
    """`topicshift advance`: to the end, or to the first question."""
    return advance(ctx)


def rollback(ctx: MigrationContext) -> Any:
    """`topic_rollback`."""
    return advance(ctx, wanted="rollback")


resume = watch

__all__ = ["DagRun", "Done", "Task", "forward", "resume", "rollback", "watch"]
