"""The main job, end to end, on real parts: ``make demo``.

A real broker and a real Airflow in a run folder of their own, live producers and consumers, one migration through
Airflow's REST API as a person would trigger it, and the proof from the applications' own logs.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from lab.airflow_api import AirflowApi, AirflowError
from lab.demo_view import ASKS, View, duration_table, proof_table, steps_from
from lab.load_life import Life
from lab.load_proof import placement, prove
from lab.rights import allow, consumer_rights, grant, producer_rights
from lab.runfolder import FolderUnusable
from lab.stack import Stack, default_run_folder
from lab.stack_cli import FAILURES
from lab.upkeep import Upkeep
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.core.errors import TopicshiftError

DAG_IDS = {"drain_first": "topic_migration", "producers_first": "topic_migration_producers_first"}
"""The DAG of each order of the cut-over."""

SOURCE, TARGET = "payments", "payments-v2"
SOURCE_PARTITIONS = 6
RETENTION = {"retention.ms": str(3 * 86_400_000)}
"""Set on the source itself, so that the copy of a config shows."""

ANSWER_AFTER_S = 1.5
"""Nobody answers faster. The scheduler takes a task that is answered while it is still going to sleep for a lost one,
and tries it again; that takes as long as ``workers.min_heartbeat_interval`` (see deploy/airflow.env)."""

AFTER_S = 5.0
"""Traffic goes on for so long after the migration, so that the target is used by everybody."""


def form(groups: list[str], partitions: int, budget: str) -> dict[str, Any]:
    """The values of the form, as a person would fill them in."""
    return {
        "source": SOURCE,
        "target": TARGET,
        "partitions": partitions,
        "freeze_budget": budget,
        "approvals_plan": "required",
        "approvals_freeze": "required",
        "approvals_retire": "required",
        "producers": [{"name": "checkout", "kind": "route"}, {"name": "billing", "kind": "route"}],
        "consumers": [{"name": g, "kind": "route", "group": g, "stored_offsets": "none"} for g in groups],
        "ordering_sequence_header": "seq",
    }


def prepare(stack: Stack, life: Life) -> None:
    """Make the source with its ACLs: each application has a principal of its own; ``legacy`` may write too."""
    config = stack.broker.superuser_config()
    rights = [acl for app in life.producers for acl in producer_rights(app.name, SOURCE)]
    rights += [acl for app in life.consumers for acl in consumer_rights(app.name, SOURCE, app.name)]
    # Nobody uses it: it is there so that the write fence has somebody to deny.
    rights += allow("legacy", "TOPIC", SOURCE, "WRITE", "DESCRIBE")
    grant(config, rights)
    admin = KafkaAdmin(config)
    try:
        admin.create_topic(SOURCE, SOURCE_PARTITIONS, 1, RETENTION)
    finally:
        admin.close()


class Migration:
    """One run of the DAG, followed through the API until it ends."""

    def __init__(self, stack: Stack, life: Life, dag_id: str, run_id: str, view: View, approve: str) -> None:
        self.dag_id = dag_id
        self.api: AirflowApi = stack.airflow
        self.life = life
        self.run_id = run_id
        self.view = view
        self.approve = approve
        self.admin = KafkaAdmin(stack.broker.superuser_config())
        self._asked: dict[str, float] = {}
        self._looked = 0.0

    def follow(self, live: Live, timeout_s: float) -> Mapping[str, Any]:
        """Refresh the screen and answer questions until the run has ended; returns the run."""
        deadline = time.monotonic() + timeout_s
        while True:
            run = self.api.dag_run(self.dag_id, self.run_id)
            tasks = self.api.task_instances(self.dag_id, self.run_id)
            self._questions(tasks)
            self.view.steps = steps_from(tasks)
            self.view.freeze = freeze_words(self.life)
            self._lags()
            self._waits(tasks)
            live.update(self.view)
            self.life.check_alive()
            if run["state"] in ("success", "failed"):
                return run
            if time.monotonic() > deadline:
                raise TimeoutError(f"the migration has not ended within {timeout_s:.0f} s; see {self.api.url}")
            time.sleep(0.6)

    def _lags(self) -> None:
        if time.monotonic() - self._looked < 1.0:
            return
        self._looked = time.monotonic()
        try:
            ends = {t: self.admin.offsets(t) for t in (SOURCE, TARGET) if self.admin.topic(t) is not None}
            for group in self.life.groups:
                lags: list[int | None] = []
                for topic in (SOURCE, TARGET):
                    offsets = ends.get(topic)
                    if offsets is None:
                        lags.append(None)
                        continue
                    commits = self.admin.commits([group], topic, sorted(offsets))[group].offsets
                    lags.append(
                        None
                        if all(c is None for c in commits.values())
                        else sum((o.end or 0) - (commits.get(p) or o.log_start or 0) for p, o in offsets.items())
                    )
                self.view.lags[group] = (lags[0], lags[1])
        except TopicshiftError as error:
            self.view.waits = f"(the screen could not read the lag: {error})"

    def _questions(self, tasks: list[dict[str, Any]]) -> None:
        if not any(t["state"] == "deferred" for t in tasks):
            return
        for question in self.api.hitl_pending(self.dag_id, self.run_id):
            task_id = question["task_instance"]["task_id"]
            for task in tasks:
                if task["task_id"] == task_id and task["state"] == "deferred":
                    task["state"] = ASKS
            key = f"{task_id}:{question['task_instance'].get('try_number')}:{question.get('created_at')}"
            seen = self._asked.setdefault(key, time.monotonic())
            if self.approve == "me":
                if seen > 0:
                    self._asked[key] = 0
                    self.view.say(f"answer in Airflow: {question['subject']}  {self.api.url}/required_actions")
                continue
            if seen == 0 or time.monotonic() - seen < ANSWER_AFTER_S:
                continue
            self._asked[key] = 0
            try:
                self.api.hitl_answer(self.dag_id, self.run_id, task_id, question["options"][0])
            except AirflowError as error:
                if error.status != 409:
                    raise
            self.view.say(
                f"answered through the API as {self.api.user}: {question['subject']} {question['options'][0]}"
            )

    def _waits(self, tasks: list[dict[str, Any]]) -> None:
        waiting = [t for t in tasks if t["state"] == "deferred"]
        if not waiting:
            self.view.waits = ""
            return
        t = waiting[0]
        try:
            text = self.api.task_log(self.dag_id, self.run_id, t["task_id"], t["try_number"], map_index=t["map_index"])
        except AirflowError:
            return
        lines = [line for line in text.splitlines() if "not ready" in line or "to go" in line or "waiting: " in line]
        if lines:
            self.view.waits = lines[-1].strip()[:300]

    def failures(self) -> str:
        """The last lines of the log of every failed task."""
        out = []
        for t in self.api.task_instances(self.dag_id, self.run_id):
            if t["state"] == "failed":
                where = self.dag_id, self.run_id, t["task_id"], t["try_number"]
                log = self.api.task_log(*where, map_index=t["map_index"])
                out.append(f"{t['task_id']}:\n" + "\n".join(log.strip().splitlines()[-12:]))
        return "\n\n".join(out)


def freeze_words(life: Life) -> str:
    """The freeze clock, from what the producers themselves say."""
    who, seconds = life.frozen()
    return f"running for {seconds:.1f} s: {', '.join(who)} may not write" if who else "none: every producer writes"


def summarise(
    migration: Migration,
    run: Mapping[str, Any],
    proof: Mapping[str, Any],
    source: int | None,
    target: int | None,
    placed: Mapping[str, int],
) -> dict[str, Any]:
    """The content of ``summary.json``; ``ok`` says whether all is right."""
    steps = [
        {"name": s.name, "seconds": round(seconds, 2)}
        for s in steps_from(migration.api.task_instances(migration.dag_id, migration.run_id))
        if (seconds := s.seconds(time.time())) is not None
    ]
    clean = all(not (g["lost"] or g["duplicated"] or g["out_of_order"]) for g in proof["groups"].values())
    complete = all(g["processed"] >= proof["sent"] > 0 for g in proof["groups"].values())
    as_predicted = placed["records"] > 0 and not placed["misplaced_records"]
    return {
        "ok": bool(
            run["state"] == "success"
            and clean
            and complete
            and as_predicted
            and len(proof["groups"]) == len(migration.life.groups)
        ),
        "dag_run_id": migration.run_id,
        "dag_run_state": run["state"],
        **proof,
        "source_partitions": source,
        "target_partitions": target,
        "placement": dict(placed),
        "steps": steps,
    }


def fresh_folder(path: Path) -> Path:
    """An empty folder: logs of an earlier run would count as this one's."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def partitions(admin: KafkaAdmin, topic: str) -> int | None:
    """How many partitions a topic has; None if it does not exist."""
    info = admin.topic(topic)
    return None if info is None else info.partitions


