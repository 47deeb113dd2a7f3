"""One migration under faults: it is opened, driven by several advancers, struck, healed, ended and written down."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.chaos.draw import Planned
from tests.chaos.faults import CLASSES, Class, Heal, NotNow
from tests.chaos.history import Writer, read
from tests.chaos.judge import SLACK_S, WRITES_S, Violation, judge
from tests.chaos.looks import records_of, rows_of, whole_files
from tests.chaos.parts import GROUPS, PRODUCERS, Applications, Cluster, Minded

from lab.rights import allow, consumer_rights, grant, producer_rights
from topicshift.acts.open import open_migration
from topicshift.adapters.journal import SqlJournal
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.core.errors import Refused, TopicshiftError
from topicshift.core.kafka.cluster import Acl
from topicshift.core.spec.io import spec_from_params

BUDGET_S = 60.0
PROGRESS_S = 90.0
"""Within this time after a fault was healed applications and migration have gone on, and the next one may strike."""
HEAD_S = 15.0
"""For so long a new row of the journal is demanded as well; a Spark job may take longer."""
MOMENT_S = 120.0
"""A fault whose moment has not come within this time strikes without it, where it can."""
STRUCK_S = 45.0
"""A fault that finds nothing to strike is given up after this time, and another one has its turn."""
ENDS_S = 420.0
"""Within this time after all was healed the migration has ended."""
PATIENCE_S = 600
LOOK_S = 0.2
STOPS = 4
"""After so many stops with one error since all was healed, an operator closes the migration, as the error says."""


@dataclass
class Part:
    """One migration. ``cutover``: drain_first or producers_first."""

    cluster: Cluster
    name: str
    cutover: str
    seed: int
    advancer_count: int = 2
    partitions: int = 3
    said: Callable[[str], None] = lambda _: None
    advancers: list[Minded] = field(default_factory=list)
    struck: dict[str, int] = field(default_factory=dict)
    after_switch: int = 0
    violations: list[Violation] = field(default_factory=list)
    state: str = ""
    begun: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    why: str = ""

    def __post_init__(self) -> None:
        self.source, self.target = self.name, f"{self.name}-v2"
        self.owner = f"chaos/{self.name}"
        self.folder = self.cluster.folder / self.name
        self.history = Writer(self.folder / "world.jsonl", "world")
        self.rng = random.Random(f"{self.seed}/{self.name}")
        self.admin = KafkaAdmin(self.cluster.broker.superuser_config())
        self.journal = SqlJournal(self.cluster.journal_url)
        self.apps = Applications(self.cluster, self.source, self.folder, self.history)
        self.configs = {"retention.ms": str(3 * 86_400_000)}
        self.migration_id = ""
        self._strays = 0
        self._head = ""

    @classmethod
    def classes(cls) -> dict[str, Class]:
        """The classes of faults that may strike it."""
        return dict(CLASSES)

    @property
    def evidence(self) -> Path:
        """Where the evidence of this migration goes."""
        return self.cluster.evidence / self.migration_id

    # -------------------------------------------------------------------------------------------- the run

    def run(self, planned: list[Planned]) -> list[Violation]:
        """All of it; returns the broken promises."""
        try:
            self._open()
            for fault in planned:
                if not self._strike(fault):
                    break
            self._heal_and_end()
            self._write_down()
            events = read(self.folder.glob("*.jsonl"))
            self.violations = judge(events)
            return self.violations
        finally:
            self._close()

    def _open(self) -> None:
        self.admin.create_topic(self.source, self.partitions, len(self.cluster.broker.nodes), self.configs)
        rights = [acl for app in PRODUCERS for acl in producer_rights(app, self.source)]
        rights += [acl for app in GROUPS for acl in consumer_rights(app, self.source, app)]
        grant(self.cluster.broker.superuser_config(), [*rights, *allow("legacy", "TOPIC", self.source, "WRITE")])
        producers = [f"{app}-{n}" for app, count in PRODUCERS.items() for n in range(count)]
        facts = {"acls": self._acls(), "configs": self._configs(self.source)}
        names = {"source": self.source, "target": self.target, "groups": list(GROUPS), "producers": producers}
        self.history.add("begin", **names, **facts, budget_s=BUDGET_S, owner=self.owner, cutover=self.cutover)
        self.apps.start()
        self._until(lambda: min(self.apps.counts().values()) > 0, 90, "every application to go on")
        self.migration_id = self.begin()
        self.evidence.mkdir(parents=True, exist_ok=True)
        self.drive()

    def begin(self) -> str:
        """Open the migration; returns its id."""
        with KafkaAdmin(self._client()) as admin:
            claim, _ = open_migration(
                spec_from_params(self._spec()), admin=admin, journal=self.journal, owner=self.owner,
                owner_alive=lambda _: True,
            )  # fmt: skip
        return claim.migration_id

    def drive(self) -> None:
        """Let it be driven. Its evidence lies on a small disk of its own."""
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(self.evidence)], capture_output=True, check=False
        )
        self.one_more()

    def _client(self) -> dict[str, str]:
        return self.cluster.broker.config("topicshift")

    def _spec(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "target": self.target,
            "partitions": 2 * self.partitions,
            "cutover": self.cutover,
            "freeze_budget": f"{BUDGET_S:g}s",
            "approvals": dict.fromkeys(("plan", "freeze", "certificate", "retire"), "auto"),
            "producers": [{"name": app, "kind": "route", "principal": f"User:{app}"} for app in PRODUCERS],
            "consumers": [{"name": g, "kind": "route", "group": g, "stored_offsets": "none"} for g in GROUPS],
            "ordering": {"sequence_header": "seq"},
        }

    def one_more(self) -> Minded:
        """One more process of ``topicshift advance``, looked after as a supervisor does."""
        words = [sys.executable, "-m", "topicshift.cli", "advance", self.migration_id, "--json"]
        words += ["--patience", str(PATIENCE_S)]
        number = len(self.advancers)
        words, host = self.cluster.on(number % 2, words), number % 2
        made = Minded(f"advance-{number}", lambda _: words, self.folder, self.cluster.environment(), self.history, host)
        self.advancers.append(made)
        made.start()
        return made

    def at_work(self) -> Minded | None:
        """The advancer that holds the seat at this moment."""
        with contextlib.suppress(TopicshiftError):
            seat = self.journal.seat(self.migration_id)
            for advancer in self.advancers:
                process = advancer.process
                at = seat is not None and process is not None and process.alive
                if at and seat.holder.endswith(f"/{process.pid}"):  # type: ignore[union-attr]
                    return advancer
        return None

    # -------------------------------------------------------------------------------------------- looking after it

    def tend(self) -> None:
        """One look: start what has ended, note what the journal says, do what an operator is told to do."""
        self.apps.tend()
        self.mind()
        with contextlib.suppress(TopicshiftError):
            row = self.journal.current(self.migration_id)
            self.state = row.state if not row.active else ""
            self._head = row.updated_at
            self.begun |= {s.step for s in self.journal.steps(self.migration_id)}
        if self.state and self.state != "open":
            for advancer in self.advancers:
                advancer.over = True

    def mind(self) -> None:
        """Look after those who drive it."""
        # Each advancer has a Spark of its own: a small machine shall measure the keys once.
        if len(self.advancers) < self.advancer_count and "create_target" in self.begun and not self.over:
            self.one_more()
        for advancer in self.advancers:
            code = advancer.tend()
            if code is not None and code > 0:
                said = advancer.out
                if said.get("outcome") == "asks":
                    self.answer(said)
                error = said.get("error", {})
                kind = error.get("kind", "") if isinstance(error, Mapping) else ""
                if code in (3, 4) and kind:
                    self.errors.append(f"{kind}: {error.get('message', '')}"[:400])
                if code == 3 and kind:
                    self.resume()

    def answer(self, asked: Mapping[str, Any]) -> None:
        """A person says yes to what is asked."""
        of = ("--of", str(asked["of"])) if asked.get("of") else ()
        self.command("answer", self.migration_id, str(asked["question"]), "yes", *of)

    def resume(self) -> None:
        """A stop in a freeze: producers go back to the source, as the page for those on call says."""
        with contextlib.suppress(TopicshiftError):
            rows = {s.step: s.state for s in self.journal.steps(self.migration_id)}
            if rows.get("freeze") in ("intended", "done", "undoing") and "switch_producers" not in rows:
                self.command("resume-on-source", self.migration_id, "--patience", "20")

    def command(self, *words: str, timeout_s: float = 180.0) -> tuple[int, dict[str, Any]]:
        """One command to its end; its exit code and its answer."""
        line = [sys.executable, "-m", "topicshift.cli", *words, "--json"]
        ran = subprocess.run(
            line, env=self.cluster.environment(), capture_output=True, text=True, timeout=timeout_s, check=False
        )
        self.history.add("ended", who=words[0], code=ran.returncode, said=ran.stderr[-400:])
        with contextlib.suppress(ValueError):
            return ran.returncode, json.loads(ran.stdout)
        return ran.returncode, {}

    def _until(self, ready: Callable[[], bool], seconds: float, what: str) -> bool:
        deadline = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > deadline:
                self.history.add("gave_way", what_for=what, seconds=seconds)
                return False
            self.apps.tend() if not self.migration_id else self.tend()
            time.sleep(LOOK_S)
        return True

    @property
    def over(self) -> bool:
        """Whether the migration has ended."""
        return self.state not in ("", "open")

    # -------------------------------------------------------------------------------------------- faults

    def _has_begun(self, row: str) -> bool:
        """Whether this row of the journal was begun, for any group where it is one a group."""
        return any(step == row or step.startswith(f"{row}:") for step in self.begun)

    def _strike(self, planned: Planned) -> bool:
        """Wait for progress and for its moment, strike, and heal; False where the migration is over before."""
        self._demand_progress(planned)
        came = not planned.moment or self._until(
            lambda: self.over or self._has_begun(planned.moment), MOMENT_S, f"{planned.moment} for {planned.name}"
        )
        if self.over:
            return False
        if not came and self.classes()[planned.name].moments:
            return True  # before, it would find nothing to strike
        self._wait(planned.wait_s)
        one, deadline = self.classes()[planned.name], time.monotonic() + STRUCK_S
        while True:
            try:
                self._hit(one, planned)
                return True
            except NotNow as error:
                why = str(error)
            except TopicshiftError as error:  # the hand itself met another fault's effect
                why = str(error)
            if self.over or time.monotonic() > deadline:
                self.said(f"  {planned.name}: not struck ({why})")
                return not self.over
            self.tend()
            time.sleep(LOOK_S)

    def _hit(self, one: Class, planned: Planned) -> None:
        began = time.monotonic()
        done = one.strike(self, self.rng)
        switched = "switch_producers" in self.begun
        self.said(f"  {one.name} {done.said} ({planned.lasts_s:.1f} s) after {planned.moment or 'the beginning'}")
        if done.heal is not None:
            self._heal_later(done.heal, planned.lasts_s)
        until = time.monotonic()
        told = {"name": one.name, "hurts": list(done.hurts), "said": done.said, "until": until + 5.0}
        line = {"t": began, "who": "world", "what": "fault", "data": {**told, "after_switch": switched}}
        with (self.folder / "faults.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        self.struck[one.name] = self.struck.get(one.name, 0) + 1
        self.after_switch += switched

    def _heal_later(self, heal: Heal, seconds: float) -> None:
        """Heal in a thread of its own, so that it comes in time also where the harness itself has to wait for it."""
        failed: list[BaseException] = []

        def work() -> None:
            try:
                heal()
            except BaseException as error:  # raised below, where the run can end with it
                failed.append(error)

        timer = threading.Timer(seconds, work)
        timer.start()
        try:
            self._wait(seconds)
        finally:
            timer.join(300)
        if failed:
            raise failed[0]

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.tend()
            time.sleep(min(LOOK_S, max(0.0, until - time.monotonic())))

    def _demand_progress(self, planned: Planned) -> None:
        """Before a fault: every producer writes, or stands in a freeze, every group reads, and the journal goes on."""
        before, head, begun = self.apps.counts(), self._head, time.monotonic()
        missing: list[str] = []

        def went_on() -> bool:
            nonlocal missing
            now, still = self.apps.counts(), self.apps.still()
            missing = [a for a in now if now[a] <= before.get(a, 0) and a not in still]
            if still:
                # In a freeze nothing comes in, so groups have nothing to read.
                missing = [a for a in missing if a.rsplit("-", 1)[0] in PRODUCERS]
            groups = {a.rsplit("-", 1)[0] for a in now if a.rsplit("-", 1)[0] in GROUPS}
            # A member may have no partition of its own while another one has them all.
            done = {g for g in groups if any(now[a] > before.get(a, 0) for a in now if a.rsplit("-", 1)[0] == g)}
            missing = [a for a in missing if a.rsplit("-", 1)[0] not in done]
            if self._head == head and not self.over and time.monotonic() - begun < HEAD_S:
                missing.append("the journal")
            return not missing or self.over

        if not self._until(went_on, PROGRESS_S, "progress"):
            self.history.add("stuck", seconds=PROGRESS_S, before=planned.name, missing=", ".join(missing))

    # -------------------------------------------------------------------------------------------- hands

    def claim_again(self) -> None:
        """Another run begins on the same source; it has to be refused."""
        refused, said = True, ""
        try:
            with KafkaAdmin(self._client()) as admin:
                open_migration(
                    spec_from_params(self._spec()), admin=admin, journal=self.journal, owner=f"{self.owner}/second",
                    owner_alive=lambda _: True,
                )  # fmt: skip
            refused = False
        except Refused as error:
            said = str(error)
        except TopicshiftError:
            return  # it could not ask
        if refused and self.over:
            return
        self.history.add("claimed_again", refused=refused, said=said[:300])

    def grant_back(self, acls: Iterable[Acl]) -> None:
        """Create bindings that were taken away."""
        self.admin.create_acls(acls)

    def stray(self, records: int = 2) -> int:
        """Write to the source as a super user."""
        from confluent_kafka import Producer

        config = {**self.cluster.broker.superuser_config(), "message.timeout.ms": 15_000, "enable.idempotence": True}
        producer = Producer({**config, "partitioner": "murmur2_random"})
        for _ in range(records):
            key, seq = f"stray/{self._strays}", 0
            self._strays += 1
            self.history.add("try", who="stray", key=key, seq=seq)

            def done(error: Any, message: Any, key: str = key) -> None:
                if error is None:
                    place = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
                    self.history.add("ack", who="stray", key=key, seq=0, **place)

            producer.produce(self.source, b"x", key, headers=[("seq", str(seq))], on_delivery=done)
        producer.flush(20)
        return records

    # -------------------------------------------------------------------------------------------- the end

    def _heal_and_end(self) -> None:
        """Nothing goes wrong any more: the migration ends, everybody writes, and every group reads what there is."""
        self.history.add("healed")
        self.errors.clear()
        deadline = time.monotonic() + ENDS_S
        while not self.over and time.monotonic() < deadline:
            self.tend()
            if len(self.errors) >= STOPS:
                self._end_by_command()
                self.errors.clear()
            time.sleep(LOOK_S)
        before = self.apps.counts()
        self._until(lambda: all(n > before[a] for a, n in self.apps.counts().items() if a[:-2] in PRODUCERS), WRITES_S,
                    "producers to write")  # fmt: skip
        self._wait(2.0)
        self.apps.end(PRODUCERS)
        self._until(lambda: not self._behind(), 10.0 if self.left else SLACK_S, "groups to read what is left")
        self.apps.end(GROUPS)
        for advancer in self.advancers:
            advancer.end()

    def _end_by_command(self) -> None:
        """What the page for those on call says of a migration that will not go on."""
        self.why = self.errors[-1]
        self.command("resume-on-source", self.migration_id, "--patience", "30")
        code, said = self.command("close", self.migration_id, "--reason", "it does not go on", "--even-frozen")
        if code == 0:
            self.left = [str(line) for line in said.get("left", ())]

    def _behind(self) -> list[str]:
        """What was acknowledged and not given to a group yet."""
        events = read(self.folder.glob("*.jsonl"))
        wanted = {(e["topic"], e["partition"], e["offset"]) for e in events if e.what == "ack" and e.who != "stray"}
        out = []
        for group in GROUPS:
            had = {(e["topic"], e["partition"], e["offset"]) for e in events if e.what == "got" and e["group"] == group}
            out += [f"{group}: {len(wanted - had)} records"] if wanted - had else []
        return out

    def _acls(self) -> list[dict[str, Any]]:
        return [asdict(a) for a in sorted(self.admin.acls()) if a.name in (self.source, self.target)]

    def _configs(self, topic: str) -> dict[str, str | None]:
        info = self.admin.topic(topic)
        return {} if info is None else {n: c.value for n, c in info.configs.items() if c.set_here}

    def _write_down(self) -> None:
        """What the journal, the topics and the commands say in the end."""
        for line in records_of(self.cluster.broker.superuser_config(), (self.source, self.target)):
            self.history.add("record", **line)
        offset = time.monotonic() - time.time()
        with (self.folder / "journal.jsonl").open("w") as file:
            for e in self.journal.events(self.migration_id):
                for event in rows_of(e.kind, e.data, datetime.fromisoformat(e.at).timestamp() + offset):
                    file.write(json.dumps(asdict(event)) + "\n")
        row = self.journal.current(self.migration_id)
        audit, _ = self.command("audit", "verify", self.migration_id)
        _, status = self.command("status", self.migration_id)
        shown = (status.get("migrations") or [{}])[0]
        reasons = [str(e.data["reason"]) for e in self.journal.events(self.migration_id) if e.data.get("reason")]
        why = self.why or str(shown.get("waits_for") or "") or (reasons or [""])[-1]
        self.history.add(
            "end", state=row.state, active=row.active, why=why, left=self.left, audit=audit, acls=self._acls(),
            configs=self._configs(self.source), named=self._named(), evidence=whole_files(self.evidence),
        )  # fmt: skip

    def _named(self) -> list[list[int]]:
        """Records past the fence that the product named: partition and offset."""
        path = self.evidence / "strays.json"
        if not path.exists():
            return []
        known = json.loads(path.read_text())["generations"]
        return [[r["partition"], r["offset"]] for g in known for r in g["records"]]

    def _close(self) -> None:
        for app in (*self.apps.all.values(), *self.advancers):
            app.end(5.0)
        if self.migration_id and os.path.ismount(self.evidence):
            kept = self.folder / "evidence"
            shutil.copytree(self.evidence, kept, dirs_exist_ok=True)
            subprocess.run(["umount", "-l", str(self.evidence)], check=False)
            shutil.copytree(kept, self.evidence, dirs_exist_ok=True)
        self.admin.close()
        self.journal.close()
        self.history.close()
