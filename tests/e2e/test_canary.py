"""Secrets stay where they were put: canaries in every connection are looked for everywhere, during a run and after."""

from __future__ import annotations

import base64
import json
import os
import stat
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import sqlalchemy as sa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from fastapi.routing import APIRoute
from tests.e2e.small import Run, Topic, until

from lab.broker import EmbeddedBroker, new_password
from lab.runfolder import write_private
from lab.stack import ORCHESTRATOR, Progress, Stack
from topicshift import cli
from topicshift.adapters.journal import SqlJournal
from topicshift_airflow.web import app

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.postgres,
    pytest.mark.timeout(1800),
    pytest.mark.long,
]

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 1 << 20
"""Bytes of a file beyond which it is a jar, and no credentials."""

FENCE, BY_HAND, SWITCH = "stop_producers.fence", "switch_producers.by_hand", "switch_consumers.switch"


class CanaryStack(Stack):
    """A stack whose connections all hold a secret of their own, in the form that is easiest to lose it from."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "run", postgres=True)
        self.tmp = folder / "tmp"
        self.tmp.mkdir(mode=0o700)
        places = ("journal", "spark", "hook", "hook path", "metadata", "connect", "mail", *PARTICIPANTS, "http header")
        self.canaries = {name: f"canary{new_password()}" for name in places}

    def _start_airflow(self, broker: EmbeddedBroker, progress: Progress) -> None:
        self.canaries |= {f"kafka {user}": word for user, word in broker.users.items()}
        key = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        self.canaries["signing"] = key.splitlines()[1]
        # The embedded PostgreSQL asks for no password, and takes any.
        self.journal_url = _with_password(self.journal_url, self.canaries["journal"])
        self._database_url = _with_password(str(self._database_url), self.canaries["metadata"])
        connections: dict[str, dict[str, Any]] = {
            "kafka_default": {"conn_type": "kafka", "extra": broker.config(ORCHESTRATOR)},
            "spark_default": {
                "conn_type": "spark",
                "host": "local[*]",
                "password": self.canaries["spark"],
                "extra": {"deploy-mode": "client"},
            },
            "topicshift_alarms": {
                "conn_type": "http",
                "host": "http://127.0.0.1:9",
                "password": self.canaries["hook"],
                "extra": {"path": f"/{self.canaries['hook path']}"},
            },
            "connect_default": {
                "conn_type": "http",
                "host": "http://127.0.0.1:9",
                "login": "topicshift",
                "password": self.canaries["connect"],
            },
            "smtp_default": {
                "conn_type": "smtp",
                "host": "127.0.0.1",
                "port": 9,
                "login": "topicshift",
                "password": self.canaries["mail"],
                "extra": {"disable_ssl": True, "disable_tls": True, "timeout": 2, "retry_limit": 1},
            },
            "topicshift_signing": {"conn_type": "generic", "password": key},
            **self._participants(),
        }
        self._environment |= {f"AIRFLOW_CONN_{name.upper()}": json.dumps(c) for name, c in connections.items()}
        page = (ROOT / "docs" / "notifications.md").read_text("utf-8")
        self._environment["AIRFLOW_VAR_TOPICSHIFT_NOTIFIERS"] = page.split("```json\n")[1].split("```")[0]
        self._environment["TMPDIR"] = str(self.tmp)
        super()._start_airflow(broker, progress)

    def _participants(self) -> dict[str, dict[str, Any]]:
        """Connections of the kinds that a service moves; at none of them anybody answers."""
        nobody = {"conn_type": "http", "host": "http://127.0.0.1:9"}
        file = self.folder.folder("kube") / "config"
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
            "users": [{"name": "u", "user": {"token": self.canaries["kubernetes"]}}],
        }
        write_private(file, json.dumps(config))
        return {
            "http_default": {
                **nobody,
                "login": "topicshift",
                "password": self.canaries["http"],
                "extra": {"headers": {"X-Key": self.canaries["http header"]}},
            },
            "flink_default": {**nobody, "password": self.canaries["flink"]},
            "kubernetes_default": {"conn_type": "kubernetes", "extra": {"kube_config_path": str(file)}},
        }


PARTICIPANTS = ("http", "flink", "kubernetes")


def _with_password(url: str, word: str) -> str:
    return sa.make_url(url).set(password=word).render_as_string(hide_password=False)


def spellings(secret: str) -> Iterator[bytes]:
    """A secret as it is, and as it stands inside base64, whatever is before it."""
    yield secret.encode()
    for before in range(3):
        text = base64.b64encode(b"\0" * before + secret.encode())
        yield text[4 if before else 0 : -4]


@dataclass
class Hunt:
    """Looks for canaries, and keeps where one was found; never the secret itself."""

    canaries: Mapping[str, str]
    found: set[str] = field(default_factory=set)
    looked_at: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._spelt = [(name, text) for name, secret in self.canaries.items() for text in spellings(secret)]

    def look(self, kind: str, where: str, data: bytes) -> None:
        self.looked_at[kind] = self.looked_at.get(kind, 0) + 1
        self.found |= {f"{name}: {kind} {where}" for name, text in self._spelt if text in data}

    def files(self, kind: str, folder: Path, *but: Path) -> None:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path not in but:
                self.look(kind, str(path.relative_to(folder)), path.read_bytes())

    def database(self, kind: str, url: str) -> None:
        engine = sa.create_engine(url)
        with engine.connect() as connection:
            for table in sa.inspect(connection).get_table_names():
                for row in connection.execute(sa.text(f'SELECT * FROM "{table}"')):
                    text = "\n".join(v.decode("latin-1") if isinstance(v, bytes) else str(v) for v in row)
                    self.look(kind, table, text.encode("utf-8", "replace"))
        engine.dispose()

    def processes(self) -> None:
        for process in psutil.process_iter():
            try:
                words = "\0".join(process.cmdline())
            except psutil.Error:
                continue
            self.look("arguments", words.split("\0", 1)[0], words.encode("utf-8", "replace"))

    def open_to_others(self, folder: Path) -> None:
        """Files that hold a secret for a while are nobody else's to read, nor is any folder on the way to them."""
        # Folders come and go meanwhile, which ends pathlib's walk with an error.
        for path in (Path(at) / name for at, _, names in os.walk(folder) for name in names):
            try:
                small = path.is_file() and path.stat().st_size < LARGEST
                if small and any(text in path.read_bytes() for _, text in self._spelt):
                    self.looked_at["secret files"] = self.looked_at.get("secret files", 0) + 1
                    if stat.S_IMODE(path.stat().st_mode) & 0o077:
                        self.found.add(f"a file that others may read: {path.name}")
            except OSError:
                continue  # gone meanwhile

    @contextmanager
    def all_along(self, folder: Path) -> Iterator[None]:
        """Look at the arguments of all processes, and at temporary files, again and again."""
        over = threading.Event()

        def work() -> None:
            try:
                while not over.wait(0.05):
                    self.processes()
                    self.open_to_others(folder)
            except Exception as error:  # one that has died would find nothing any more
                self.found.add(f"the hunt died: {error!r}")

        thread = threading.Thread(target=work, name="hunt")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(30)