def demo(args: argparse.Namespace, console: Console) -> int:
    """Run it. Returns the exit code: 0 only if everything is right."""
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.1f} s[/]  {text}", highlight=False)

    folder = Path(args.run_folder)
    stack = Stack(folder)
    life: Life | None = None
    migration: Migration | None = None
    kept = False
    try:
        say(f"starting a Kafka broker and Airflow in {folder} (about half a minute)")
        stack.start(say)
        logs = fresh_folder(folder / "life")
        life = Life(logs, stack.properties_file, topic=SOURCE)
        prepare(stack, life)
        life.backlog(args.backlog)
        say(f"{SOURCE}: {SOURCE_PARTITIONS} partitions, a backlog of {args.backlog:,} keyed records")
        life.start()
        say("live: 3 producer processes of checkout and billing, 2 consumer processes each of ledger, fraud, search")
        values = form(life.groups, args.partitions, args.freeze_budget)
        dag_id = DAG_IDS[args.cutover]
        run_id = stack.airflow.trigger(dag_id, values)
        say(f"triggered {dag_id} through Airflow's API: {run_id}")
        if args.approve == "me":
            facts = stack.facts()
            say(f"you approve: log in at {facts['airflow']} as admin, with the password in {facts['passwords']}")
        view = View(f"{SOURCE} -> {TARGET}   {stack.airflow.url}/dags/{dag_id}/runs/{run_id}")
        migration = Migration(stack, life, dag_id, run_id, view, args.approve)
        with Live(view, console=console, refresh_per_second=4, transient=False) as live:
            run = migration.follow(live, args.timeout)
        if not console.is_terminal:
            console.line()  # rich ends its last picture with a new line on a terminal alone
        if run["state"] != "success":
            console.print(migration.failures(), style="red", markup=False)
        say("letting the traffic go on for a moment, then stopping it and counting")
        time.sleep(AFTER_S)
        life.finish()
        proof = prove(logs)
        counts = [partitions(migration.admin, t) for t in (SOURCE, TARGET)]
        placed = placement(logs, TARGET, counts[1] or 1)
        summary = summarise(migration, run, proof, counts[0], counts[1], placed)
        args.summary.parent.mkdir(parents=True, exist_ok=True)
        args.summary.write_text(json.dumps(summary, indent=2) + "\n")
        console.print(proof_table(summary))
        console.print(duration_table(summary))
        say(f"{summary['keys']:,} keys, {counts[0]} -> {counts[1]} partitions; summary: {args.summary}")
        say(
            f"{placed['records']:,} records of {placed['keys']:,} keys met on {TARGET}, "
            f"{placed['misplaced_records']:,} of them not in the partition that the impact predicts"
        )
        say("[bold green]all is right[/]" if summary["ok"] else "[bold red]NOT all is right[/]")
        say(f"evidence: {stack.evidence}")
        if args.keep:
            kept = True
            keep(stack, console)
        return 0 if summary["ok"] else 1
    finally:
        if kept:
            say("stopping")
        if migration is not None:
            migration.admin.close()
        if life is not None:
            life.stop()
        stack.stop()


