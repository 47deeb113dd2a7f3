"""What goes wrong, by class: each strikes once, says whom it hurts, and is healed after a time.

A class is a function that strikes and returns what heals it (or None where nothing has to be healed). ``CLASSES`` lists
them with how long each may last, and after which they make sense at all.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from tests.chaos.hosts import LINKS
from tests.chaos.parts import GROUPS, PRODUCERS, Minded, is_driver, is_executor

from topicshift.core.kafka.cluster import Acl

if TYPE_CHECKING:
    from tests.chaos.part import Part

Heal = Callable[[], None]


class NotNow(RuntimeError):
    """There is nothing that this fault could strike at this moment."""


@dataclass(frozen=True)
class Struck:
    """What a fault did: whom it hurts (instances, groups, ``broker``, ``journal``), a word on it, and what heals it."""

    hurts: tuple[str, ...] = ()
    said: str = ""
    heal: Heal | None = None


@dataclass(frozen=True)
class Class:
    """A class of faults. ``lasts``: between how many seconds; ``last``: only as the last fault of a migration."""

    strike: Callable[[Part, random.Random], Struck]
    lasts: tuple[float, float] = (0.0, 0.0)
    last: bool = False
    worlds: tuple[str, ...] = ()
    """Only in these worlds (``worlds.py``); in every one by default."""
    moments: tuple[str, ...] = ()
    """Only after one of these rows of the journal was begun; after any by default."""

    @property
    def name(self) -> str:
        return self.strike.__name__


def _running(minded: list[Minded], rng: random.Random) -> Minded:
    found = [m for m in minded if m.process is not None and m.process.alive]
    if not found:
        raise NotNow("nobody of them runs")
    return rng.choice(found)


def _stopped(minded: Minded, hurts: tuple[str, ...]) -> Struck:
    if minded.process is None:
        raise NotNow("it does not run")
    pid = minded.process.pid
    os.kill(pid, signal.SIGSTOP)

    def wake() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    return Struck(hurts, minded.name, wake)


def _hurt(app: Minded) -> tuple[str, ...]:
    return app.name, app.name.rsplit("-", 1)[0]


# ------------------------------------------------------------------------------------------------ advancers


def advancer_killed(part: Part, rng: random.Random) -> Struck:
    """SIGKILL for a process of ``topicshift advance``; the one that holds the seat, where one does."""
    found = part.at_work() or _running(part.advancers, rng)
    found.kill()
    return Struck((), found.name)


def advancer_stopped(part: Part, rng: random.Random) -> Struck:
    """SIGSTOP for one, and a late wake-up, within the time of an act."""
    return _stopped(part.at_work() or _running(part.advancers, rng), ())


def advancer_wakes_late(part: Part, rng: random.Random) -> Struck:
    """SIGSTOP for longer than an act may take, so that another one has taken its seat over."""
    return _stopped(part.at_work() or _running(part.advancers, rng), ())


def all_advancers_killed(part: Part, rng: random.Random) -> Struck:
    """Every advancer at once, as a machine that goes down."""
    for advancer in part.advancers:
        advancer.kill()
    return Struck((), f"{len(part.advancers)} advancers")


def driver_killed(part: Part, rng: random.Random) -> Struck:
    """SIGKILL for the JVM of a Spark driver (which is the executor too, where Spark has one process)."""
    return _jvm_killed(part, is_driver)


def executor_killed(part: Part, rng: random.Random) -> Struck:
    """SIGKILL for the JVM of a Spark executor that has a process of its own."""
    return _jvm_killed(part, is_executor)


def _jvm_killed(part: Part, which: Callable[[psutil.Process], bool]) -> Struck:
    for advancer in part.advancers:
        if sent := advancer.signal(signal.SIGKILL, which):
            return Struck((), f"{len(sent)} JVMs of {advancer.name}")
    raise NotNow("no such JVM runs")


def triggered_twice(part: Part, rng: random.Random) -> Struck:
    """A second run on the same source, which has to be refused; and one more advancer beside the others."""
    part.claim_again()
    extra = part.one_more()
    return Struck((), extra.name, lambda: extra.end(10.0))


# ------------------------------------------------------------------------------------------------ applications


def producer_killed(part: Part, rng: random.Random) -> Struck:
    """SIGKILL for an instance of a producer."""
    app = _running(part.apps.of(PRODUCERS), rng)
    app.kill()
    return Struck(_hurt(app), app.name)


def producer_stopped(part: Part, rng: random.Random) -> Struck:
    """SIGSTOP for an instance of a producer, and a late wake-up."""
    app = _running(part.apps.of(PRODUCERS), rng)
    return _stopped(app, _hurt(app))


def consumer_killed(part: Part, rng: random.Random) -> Struck:
    """SIGKILL for a member of a group."""
    app = _running(part.apps.of(GROUPS), rng)
    app.kill()
    return Struck(_hurt(app), app.name)


def consumer_stopped(part: Part, rng: random.Random) -> Struck:
    """SIGSTOP for a member until its group has gone on without it, and a late wake-up with a batch in hand."""
    app = _running(part.apps.of(GROUPS), rng)
    return _stopped(app, _hurt(app))


# ------------------------------------------------------------------------------------------------ what they rest on


def broker_killed(part: Part, rng: random.Random) -> Struck:
    """SIGKILL for the only broker, and back on the same data."""
    return _broker_killed(part, rng)


def broker_of_three_killed(part: Part, rng: random.Random) -> Struck:
    """SIGKILL for one of three brokers, and back on the same data."""
    return _broker_killed(part, rng)


def _broker_killed(part: Part, rng: random.Random) -> Struck:
    broker = part.cluster.broker
    node = rng.choice(broker.nodes)
    broker.kill(node)
    return Struck(("broker",), f"node {node}", lambda: broker.restart(node))


def broker_stopped(part: Part, rng: random.Random) -> Struck:
    """SIGSTOP for a broker."""
    broker = part.cluster.broker
    pid = broker.pid(rng.choice(broker.nodes))
    os.kill(pid, signal.SIGSTOP)
    return Struck(("broker",), "", lambda: os.kill(pid, signal.SIGCONT))


def journal_gone(part: Part, rng: random.Random) -> Struck:
    """SIGKILL for the journal's database, and back on the same data."""
    part.cluster.postgres.kill()
    return Struck(("journal",), "", part.cluster.postgres.restart)