def moved(stack: CanaryStack, topic: Topic) -> Run:
    """A whole migration, its Spark jobs and questions included."""
    run = Run.start(stack.airflow, "topic_migration", topic.values(approvals_plan="required"))
    run.answer("approve.plan")
    run.answer(FENCE)
    run.question(BY_HAND)
    topic.write(topic.target, 20)
    run.answer(BY_HAND)
    run.answer(SWITCH, map_index=0)
    with topic.admin() as admin:
        until(
            lambda: (
                None not in dict(admin.commits([topic.group], topic.target, range(6))[topic.group].offsets).values()
            ),
            "the group's offsets on the target",
            timeout=1200,
        )
    with topic.reading(topic.target):
        run.wait("success")
    return run


def silent(stack: CanaryStack) -> None:
    """A plan for applications whose services are not there: what is said of each names no secret."""
    topic = Topic(stack, "silent", "silent-ledger").make()
    settings: dict[str, dict[str, Any]] = {
        "connect": {"connector": "archive"},
        "flink": {
            "job": "archive",
            "jar": "jobs.jar",
            "entry_class": "shop.Archive",
            "args": ["--from", "{topic}", "--uid", "{uid}"],
        },
        "kubernetes": {"workload": "Deployment/archive", "namespace": "shop", "topic_in": "env:TOPIC"},
        "http": {
            "stop": {"path": "/run", "method": "PUT", "body": {"run": False}},
            "point": {"path": "/topic", "method": "PUT", "body": {"topic": "${topic}"}},
            "start": {"path": "/run", "method": "PUT", "body": {"run": True}},
            "observe": {
                "path": "/state",
                "running": {"/state": "running"},
                "stopped": {"/state": "stopped"},
                "topic": "/topic",
            },
            "restarts_on": "pointed",
        },
    }
    sinks = [
        {"name": kind, "kind": kind, "group": f"silent-{kind}", "stored_offsets": "none", "settings": values}
        for kind, values in settings.items()
    ]
    run = Run.start(stack.airflow, "topic_migration", topic.values(consumers=sinks)).wait("failed")
    with closing(SqlJournal(stack.journal_url)) as journal:
        (row,) = journal.find(source=topic.name)
    plan = json.loads((stack.evidence / row.migration_id / "plan.json").read_text())
    said = " ".join(found["seen"] for found in plan["findings"] if found["subject"] == "unable")
    assert [kind for kind in settings if f"{kind}: " not in said] == [], run.failures()


