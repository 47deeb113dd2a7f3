"""What a migration with many participants costs against a small one: same traffic in all, same broker, same run.

Usage: ``python -m benchmarks.growth [--rounds N] [--cutover drain_first]``. The small case has 3 producer instances, 6
partitions and 3 groups; the large one 100, 200 and 50. Instances are real route clients, each with its connections and
acknowledgements of its own, many in a process. Both write 10 records a second in all, which are 500 deliveries a
second to fifty groups: the protocol is measured, on the very cores that broker, Spark, Airflow and every client run on.
The freeze is taken from the producers' own logs, from the first instance stopped to the last one running again; nothing
may be lost, duplicated or out of order in any group.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.freeze import by_dag

from lab.demo import DAG_IDS
from lab.load import numbered
from lab.load_life import App, Life
from lab.load_proof import prove
from lab.rights import allow, consumer_rights, grant, producer_rights
from lab.stack import Stack, default_run_folder
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.adapters.route_store import RouteStore

RECORDS_A_SECOND = 10.0
BACKLOG = 1_000
"""Records that each group has read before the migration begins."""
USER = "search"
"""The user of every consumer: its processes hold members of many groups."""


@dataclass(frozen=True)
class Case:
    """One size of a migration. ``producers``: per application, how many processes with how many instances each."""

    name: str
    producers: dict[str, tuple[int, int]]
    partitions: int
    groups: int
    groups_a_process: int

    @property
    def instances(self) -> int:
        """Producer instances in all."""
        return sum(processes * each for processes, each in self.producers.values())


CASES = (
    Case("small", {"checkout": (2, 1), "billing": (1, 1)}, partitions=6, groups=3, groups_a_process=1),
    Case("large", {"checkout": (4, 20), "billing": (1, 20)}, partitions=200, groups=50, groups_a_process=10),
)


class Crowd(Life):
    """The traffic of a case; a process may hold many instances, each with a log of its own."""

    def __init__(self, folder: Path, stack: Stack, topic: str, case: Case) -> None:
        names = [f"{topic}-group-{n:02d}" for n in range(case.groups)]
        super().__init__(
            folder,
            stack.properties_file,
            topic=topic,
            rate=RECORDS_A_SECOND / case.instances,
            producers=tuple(App(name, count) for name, (count, _) in case.producers.items()),
            consumers=tuple(App(name, 1) for name in names),
        )
        self.case = case
        self._logs: list[str] = []

    def start_producers(self) -> None:
        """Start every producer process with its instances; each instance owns keys of its own."""
        index = 0
        for name, (processes, each) in self.case.producers.items():
            for n in range(processes):
                log = f"sent-{name}-{n}"
                words = ["--name", name, "--rate", str(self.rate), "--seqs", str(self.seqs)]
                words += ["--instances", str(each), "--index", str(index)]
                words += ["--of", str(self.case.instances // each)]
                self._running[log] = self._process(log, name, "producer", *words).start()
                self._logs += [log] if each == 1 else [numbered(Path(log), i).name for i in range(each)]
                index += 1

    def start_consumers(self) -> None:
        """Start the processes of the groups, one member a group."""
        size = self.case.groups_a_process
        for at in range(0, len(self.groups), size):
            mine = self.groups[at : at + size]
            log = f"processed-{mine[0]}-0"
            words = ["--name", mine[0], "--group", ",".join(mine), "--offset-reset", "earliest"]
            words += ["--fetch-min-bytes", "1", "--fetch-wait-ms", "500"]  # Kafka's own
            self._running[log] = self._process(log, USER, "consumer", *words).start()
            self._logs += [f"processed-{group}-0" for group in mine]

    def wait_ready(self, timeout_s: float = 90.0) -> None:
        """Wait until every instance has read the route and goes by it."""
        deadline = time.monotonic() + timeout_s
        waiting = set(self._logs)
        while waiting:
            self.check_alive()
            waiting = {log for log in waiting if not any(e["event"] == "running" for e in self.events(log))}
            if waiting and time.monotonic() > deadline:
                raise RuntimeError(f"not ready within {timeout_s:g} s: {sorted(waiting)}")
            time.sleep(0.2)


@dataclass(frozen=True)
class Cost:
    """What one migration cost. ``freeze_s`` from the producers' logs, ``run_s`` from the trigger to the run's end."""

    freeze_s: float
    run_s: float
    load: float


def migrate(stack: Stack, crowd: Crowd, cutover: str) -> float:
    """The migration through Airflow, approvals automatic; how long the run took, in seconds."""
    began = time.monotonic()
    target, partitions = f"{crowd.topic}-v2", crowd.case.partitions * 2
    by_dag(stack, crowd.topic, target, crowd.groups, cutover, partitions=partitions, timeout=1800)
    return time.monotonic() - began


def measure(stack: Stack, folder: Path, topic: str, case: Case, cutover: str) -> Cost:
    """One migration of this size under live traffic. Raises where a record was lost, duplicated or out of order."""
    config = stack.broker.superuser_config()
    crowd = Crowd(folder / topic, stack, topic, case)
    crowd.folder.mkdir(parents=True)
    rights = [a for name in case.producers for a in producer_rights(name, topic)]
    rights += [a for g in crowd.groups for a in consumer_rights(USER, topic, g)]
    grant(config, list(dict.fromkeys(rights)) + allow("legacy", "TOPIC", topic, "WRITE"))
    with KafkaAdmin(config) as admin:
        admin.create_topic(topic, case.partitions, 1, {})
    try:
        crowd.backlog(BACKLOG)
        crowd.start()
        deadline = time.monotonic() + 300
        while any(crowd.counts()[g] < BACKLOG for g in crowd.groups) and time.monotonic() < deadline:
            time.sleep(1)
        run_s, load = migrate(stack, crowd, cutover), os.getloadavg()[0]
        time.sleep(3)
        crowd.finish()
    finally:
        crowd.stop()
    proof = prove(crowd.folder)
    bad = {g: r for g, r in proof["groups"].items() if r["lost"] or r["duplicated"] or r["out_of_order"]}
    if bad or proof["freeze_seconds"] is None or len(proof["groups"]) != case.groups:
        raise RuntimeError(f"{topic}: {bad or proof['freezes']}")
    return Cost(float(proof["freeze_seconds"]), run_s, load)


def main() -> int:
    """Print the figures as a table and as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cutover", choices=tuple(DAG_IDS), default="drain_first")
    parser.add_argument("--run-folder", default=str(default_run_folder("bench-growth")))
    args = parser.parse_args()
    stack = Stack(args.run_folder, unpause=tuple(DAG_IDS.values()))
    folder = stack.folder.path / f"life-{int(time.time())}"
    seen: dict[str, list[Cost]] = {case.name: [] for case in CASES}
    try:
        stack.start(lambda line: print(line, file=sys.stderr))
        with RouteStore(stack.broker.superuser_config()) as store:
            store.ensure_topics()
        for n in range(args.rounds):
            for case in CASES:
                cost = measure(stack, folder, f"{case.name}-{n}", case, args.cutover)
                seen[case.name].append(cost)
                print(f"round {n + 1}: {case.name}: {cost}", file=sys.stderr)
    finally:
        stack.stop()
    base = statistics.median(c.freeze_s for c in seen[CASES[0].name])
    print("| case | instances | partitions | groups | freeze, s (min, median, max) | ratio | run, s | load |")
    print("|---|---|---|---|---|---|---|---|")
    for case in CASES:
        freezes = [c.freeze_s for c in seen[case.name]]
        middle = statistics.median(freezes)
        row = f"{min(freezes):.2f}, {middle:.2f}, {max(freezes):.2f} | {middle / base:.2f}"
        whole, load = (statistics.median(getattr(c, f) for c in seen[case.name]) for f in ("run_s", "load"))
        print(
            f"| {case.name} | {case.instances} | {case.partitions} | {case.groups} | {row} | {whole:.0f} | {load:.1f} |"
        )
    print(json.dumps({name: [vars(c) for c in costs] for name, costs in seen.items()}), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