def journal_hangs(part: Part, rng: random.Random) -> Struck:
    """The journal's database answers nobody for a while."""
    server = part.cluster.postgres
    server.send(signal.SIGSTOP)
    return Struck(("journal",), "", lambda: server.send(signal.SIGCONT))


def evidence_full(part: Part, rng: random.Random) -> Struck:
    """The disk under the evidence, a small file system of its own, is full."""
    if not os.path.ismount(part.evidence):
        raise NotNow("no file system could be mounted there, which takes the rights of root")
    ballast = part.evidence / "ballast"
    _fill(ballast)
    return Struck((), "", ballast.unlink)


def _fill(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)


# ------------------------------------------------------------------------------------------------ outsiders' hands


def deny_removed(part: Part, rng: random.Random) -> Struck:
    """Somebody removes every DENY of the source."""
    found = [a for a in part.admin.acls() if a.name == part.source and a.permission == "DENY"]
    if not found:
        raise NotNow("there is no DENY")
    part.admin.delete_acls(found)
    return Struck((), f"{len(found)} bindings")


def acl_removed(part: Part, rng: random.Random) -> Struck:
    """Somebody takes a group's right to read away, and gives it back later."""
    group = rng.choice(list(GROUPS))
    wanted = Acl("TOPIC", part.source, "PREFIXED", f"User:{group}", "*", "READ", "ALLOW")
    if wanted not in part.admin.acls():
        raise NotNow("it is gone already")
    part.admin.delete_acls([wanted])
    return Struck((group, *(a.name for a in part.apps.of({group: 1}))), str(wanted), lambda: part.grant_back([wanted]))


def retention_put_back(part: Part, rng: random.Random) -> Struck:
    """Somebody sets the source's retention to what it was."""
    part.admin.alter_topic_configs(part.source, set_=part.configs)
    return Struck((), str(part.configs))


def stray_write(part: Part, rng: random.Random) -> Struck:
    """Somebody whom no DENY reaches writes to the source."""
    n = part.stray()
    return Struck((), f"{n} records")


def resumed_by_hand(part: Part, rng: random.Random) -> Struck:
    """Somebody runs ``topicshift resume-on-source`` beside those who drive it."""
    code, _ = part.command("resume-on-source", part.migration_id, "--patience", "20")
    return Struck((), f"exit code {code}")