def served(stack: CanaryStack, migration_id: str, hunt: Hunt) -> None:
    """Every page and every file of evidence, as the web server gives it to somebody who may read it."""
    passwords = json.loads(stack.services.passwords_file.read_text())
    who = {"username": "admin", "password": passwords["admin"]}
    with closing(SqlJournal(stack.journal_url)) as journal:
        dag_id, _, run_id = journal.current(migration_id).owner.partition("/")
    names = {"migration_id": migration_id, "folder": migration_id}
    pages = [route.path.format(**names, name="report.html") for route in app.routes if isinstance(route, APIRoute)]
    pages += [f"/evidence/{migration_id}/{file.name}" for file in sorted((stack.evidence / migration_id).iterdir())]
    with httpx.Client(base_url=stack.services.url, trust_env=False, timeout=60) as client:
        token = client.post("/auth/token", json=who).json()["access_token"]
        for path in dict.fromkeys(pages):
            asked = {"dag_id": dag_id, "run_id": run_id} if path == "/run" else None
            page = client.get(f"/topicshift{path}", params=asked, headers={"Authorization": f"Bearer {token}"})
            assert page.status_code == 200, (path, page.status_code)
            hunt.look("pages", path, page.content + str(page.headers).encode())
    assert f"/migrations/{migration_id}" in pages and len(pages) > 10


def test_no_secret_leaves_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stack = CanaryStack(tmp_path)
    with stack:
        hunt = Hunt(stack.canaries)
        topic = Topic(stack, "canaries", "canaries-ledger").make()
        with hunt.all_along(stack.tmp):
            moved(stack, topic)
            bad = topic.values(consumers=[{"name": "x", "kind": "manual", "group": "nobody"}], source="nowhere")
            Run.start(stack.airflow, "topic_migration", bad).wait("failed")
            silent(stack)
        journal = SqlJournal(stack.journal_url)
        (row,) = journal.find(source=topic.name)
        journal.close()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TOPICSHIFT_JOURNAL", stack.journal_url)
            patch.setenv("TOPICSHIFT_EVIDENCE", str(stack.evidence))
            patch.setenv("AIRFLOW_CONN_SIGNING", stack._environment["AIRFLOW_CONN_TOPICSHIFT_SIGNING"])
            out = tmp_path / "audit.zip"
            words = ["audit", "export", row.migration_id, "--out", str(out), "--key-conn-id", "signing"]
            assert cli.run(words) == 0
            for more in (
                ["status", row.migration_id],
                ["audit", "verify", row.migration_id],
                ["audit", "verify", str(out)],
            ):
                assert cli.run(more) == 0
        said = capsys.readouterr()
        assert "no SHA-256" not in said.out, "a file of evidence that the trail does not name"
        hunt.look("command line", "stdout and stderr", (said.out + said.err).encode())
        served(stack, row.migration_id, hunt)
        hunt.database("journal", stack.journal_url)
        hunt.database("metadata", str(stack._database_url))
    with zipfile.ZipFile(out) as archive:
        for name in archive.namelist():
            hunt.look("bundle", name, archive.read(name))
    hunt.files("logs", stack.folder.folder("logs"))
    hunt.files("evidence and work", stack.home)
    hunt.files("Airflow's home", stack.folder / "airflow", stack.folder / "airflow" / "airflow.cfg")
    hunt.files("temporary files", stack.tmp)
    hunt.look("broker's log", "node 1", (stack.folder / "kafka" / "node-1.log").read_bytes())
    assert hunt.found == set()
    # What was not looked at is no proof of anything.
    for kind in ("arguments", "journal", "metadata", "bundle", "logs", "evidence and work", "secret files", "pages"):
        assert hunt.looked_at.get(kind), f"nothing of {kind} was looked at: {hunt.looked_at}"
