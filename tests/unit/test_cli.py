"""The command line: exit codes, what goes to stdout and what to stderr, and no traceback ever."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from topicshift import cli
from topicshift.adapters.journal import SqlJournal
from topicshift.commands.common import kafka_options, kafka_options_if_wanted
from topicshift.core import errors
from topicshift.core.findings import Finding, Level
from topicshift.ports import Claim

INCLUDE = Path(__file__).parents[2] / "include"
SPEC = """
apiVersion: topicshift/v1
source: {source}
target: {source}-v2
partitions: 30
producers: [{{name: checkout, kind: route}}]
consumers: [{{name: ledger, kind: route, group: ledger}}]
"""


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("TOPICSHIFT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command line; gives exit code, stdout, stderr."""

    def call(*words: str) -> tuple[int, str, str]:
        code = cli.run(words)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return call


@pytest.fixture
def with_command(monkeypatch: pytest.MonkeyPatch) -> Callable[[click.Command], None]:
    """Puts a command in the place of ``size``."""

    def put(command: click.Command) -> None:
        monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: command)

    return put


# --------------------------------------------------------------------------------------------------- the shell


def test_help_names_every_command_and_imports_none_of_them() -> None:
    script = (
        "import sys; from topicshift import cli; code = cli.run(['--help']); "
        "print([m for m in sys.modules if m.split('.')[0] in "
        "('pydantic', 'sqlalchemy', 'confluent_kafka', 'kafka', 'rich', 'airflow', 'pyspark', 'pandas')], code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(INCLUDE)}
    )
    assert done.stdout.endswith("[] 0\n"), done.stdout + done.stderr
    for name in cli.COMMANDS:
        assert f"  {name} " in done.stdout


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_that_is_there_describes_itself(name: str, run: Any) -> None:
    code, out, err = run(name, "--help")
    if code == errors.Unreadable.exit_code:  # written by others, and told so when it is missing
        assert f"no '{name}' command" in err
    else:
        assert code == 0
        assert "Usage: topicshift" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lnt"], "Did you mean 'lint'?"),
        (["xyzzy"], "There are: lint"),
        (["--nonsense"], "No such option"),
        (["lint"], "Missing argument"),
        (["audit", "verify"], "Missing argument"),
        (["plan", "a.yaml"], "No Kafka cluster was named"),
        (["plan", "a.yaml", "--kafka-config", "nowhere.properties"], "nowhere.properties"),
        (["plan", "a.yaml", "--bootstrap-server", ""], "bootstrap"),
    ],
)
def test_wrong_use_is_2(words: list[str], said: str, run: Any) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert said in err


def test_nothing_at_all_shows_the_help_and_is_2(run: Any) -> None:
    code, out, err = run()
    assert code == 2
    assert "Commands:" in out + err


@pytest.mark.parametrize(
    ("exc", "wanted"),
    [
        (errors.SpecError("bad"), 2),
        (errors.NotFound("bad"), 2),
        (errors.PreflightFailed("bad"), 3),
        (errors.Refused("bad"), 3),
        (errors.OwnershipLost("bad"), 3),
        (errors.FenceBroken("bad"), 3),
        (errors.Unreadable("bad"), 4),
        (errors.Transient("bad"), 4),
        (errors.AccessDenied("bad"), 4),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (ZeroDivisionError("bad"), 4),
        (SystemError("bad"), 4),
        (SystemExit(3), 3),
    ],
)
def test_errors_become_exit_codes_and_one_message(
    exc: BaseException, wanted: int, run: Any, with_command: Callable[[click.Command], None]
) -> None:
    @click.command()
    def command() -> None:
        raise exc

    with_command(command)
    code, out, err = run("size")
    assert (code, out) == (wanted, "")
    assert len(err.splitlines()) == (0 if isinstance(exc, SystemExit) else 1)


def test_a_returned_number_is_the_exit_code(run: Any, with_command: Callable[[click.Command], None]) -> None:
    @click.command()
    def command() -> int:
        return 3

    with_command(command)
    assert run("size")[0] == 3


def test_the_shell_can_complete_commands(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TOPICSHIFT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "topicshift au")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert run() == (0, "plain,audit\n", "")


def test_the_debug_variable_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], with_command: Any
) -> None:
    @click.command()
    def command() -> None:
        raise ZeroDivisionError

    with_command(command)
    monkeypatch.setenv("TOPICSHIFT_DEBUG", "1")
    assert cli.run(["size"]) == 4
    assert "Traceback" in capsys.readouterr().err


