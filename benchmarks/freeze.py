"""The freeze of our DAG against the same steps scripted with Kafka's own command-line tools: same traffic, same run.

Usage: ``python benchmarks/freeze.py [--backlog N] [--rounds N]``. One broker and one Airflow serve all variants, one
after the other, each on a topic of its own with three producer processes and three groups. The freeze is taken from the
producers' own logs: from the first one stopped to the last one running again.

The script is what a careful person writes: pause the producers, look at the end offsets until they stand still, deny
writes, describe each group until its lag is zero twice, look at the ends again, open the route on the target. It proves
less than the DAG does (no open transactions, no active producers, no reading of the tail). Its tools run with the JVM
options that Kafka's own scripts start them with.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lab.broker import AS_SHIPPED, kafka_command
from lab.demo import DAG_IDS
from lab.load_life import Life
from lab.load_proof import prove
from lab.rights import allow, consumer_rights, grant, producer_rights
from lab.stack import Stack, default_run_folder
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.adapters.route_store import RouteStore
from topicshift.core.route.records import GroupRoute, Route, State, serialise_route

TOOLS = "org.apache.kafka.tools"
KINDS = ("script", "drain_first", "producers_first")


class Script:
    """The runbook by hand, with Kafka's tools."""

    def __init__(self, stack: Stack, folder: Path, source: str, target: str, groups: list[str]) -> None:
        self.bootstrap = stack.broker.bootstrap
        self.properties = str(stack.properties_file("admin"))
        self.source, self.target, self.groups = source, target, groups
        self.out = folder

    def tool(self, name: str, *args: str, config: str = "--command-config", stdin: str | None = None) -> str:
        """Run one of Kafka's tools and return what it prints."""
        words = ("--bootstrap-server", self.bootstrap, config, self.properties, *args)
        command = kafka_command(f"{TOOLS}.{name}", *words, jvm=AS_SHIPPED)
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{name} ended with {done.returncode}: {done.stderr[-800:]}{done.stdout[-400:]}")
        return done.stdout

    def route(self, epoch: int, active: str, state: State, groups: dict[str, GroupRoute]) -> None:
        """Write the route with the console producer: the feature flag of this runbook."""
        lease_ms = 600_000 if state is State.PAUSED else None
        route = Route(self.source, active, state, epoch, lease_ms, pause=1, groups=groups)
        value = serialise_route(route).decode()
        self.tool(
            "ConsoleProducer",
            *("--topic", "__topicshift_routes", "--reader-property", "parse.key=true"),
            *("--reader-property", "key.separator=~"),
            stdin=f"{self.source}~{value}\n",
        )

    def ends(self) -> str:
        """End offsets of the source."""
        return "\n".join(sorted(self.tool("GetOffsetShell", "--topic", self.source).splitlines()))

    def lag(self, group: str) -> int:
        """Total lag of a group on the source."""
        rows = self.tool("consumer.group.ConsumerGroupCommand", "--describe", "--group", group).splitlines()
        mine = [r.split() for r in rows if f" {self.source} " in f" {r} "]
        if not mine:
            raise RuntimeError(f"{group} does not show on {self.source}")
        return sum(int(r[5]) if r[5].isdigit() else 1 for r in mine)

    def run(self) -> None:
        """All steps."""
        args = ["--create", "--topic", self.target, "--partitions", "30", "--replication-factor", "1"]
        self.tool("TopicCommand", *args)
        held = {g: GroupRoute(self.source) for g in self.groups}
        self.route(1, self.source, State.PAUSED, held)
        before = self.ends()
        while (now := self.ends()) != before:
            before = now
        deny = ["--add", "--deny-principal", "User:legacy", "--operation", "Write", "--topic", self.source]
        self.tool("AclCommand", *deny)
        for group in self.groups:
            zeros = 0
            while zeros < 2:
                zeros = zeros + 1 if self.lag(group) == 0 else 0
        if self.ends() != before:
            raise RuntimeError("the source was written to")
        self.route(2, self.target, State.OPEN, held)
        self.route(3, self.target, State.OPEN, {g: GroupRoute(self.target, came_from=self.source) for g in self.groups})