def paused_by_hand(part: Part, rng: random.Random) -> Struck:
    """Somebody runs ``topicshift pause``, and ends the pause later."""
    code, _ = part.command("pause", part.migration_id)
    return Struck((), f"exit code {code}", lambda: void(part.command("pause", part.migration_id, "--off")))


def void(_: object) -> None:
    """Nothing more."""


def aborted_by_hand(part: Part, rng: random.Random) -> Struck:
    """Somebody runs ``topicshift abort`` beside those who drive it: it ends the migration, or is refused."""
    code, _ = part.command("abort", part.migration_id, "--reason", "no more", "--yes", "--patience", "20")
    return Struck((), f"exit code {code}")


def source_made_again(part: Part, rng: random.Random) -> Struck:
    """Somebody deletes the source and makes it again."""
    part.admin.delete_topic(part.source)
    part.admin.create_topic(part.source, part.partitions, len(part.cluster.broker.nodes), part.configs)
    everybody: list[Any] = [*part.apps.all, *PRODUCERS, *GROUPS, "broker"]
    return Struck(tuple(everybody), part.source)


# ------------------------------------------------------------------------------------------------ the network


def _cut(part: Part, rng: random.Random, links: tuple[str, ...]) -> Struck:
    hosts = part.cluster.hosts
    if hosts is None:
        raise NotNow("there are no hosts of their own, which takes the rights of root")
    n = rng.randrange(hosts.count)
    for link in links:
        hosts.cut(n, link)

    def mend() -> None:
        for link in links:
            hosts.mend(n, link)

    apps = [a for a in part.apps.all.values() if a.host == n] if "kafka" in links else []
    return Struck(tuple(dict.fromkeys(name for a in apps for name in _hurt(a))), f"host {n}", mend)


def cut_from_broker(part: Part, rng: random.Random) -> Struck:
    """A host's link to the broker is cut, for its advancer, producers and consumers."""
    return _cut(part, rng, ("kafka",))


def cut_from_journal(part: Part, rng: random.Random) -> Struck:
    """A host's link to the journal is cut, for longer than a seat lasts, too."""
    return _cut(part, rng, ("journal",))


def host_cut(part: Part, rng: random.Random) -> Struck:
    """A host is cut off from the broker and from the journal."""
    return _cut(part, rng, LINKS)


COMMAND = ("one", "three", "executors")
"""Worlds in which processes of ``topicshift advance`` drive the migrations, each on a host of its own."""
SPARK_RUNS = ("check", "arm", "fence")
DENIED = ("fence", "certificate", "switch_producers", "wide_deny", "switch_consumer:ledger", "order_proof")

CLASSES: dict[str, Class] = {
    c.name: c
    for c in (
        Class(advancer_killed, worlds=COMMAND),
        Class(advancer_stopped, (2.0, 12.0), worlds=COMMAND),
        Class(advancer_wakes_late, (32.0, 36.0), worlds=COMMAND),
        Class(all_advancers_killed, worlds=COMMAND),
        Class(driver_killed, worlds=COMMAND, moments=SPARK_RUNS),
        Class(executor_killed, worlds=("executors",), moments=SPARK_RUNS),
        Class(triggered_twice, (5.0, 10.0), worlds=COMMAND),
        Class(producer_killed),
        Class(producer_stopped, (2.0, 14.0)),
        Class(consumer_killed),
        Class(consumer_stopped, (3.0, 12.0)),
        Class(broker_killed, (0.5, 4.0), worlds=("one", "executors", "airflow")),
        Class(broker_of_three_killed, (0.5, 8.0), worlds=("three",)),
        Class(broker_stopped, (1.0, 6.0)),
        Class(cut_from_broker, (3.0, 14.0), worlds=COMMAND),
        Class(cut_from_journal, (5.0, 36.0), worlds=COMMAND),
        Class(host_cut, (3.0, 14.0), worlds=COMMAND),
        Class(journal_gone, (1.0, 5.0)),
        Class(journal_hangs, (1.0, 8.0)),
        Class(evidence_full, (3.0, 8.0), worlds=COMMAND),
        Class(deny_removed, moments=DENIED),
        Class(acl_removed, (2.0, 5.0)),
        Class(retention_put_back),
        Class(stray_write),
        Class(resumed_by_hand),
        Class(paused_by_hand, (2.0, 6.0)),
        Class(aborted_by_hand, last=True),
        Class(source_made_again, last=True),
    )
}
"""Every class by its name, but those of Airflow's own processes (``airflow.py``)."""