def keep(stack: Stack, console: Console) -> None:
    """Leave it running until Ctrl-C."""
    facts = stack.facts()
    console.print(f"Airflow: {facts['airflow']}  user admin, password in {facts['passwords']}")
    console.print(f"Kafka: {facts['bootstrap']}  client properties: {facts['kafka_config']}")
    look = f".venv/bin/topicshift status --journal {facts['journal']} --kafka-config {facts['kafka_config']}"
    console.print(f"Look: {look}", soft_wrap=True)
    console.print(f"Shell: . {facts['env']}", soft_wrap=True)
    console.print("Ctrl-C stops everything.")
    upkeep = Upkeep(lambda line: console.print(line, markup=False, soft_wrap=True))
    try:
        while True:
            time.sleep(1)
            before = upkeep.values()
            stack.keep_up(upkeep)
            if upkeep.values() != before:
                stack.announce(upkeep)
    except KeyboardInterrupt:
        return


def main(argv: list[str] | None = None) -> int:
    """Parse the words and run the demo; 1 with one line where a part failed, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--run-folder", default=str(default_run_folder("demo")))
    parser.add_argument("--summary", type=Path, default=None)
    parser.add_argument("--approve", choices=("api", "me"), default="api")
    parser.add_argument("--cutover", choices=("drain_first", "producers_first"), default="drain_first")
    parser.add_argument("--freeze-budget", default="120s")
    parser.add_argument("--partitions", type=int, default=30)
    parser.add_argument("--backlog", type=int, default=200_000)
    parser.add_argument("--timeout", type=float, default=900.0)
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args(argv)
    if args.summary is None:
        args.summary = Path(args.run_folder) / "summary.json"
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # its words would tear the live screen
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    console = Console(width=None if sys.stdout.isatty() else 110)
    try:
        return demo(args, console)
    except FolderUnusable as problem:
        console.print(f"error: {problem}", soft_wrap=True, markup=False)
        return 2
    except (*FAILURES, AirflowError, TopicshiftError) as problem:
        console.print(f"error: {problem}", soft_wrap=True, markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("stopped; everything that was started has been ended")
        return 130


if __name__ == "__main__":
    sys.exit(main())