def test_a_missing_module_is_named(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.COMMANDS, "ghost", "A command that is not there.")
    code, out, err = run("ghost")
    assert (code, out) == (4, "")
    assert "no 'ghost' command" in err


def test_a_missing_package_is_named(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_name: str) -> None:
        raise ModuleNotFoundError("No module named 'left_pad'", name="left_pad")

    monkeypatch.setattr(cli.importlib, "import_module", fail)
    code, _, err = run("size")
    assert code == 4
    assert "'left_pad'" in err


def _start(script: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(INCLUDE)},
    )


# A command that swallows whatever a Python signal handler could raise, as a call of a C library may.
DEAF = """
import sys, time, click
from topicshift import cli

@click.command()
def command():
    while True:
        try:
            print("ready", flush=True)
            time.sleep(600)
        except BaseException:
            pass

cli.LazyGroup.get_command = lambda *_: command
cli._GRACE_S = 0.2
cli.main(["size"])
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_it_even_where_a_handlers_exception_is_swallowed(number: int, code: int) -> None:
    process = _start(DEAF)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == code
    assert signal.Signals(number).name in err


def test_ctrl_c_lets_a_command_clean_up_first() -> None:
    script = """
import time, click
from topicshift import cli

@click.command()
def command():
    try:
        print("ready", flush=True)
        time.sleep(600)
    finally:
        print("cleaned up", flush=True)

cli.LazyGroup.get_command = lambda *_: command
cli.main(["size"])
"""
    process = _start(script)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, "cleaned up\n")
    assert "Interrupted" in err
    assert "Traceback" not in err


def test_a_reader_that_goes_away_is_no_traceback_and_no_yes() -> None:
    script = """
import click
from topicshift import cli

@click.command()
def command():
    for n in range(200000):
        click.echo("line %d" % n)