def by_dag(
    stack: Stack, source: str, target: str, groups: list[str], cutover: str, *, partitions: int = 30, timeout: int = 900
) -> None:
    """The migration through Airflow; approvals are automatic, as in the script."""
    conf = {
        "source": source,
        "target": target,
        "partitions": partitions,
        "approvals_plan": "auto",
        "approvals_freeze": "auto",
        "producers": [{"name": "checkout"}, {"name": "billing"}],
        "consumers": [{"name": g, "group": g, "stored_offsets": "none"} for g in groups],
        "ordering_sequence_header": "seq",
    }
    dag_id = DAG_IDS[cutover]
    run_id = stack.airflow.trigger(dag_id, conf)
    run = stack.airflow.wait_run(dag_id, run_id, timeout=timeout)
    if run["state"] != "success":
        raise RuntimeError(f"{run_id} {run['state']}: {stack.airflow.task_states(dag_id, run_id)}")


def measure(stack: Stack, folder: Path, source: str, backlog: int, act: Callable[[Life], None]) -> float:
    """Live traffic on a topic of its own, one variant, and its freeze in seconds. Raises where anything was lost."""
    config = stack.broker.superuser_config()
    life = Life(folder / source, stack.properties_file, topic=source)
    life.folder.mkdir(parents=True)
    rights = [a for p in life.producers for a in producer_rights(p.name, source)]
    rights += [a for c in life.consumers for a in consumer_rights(c.name, source, c.name)]
    grant(config, rights + allow("legacy", "TOPIC", source, "WRITE"))
    admin = KafkaAdmin(config)
    try:
        admin.create_topic(source, 6, 1, {})
        life.backlog(backlog)
        life.start()
        deadline = time.monotonic() + 300
        while any(life.counts()[g] < backlog for g in life.groups) and time.monotonic() < deadline:
            time.sleep(0.5)
        act(life)
        time.sleep(3)
        life.finish()
    finally:
        life.stop()
        admin.close()
    proof = prove(life.folder)
    bad = {g: r for g, r in proof["groups"].items() if r["lost"] or r["duplicated"] or r["out_of_order"]}
    if bad or proof["freeze_seconds"] is None:
        raise RuntimeError(f"{source}: {bad or 'the freeze did not end'}")
    return float(proof["freeze_seconds"])


def main() -> int:
    """Print the figures as a table and as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backlog", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=KINDS, help="one variant alone, without ratios")
    parser.add_argument("--run-folder", default=str(default_run_folder("bench-freeze")))
    args = parser.parse_args()
    stack = Stack(args.run_folder, unpause=tuple(DAG_IDS.values()))
    folder = stack.folder.path / f"life-{int(time.time())}"
    seen: dict[str, list[float]] = {kind: [] for kind in KINDS if args.only in (None, kind)}
    try:
        stack.start(lambda line: print(line, file=sys.stderr))
        with RouteStore(stack.broker.superuser_config()) as store:
            store.ensure_topics()  # the script's flag lives there as well
        for n in range(args.rounds):
            for kind in seen:
                source = f"{kind.replace('_', '-')}-{n}"
                target = f"{source}-v2"

                def act(life: Life, kind: str = kind, source: str = source, target: str = target) -> None:
                    if kind == "script":
                        Script(stack, folder, source, target, life.groups).run()
                    else:
                        by_dag(stack, source, target, life.groups, kind)

                seconds = measure(stack, folder, source, args.backlog, act)
                seen[kind].append(seconds)
                print(f"round {n + 1}: {kind}: {seconds:.2f} s", file=sys.stderr)
    finally:
        stack.stop()
    if args.only:
        print(json.dumps(seen))
        return 0
    base = statistics.median(seen["script"])
    print("| variant | freeze, s (min, median, max) | ratio to the script (medians) | goal |")
    print("|---|---|---|---|")
    for kind, goal in (("script", "-"), ("drain_first", "<= 2.0 s, 0.07"), ("producers_first", "<= 1.2 s, 0.04")):
        values = seen[kind]
        middle = statistics.median(values)
        print(f"| {kind} | {min(values):.2f}, {middle:.2f}, {max(values):.2f} | {middle / base:.3f} | {goal} |")
    print(json.dumps(seen), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
