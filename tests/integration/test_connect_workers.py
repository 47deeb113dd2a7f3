"""Kind ``connect`` on two real Connect workers of one group, which rebalance in the middle of a migration."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.beside import meanwhile
from tests.integration.connect_world import ConnectWorker, Migration, source
from tests.integration.host_world import seen

from lab.broker import EmbeddedBroker
from topicshift.adapters.clock import SystemClock
from topicshift.adapters.controllers.connect import ConnectController
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.adapters.rest import Conflict, Failed
from topicshift.core.engine.words import Step
from topicshift.core.errors import Transient

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900), pytest.mark.long]


class Balancer:
    """Asks any of the workers, as a load balancer before them does.

    ``rebalanced``: requests that a worker refused because it rebalances, with the status that it answered.
    """

    def __init__(self, *workers: ConnectWorker) -> None:
        self.workers, self._dice = list(workers), random.Random(7)
        self.rebalanced: list[tuple[int, str]] = []

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One request, to one worker."""
        try:
            return self._dice.choice(self.workers).ask(method, path, body)
        except Conflict:
            self.rebalanced.append((409, method))
            raise
        except Failed as error:
            if b"a rebalance is expected" in error.said:
                self.rebalanced.append((500, method))
            raise

    def refused(self, code: int, method: str) -> bool:
        """Whether a worker has answered so."""
        return (code, method) in self.rebalanced


@contextmanager
def restless(worker: ConnectWorker, names: Sequence[str]) -> Iterator[None]:
    """Connectors of others are stopped and resumed all the time; for each the workers rebalance."""

    def act(name: str, acts: Iterator[str]) -> None:
        with suppress(Transient):
            worker.ask("PUT", f"/connectors/{name}/{next(acts)}", None)

    with ExitStack() as stack:
        for name in names:
            acts = itertools.cycle(("stop", "resume"))
            stack.enter_context(meanwhile(partial(act, name, acts), pause_s=0.3))
        yield


class Rebalancing(Migration):
    """Acts are tried one by one."""

    def tried(self, act: str, consumers: bool) -> str:
        """One act on the sink or on the source, which may be refused for now; what is said of it then."""
        ctx = self.context()
        ctx.refresh()
        who, controller = ctx.consumers if consumers else ctx.producers, self.controllers["connect"]
        with suppress(Transient):
            getattr(controller, act)(ctx.control(), who)
        (state,) = controller.observe(ctx.control(), who)
        return state.status


def test_connectors_are_moved_while_a_worker_joins_and_leaves_and_both_refuse_requests(
    broker: EmbeddedBroker, topic_name: Callable[..., str], tmp_path: Path
) -> None:
    """A worker that has to rebalance says 500 to who reads settings, and 409 to who restarts what failed."""
    with ExitStack() as stack:
        admin = stack.enter_context(KafkaAdmin(broker.config()))
        one = stack.enter_context(ConnectWorker(broker, tmp_path / "one"))
        two = ConnectWorker(broker, tmp_path / "two", beside=one)
        stack.callback(two.__exit__)
        w = Rebalancing(one, broker, admin, topic_name(), tmp_path, freeze_budget="180s")
        stack.callback(w.close)
        others = [f"{w.source}_other{n}" for n in range(3)]
        for other in others:
            admin.create_topic(other, 1, 1, {})
            one.create(other, source(tmp_path / other, other))
        balancer = Balancer(one)
        w.controllers["connect"] = ConnectController(admin, lambda _: balancer.ask, SystemClock())  # type: ignore[assignment]

        two.start()
        w.advanced(until=Step.STOP_PRODUCERS)
        two.until(lambda: two.ask("GET", "/connectors", None), "it has joined")
        balancer.workers.append(two)
        with restless(one, others):
            shown = set()
            while not balancer.refused(500, "GET"):
                shown.add(w.tried("stop", consumers=False))
            assert shown <= {"stopped", "unknown"}, "nothing else is ever said of one that stands"
            w.advanced(until=Step.SWITCH_PRODUCERS)
            fails = Path(f"{w.kept}.fail")
            fails.touch()
            w.until(lambda: "task 0 is FAILED" in w.waits(patience_s=5), "its task fails on the target", 90)
            shown.clear()
            while not balancer.refused(409, "POST"):
                shown.add(w.tried("start", consumers=True))
            assert shown <= {"running", "unknown"}, shown
            fails.unlink()
            balancer.workers.remove(two)
            two.leave()
            w.advanced()
        assert w.differs() == w.moved()
        w.goes_on()
        w.proven()
        assert {topic for _, _, topic in seen(w.kept)} == {w.source, w.target}