cli.LazyGroup.get_command = lambda *_: command
cli.main(["size"])
"""
    process = _start(script)
    assert process.stdout is not None
    assert process.stdout.readline() == "line 0\n"
    process.stdout.close()
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.returncode == 141
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()


# ---------------------------------------------------------------------------------------------------- options


def test_kafka_options_give_a_librdkafka_config(tmp_path: Path, run: Any, with_command: Any) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=one:9092\nsecurity.protocol=PLAINTEXT\n")
    seen: list[Any] = []

    @click.command()
    @kafka_options
    def command(kafka_config: dict[str, Any], as_json: bool) -> None:
        seen.append((kafka_config["bootstrap.servers"], kafka_config.get("security.protocol"), as_json))

    with_command(command)
    assert run("size", "--bootstrap-server", "two:9092")[0] == 0
    assert run("size", "--kafka-config", str(file), "--json")[0] == 0
    assert run("size", "--kafka-config", str(file), "--bootstrap-server", "two:9092")[0] == 0
    assert seen == [("two:9092", None, False), ("one:9092", "PLAINTEXT", True), ("two:9092", "PLAINTEXT", False)]


def test_a_cluster_can_be_left_out_where_it_is_not_needed(run: Any, with_command: Any) -> None:
    seen: list[Any] = []

    @click.command()
    @kafka_options_if_wanted
    def command(kafka_config: dict[str, Any] | None, as_json: bool) -> None:
        seen.append(kafka_config)

    with_command(command)
    assert run("size")[0] == 0
    assert seen == [None]


def test_a_password_on_the_command_line_is_refused(run: Any) -> None:
    code, out, err = run("status", "--journal", "postgresql://me:hunter2@db/journal")
    assert (code, out) == (2, "")
    assert "TOPICSHIFT_JOURNAL" in err
    assert "hunter2" not in err


def test_a_password_in_the_environment_is_used_and_not_shown(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICSHIFT_JOURNAL", "postgresql://me:hunter2@127.0.0.1:1/journal")
    code, out, err = run("status")
    assert (code, out) == (4, "")
    assert "127.0.0.1:1" in err
    assert "hunter2" not in err


# ------------------------------------------------------------------------------------------------------- lint


def test_lint_of_good_specs(tmp_path: Path, run: Any) -> None:
    (tmp_path / "a.yaml").write_text(SPEC.format(source="payments"))
    (tmp_path / "b.yml").write_text(SPEC.format(source="orders"))
    (tmp_path / "notes.txt").write_text("no spec")
    code, out, err = run("lint", str(tmp_path))
    assert code == 0
    assert len(out.splitlines()) == 2
    assert "payments to payments-v2, 30 partitions, drain_first" in out
    assert "2 specs, 0 with problems" in err
    code, out, _ = run("lint", str(tmp_path / "a.yaml"), "--json")
    assert json.loads(out) == {"ok": True, "files": [{"file": str(tmp_path / "a.yaml"), "ok": True, "problems": []}]}


def test_lint_names_every_problem(tmp_path: Path, run: Any) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(SPEC.format(source="payments") + "cutovr: drain_first\nfreeze_budget: soon\n")
    code, out, _ = run("lint", str(bad))
    assert code == 2
    assert "cutovr" in out
    assert "cutover" in out
    assert "freeze_budget" in out
    code, out, _ = run("lint", str(bad), "--json")
    found = json.loads(out)
    assert (code, found["ok"]) == (2, False)
    assert {p["path"] for p in found["files"][0]["problems"]} == {"cutovr", "freeze_budget"}
    assert all(p["seen"] and p["do"] for p in found["files"][0]["problems"])


def test_lint_of_what_is_not_there(tmp_path: Path, run: Any) -> None:
    code, out, _ = run("lint", str(tmp_path / "nothing.yaml"))
    assert code == 2
    assert "nothing.yaml" in out
    (tmp_path / "empty").mkdir()
    code, out, err = run("lint", str(tmp_path / "empty"))
    assert (code, out) == (2, "")
    assert "no .yaml file" in err


def test_lint_finds_two_specs_for_one_topic(tmp_path: Path, run: Any) -> None:
    (tmp_path / "a.yaml").write_text(SPEC.format(source="payments"))
    (tmp_path / "b.yaml").write_text(SPEC.format(source="payments").replace("target: payments-v2", "target: other"))
    code, out, _ = run("lint", str(tmp_path))
    assert code == 2
    assert "payments is also a topic of" in out


# ------------------------------------------------------------------------------------------------------- plan


class _Admin:
    closed = 0

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def close(self) -> None:
        _Admin.closed += 1


def _finding(level: Level, *, unknown: bool = False) -> Finding:
    return Finding(
        code="TS101",
        level=level,
        subject="consumers[0].group",
        seen="[red]group ledger was not found",
        why="It would lose records.",
        do="Correct the name.",
        unknown=unknown,
    )


@pytest.mark.parametrize(
    ("findings", "wanted"),
    [
        ([], 0),
        ([_finding(Level.WARNING), _finding(Level.INFO)], 0),
        ([_finding(Level.ERROR)], 3),
        ([_finding(Level.ERROR), _finding(Level.INFO, unknown=True)], 4),
    ],
)
def test_plan_prints_actions_and_findings(
    findings: list[Finding], wanted: int, tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from topicshift.adapters.kafka import admin
    from topicshift.core.plan import Action, Plan, SourceFacts, TargetShape
    from topicshift.steps import plan as steps_plan

    def make_plan(spec: Any, admin: Any, **_: Any) -> Plan:
        shape = {"partitions": 6, "replication_factor": 1, "configs": {}}
        return Plan(
            taken_at="2026-01-01T00:00:00+00:00",
            cluster_id="c",
            spec=spec,
            source=SourceFacts(name=spec.source, topic_id="t", **shape),
            target=TargetShape(name=spec.target, acls=[], **{**shape, "partitions": 30}),
            findings=findings,
            actions=[Action(step="create_target", text="create payments-v2: 30 partitions")],
            plan_hash="ab" * 32,
        )

    monkeypatch.setattr(admin, "KafkaAdmin", _Admin)
    monkeypatch.setattr(steps_plan, "make_plan", make_plan)
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.format(source="payments"))
    before = _Admin.closed
    code, out, err = run("plan", str(spec), "--bootstrap-server", "b:1")
    assert code == wanted
    assert "payments to payments-v2: 6 to 30 partitions" in out
    assert "create payments-v2: 30 partitions" in out
    assert out.count("TS101") == len(findings)
    assert out.count("[red]group ledger was not found") == len(findings)
    assert ("ok: nothing blocks" in out) == (wanted == 0)
    assert "No journal was found" in err
    code, out, _ = run("plan", str(spec), "--bootstrap-server", "b:1", "--json")
    assert code == wanted
    assert json.loads(out)["plan_hash"] == "ab" * 32
    assert _Admin.closed == before + 2


@pytest.mark.parametrize(("content", "said"), [(None, "cannot be read"), ("x", "not JSON"), ("[1]", "no JSON object")])
def test_plan_refuses_an_impact_that_is_none(content: str | None, said: str, tmp_path: Path, run: Any) -> None:
    spec, impact = tmp_path / "spec.yaml", tmp_path / "impact.json"
    spec.write_text(SPEC.format(source="payments"))
    if content is not None:
        impact.write_text(content)
    code, _, err = run("plan", str(spec), "--impact", str(impact), "--bootstrap-server", "b:1")
    assert code == 2
    assert said in err


# --------------------------------------------------------------------------------------------- audit, status


@pytest.fixture
def journal(tmp_path: Path) -> Any:
    journal = SqlJournal(f"sqlite:///{tmp_path}/airflow/topicshift/journal.db")
    yield journal
    journal.close()


@pytest.fixture
def migration(journal: SqlJournal) -> Claim:
    claim = journal.claim(
        cluster_id="c",
        source="payments",
        target="payments-v2",
        owner="topic_migration/manual__1",
        spec={"cutover": "drain_first", "consumers": [{"name": "l", "group": "ledger"}]},
        owner_alive=lambda _: True,
    )
    journal.set_plan(claim, "ab" * 32)
    journal.event(claim, "approved", "user:ann", {"act": "approve.plan", "about": {"plan_hash": "ab" * 32}})
    journal.intend(claim, "create_target", {"configs": {"a": "b"}})
    journal.finish(claim, "create_target", {"topic_id": "xyz"})
    return claim


def _break(tmp_path: Path, statement: str) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "airflow/topicshift/journal.db") as connection:
        connection.execute("DROP TRIGGER topicshift_events_no_update")
        connection.execute("DROP TRIGGER topicshift_events_no_delete")
        connection.execute(statement)


def test_audit_of_an_intact_trail(migration: Claim, run: Any) -> None:
    code, out, _ = run("audit", "verify", migration.migration_id)
    assert code == 0
    assert "intact: 5 events" in out
    code, out, _ = run("audit", "verify", migration.migration_id, "--json")
    found = json.loads(out)
    assert (code, found["intact"], found["events"], found["problems"]) == (0, True, 5, [])
    assert run("audit", "verify", migration.migration_id, "--head", found["head"])[0] == 0


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE topicshift_events SET actor = 'x' WHERE seq = 3", "row 3: changed"),
        ("DELETE FROM topicshift_events WHERE seq = 2", "row 2: missing"),
        ("DELETE FROM topicshift_events WHERE seq = 5", "row 5: truncated"),
        ("UPDATE topicshift_steps SET state = 'undone'", "step create_target: it is undone"),
    ],
)
def test_audit_of_a_broken_trail_names_the_row(
    statement: str, said: str, migration: Claim, tmp_path: Path, run: Any
) -> None:
    _break(tmp_path, statement)
    code, out, _ = run("audit", "verify", migration.migration_id)
    assert code == 3
    assert said in out
    code, out, _ = run("audit", "verify", migration.migration_id, "--json")
    found = json.loads(out)
    assert (code, found["intact"]) == (3, False)
    assert any(said in line for line in found["broken"])


def test_a_noted_head_finds_a_trail_that_was_rewritten_whole(journal: SqlJournal, migration: Claim, run: Any) -> None:
    other = "f" * 64
    for head, said in ((f"3:{other}", "row 3: changed"), (f"9:{other}", "row 9: truncated")):
        code, out, _ = run("audit", "verify", migration.migration_id, "--head", head)
        assert code == 3
        assert said in out
    assert run("audit", "verify", migration.migration_id, "--head", "nonsense")[0] == 2


def test_audit_export(migration: Claim, tmp_path: Path, run: Any) -> None:
    code, out, _ = run("audit", "export", migration.migration_id)
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [line["kind"] for line in lines[:-1]] == ["claimed", "plan", "approved", "step_intended", "step_finished"]
    assert lines[-1]["head"] == {"count": 5, "hash": lines[-2]["hash"]}
    code, out, _ = run("audit", "export", migration.migration_id, "--format", "text")
    assert code == 0
    assert "approved  by user:ann" in out
    assert "about.plan_hash: abab" in out
    file = tmp_path / "trail.jsonl"
    code, out, err = run("audit", "export", migration.migration_id, "--output", str(file))
    assert (code, out) == (0, "")
    assert len(file.read_text().splitlines()) == 6
    assert run("audit", "export", migration.migration_id, "--output", str(tmp_path / "no" / "file"))[0] == 4
    _break(tmp_path, "DELETE FROM topicshift_events WHERE seq = 2")
    code, out, err = run("audit", "export", migration.migration_id)
    assert code == 3
    assert len(out.splitlines()) == 5
    assert "row 2: missing" in err


@pytest.mark.parametrize("words", [["audit", "verify", "m"], ["audit", "export", "m"], ["status"], ["status", "m"]])
def test_without_a_journal_it_says_so_and_makes_none(words: list[str], tmp_path: Path, run: Any) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert "no journal" in err
    assert not (tmp_path / "airflow").exists()


@pytest.mark.parametrize("words", [["audit", "verify"], ["audit", "export"], ["status"]])
def test_an_unknown_migration_is_2(words: list[str], migration: Claim, run: Any) -> None:
    code, out, err = run(*words, "paymnts")
    assert (code, out) == (2, "")
    assert "paymnts" in err


def test_status_tells_step_owner_freeze_and_what_it_waits_for(journal: SqlJournal, migration: Claim, run: Any) -> None:
    code, out, _ = run("status", "--json")
    [one] = json.loads(out)["migrations"]
    assert code == 0
    assert (one["step"], one["owner"], one["epoch"]) == ("stop_producers", "topic_migration/manual__1", 1)
    assert one["freeze"] is None
    assert one["rollback"]["type"] is None
    assert "--bootstrap-server" in one["rollback"]["why"]
    assert [s["state"] for s in one["steps"][:4]] == ["done", "done", "done", "running"]
    freeze = {
        "started_at": "2026-01-01T00:00:00+00:00",
        "lease_until": "2026-01-01T00:02:00+00:00",
        "act_until": "2026-01-01T00:01:54+00:00",
    }
    journal.intend(migration, "freeze", freeze)
    journal.event(migration, "asked", "topicshift", {"act": "switch", "subject": "Switch the producers?"})
    [one] = json.loads(run("status", "payments-v2", "--json")[1])["migrations"]
    assert one["freeze"]["running"]
    assert one["freeze"]["seconds_left"] < 0
    assert one["waits_for"] == "a person to answer: Switch the producers?"
    journal.finish(migration, "freeze", {**freeze, "ended_at": "2026-01-01T00:00:07.5+00:00", "how": "switched"})
    [one] = json.loads(run("status", migration.migration_id, "--json")[1])["migrations"]
    assert (one["freeze"]["running"], one["freeze"]["seconds"], one["freeze"]["how"]) == (False, 7.5, "switched")
    for words in (["status"], ["status", "payments"]):
        code, out, _ = run(*words)
        assert code == 0
        assert "payments" in out
        assert "7.5 s" in out


def test_status_shows_open_ones_unless_asked_for_all(journal: SqlJournal, migration: Claim, run: Any) -> None:
    journal.set_state(migration, "done", active=False)
    code, out, _ = run("status")
    assert code == 0
    assert "No migration is open" in out
    [one] = json.loads(run("status", "--all", "--json")[1])["migrations"]
    assert one["state"] == "done"
    assert one["waits_for"].startswith("its retirement")


class _Cluster(_Admin):
    records: int | None = 0
    source: object | None = object()

    def cluster(self) -> object:
        return object()

    def topic(self, name: str) -> object | None:
        if self.records is None:
            raise errors.Unreadable("the broker does not answer")
        return self.source if name == "payments" else object()

    def offsets(self, _topic: str) -> dict[int, Any]:
        from topicshift.ports import PartitionOffsets

        return {0: PartitionOffsets(0, self.records, self.records)}


@pytest.mark.parametrize(
    ("records", "source", "kind", "wanted"),
    [
        (0, object(), "free", 0),
        (7, object(), "drain_back", 0),
        (7, None, "forward_only", 0),
        (None, object(), None, 4),
    ],
)
def test_status_computes_the_type_of_rollback_live(
    records: int | None,
    source: object | None,
    kind: str | None,
    wanted: int,
    migration: Claim,
    run: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from topicshift.adapters.kafka import admin

    monkeypatch.setattr(_Cluster, "records", records)
    monkeypatch.setattr(_Cluster, "source", source)
    monkeypatch.setattr(admin, "KafkaAdmin", _Cluster)
    code, out, _ = run("status", "payments", "--json", "--bootstrap-server", "b:1")
    [one] = json.loads(out)["migrations"]
    assert (code, one["rollback"]["type"]) == (wanted, kind)
