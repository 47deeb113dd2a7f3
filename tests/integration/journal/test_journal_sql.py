"""What only a real database can show: races between processes, kills, tampering, schema upgrades."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from topicshift.adapters.journal import SqlJournal, schema
from topicshift.adapters.journal.engine import Database, make_engine
from topicshift.adapters.journal.tables import events, locks, metadata, migrations, steps
from topicshift.adapters.journal.urls import from_airflow_uri
from topicshift.core.errors import NotFound, OwnershipLost, Refused, Unreadable
from topicshift.core.proof import audit
from topicshift.ports import Claim

INCLUDE = Path(__file__).parents[3] / "include"


_open: list[Callable[[], None]] = []


@pytest.fixture(autouse=True)
def close_all() -> Iterator[None]:
    yield
    while _open:
        _open.pop()()


def opened(url: str, *, create: bool = True) -> SqlJournal:
    journal = SqlJournal(url, create=create)
    _open.append(journal.close)
    return journal


def claim(journal: SqlJournal, owner: str, source: str = "a", target: str = "b") -> Claim | None:
    """The claim, or None if it was refused."""
    try:
        return journal.claim(
            cluster_id="c", source=source, target=target, owner=owner, spec={}, owner_alive=lambda _: True
        )
    except Refused:
        return None


def engine_of(url: str) -> sa.Engine:
    engine = make_engine(from_airflow_uri(url))
    _open.append(engine.dispose)
    return engine


def held_topics(url: str) -> Counter[str]:
    with engine_of(url).connect() as connection:
        return Counter(connection.execute(sa.select(locks.c.migration_id)).scalars())


# ------------------------------------------------------------------------------------------------------ races


@pytest.mark.parametrize("pairs", [[("a", "b")], [("a", "b"), ("b", "a")], [("a", "b"), ("b", "c"), ("c", "a")]])
def test_of_all_who_claim_at_once_one_wins(journal_url: str, pairs: list[tuple[str, str]]) -> None:
    opened(journal_url).find()
    racers = 6
    start = threading.Barrier(racers)

    def race(number: int) -> list[Claim | None]:
        journal = opened(journal_url)
        journal.find()
        won = []
        for n in range(5):
            source, target = pairs[number % len(pairs)]
            start.wait(timeout=60)
            won.append(claim(journal, f"run-{number}-{n}", f"{source}{n}", f"{target}{n}"))
        journal.close()
        return won

    with ThreadPoolExecutor(racers) as pool:
        results = list(pool.map(race, range(racers)))
    for n in range(5):
        winners = [r[n] for r in results if r[n] is not None]
        assert len(winners) == 1, f"round {n}: {winners}"
    assert set(held_topics(journal_url).values()) == {2}


def test_replacing_an_ended_run_happens_once(journal_url: str) -> None:
    first = opened(journal_url)
    old = claim(first, "ended")
    assert old is not None
    start = threading.Barrier(4)

    def race(number: int) -> Claim | None:
        journal = opened(journal_url)
        journal.find()
        start.wait(timeout=60)
        try:
            return journal.claim(
                cluster_id="c",
                source="a",
                target="b",
                owner=f"run-{number}",
                spec={},
                owner_alive=lambda owner: owner != "ended",
            )
        except Refused:
            return None

    with ThreadPoolExecutor(4) as pool:
        winners = [c for c in pool.map(race, range(4)) if c is not None]
    assert len(winners) == 1
    assert held_topics(journal_url) == {winners[0].migration_id: 2}
    with pytest.raises(OwnershipLost):
        first.event(old, "note", "ended", {})


def test_an_owner_that_acts_while_it_is_being_replaced(journal_url: str) -> None:
    """Between the question whether a run lives and the claim, that run may act: then it is not replaced."""
    journal = opened(journal_url)
    old = claim(journal, "slow")
    assert old is not None

    def asked(_owner: str) -> bool:
        journal.intend(old, "create_target", {})
        return False

    with pytest.raises(Refused, match="slow"):
        journal.claim(cluster_id="c", source="a", target="b", owner="new", spec={}, owner_alive=asked)
    journal.finish(old, "create_target", {})


def test_many_writers_make_one_chain(journal_url: str) -> None:
    journal = opened(journal_url)
    c = claim(journal, "run")
    assert c is not None

    def write(number: int) -> None:
        for n in range(10):
            journal.event(c, "note", f"writer-{number}", {"n": n})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    head, rows = journal.trail(c.migration_id)
    assert head.count == 41
    assert audit.verify(rows, head, migration_id=c.migration_id) == []


def test_a_trail_read_while_it_grows_is_whole(journal_url: str) -> None:
    journal = opened(journal_url)
    c = claim(journal, "run")
    assert c is not None
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            journal.event(c, "note", "writer", {})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        reader = opened(journal_url)
        for _ in range(30):
            head, rows = reader.trail(c.migration_id)
            assert audit.verify(rows, head, migration_id=c.migration_id) == []
    finally:
        done.set()
        writer.join()


RACER = """
import sys, time
from topicshift.adapters.journal import SqlJournal
from topicshift.core.errors import Refused
url, name, source, target = sys.argv[1:]
journal = SqlJournal(url)                      # the schema, too, is made by whoever comes first
print("ready", flush=True)
sys.stdin.readline()
for n in range(15):
    try:
        c = journal.claim(cluster_id="c", source=f"{source}{n}", target=f"{target}{n}", owner=f"{name}",
                          spec={}, owner_alive=lambda _: True)
        print(n, c.migration_id, flush=True)
    except Refused:
        pass
"""


def _python(script: str, *words: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", script, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(INCLUDE)},
    )
    _open.append(lambda: _end(process))
    return process


def _end(process: subprocess.Popen[str]) -> None:
    """Nothing that a test started outlives it, however it ends."""
    if process.poll() is None:
        process.kill()
    process.communicate()


def test_processes_that_start_together_make_one_schema_and_share_no_topic(journal_url: str) -> None:
    pairs = [("a", "b"), ("b", "a"), ("b", "c")]
    racers = [_python(RACER, journal_url, f"run-{i}", *pair) for i, pair in enumerate(pairs)]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdin is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won: Counter[int] = Counter()
    for racer in racers:
        out, _ = racer.communicate(timeout=300)
        assert racer.returncode == 0
        won.update(int(line.split()[0]) for line in out.splitlines())
    assert won == dict.fromkeys(range(15), 1)


WRITER = """
import sys
from topicshift.adapters.journal import SqlJournal
journal = SqlJournal(sys.argv[1])
c = journal.claim(cluster_id="c", source="a", target="b", owner="run", spec={}, owner_alive=lambda _: True)
n = 0
while True:
    n += 1
    print(n, flush=True)
    journal.intend(c, f"step-{n}", {"n": n})
    journal.finish(c, f"step-{n}", {"done": n})
    journal.event(c, "note", "writer", {"n": n})
"""


def test_killed_at_any_moment_it_goes_on_from_where_it_was(journal_url: str) -> None:
    opened(journal_url).find()
    ids = set()
    for written in (1, 3, 6):
        writer = _python(WRITER, journal_url)
        assert writer.stdout is not None
        while int(writer.stdout.readline()) < written:
            pass
        time.sleep(0.002 * written)  # somewhere in a write; where does not matter
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        journal = opened(journal_url)
        [row] = journal.find(owner="run")
        ids.add(row.migration_id)
        head, rows = journal.trail(row.migration_id)
        assert audit.verify(rows, head, migration_id=row.migration_id) == []
        assert audit.verify_steps(journal.steps(row.migration_id), rows) == []
        journal.close()
    assert len(ids) == 1


# -------------------------------------------------------------------------------------------------- tampering


def _tamper(url: str, *statements: sa.Executable) -> None:
    """As someone with all rights would: triggers off first."""
    engine = engine_of(url)
    with engine.connect() as connection, connection.begin():
        if engine.dialect.name == "postgresql":
            connection.execute(sa.text("DROP TRIGGER topicshift_events_append_only ON topicshift_events"))
        else:
            connection.execute(sa.text("DROP TRIGGER topicshift_events_no_update"))
            connection.execute(sa.text("DROP TRIGGER topicshift_events_no_delete"))
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
def written(sql_journal: SqlJournal) -> Claim:
    c = claim(sql_journal, "run")
    assert c is not None
    for n in range(4):
        sql_journal.event(c, "note", "run", {"n": n})
    return c


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (events.update().where(events.c.seq == 3).values(data='{"n":7}'), [(3, "changed")]),
        (events.update().where(events.c.seq == 3).values(data="not json"), [(3, "changed")]),
        (events.update().where(events.c.seq == 3).values(actor="someone"), [(3, "changed")]),
        (events.update().where(events.c.seq == 5).values(at="2000-01-01"), [(5, "changed")]),
        (events.delete().where(events.c.seq == 2), [(2, "missing")]),
        (events.delete().where(events.c.seq == 1), [(1, "missing")]),
        (events.delete().where(events.c.seq >= 4), [(4, "truncated")]),
        (events.delete(), [(1, "truncated")]),
        (migrations.update().values(event_count=4), [(5, "extra")]),
        (migrations.update().values(event_head="0" * 64), [(5, "changed")]),
    ],
)
def test_tampering_with_the_trail_is_found_and_the_row_named(
    sql_journal: SqlJournal, journal_url: str, written: Claim, statement: sa.Executable, said: list[tuple[int, str]]
) -> None:
    _tamper(journal_url, statement)
    head, rows = sql_journal.trail(written.migration_id)
    problems = audit.verify(rows, head, migration_id=written.migration_id)
    assert [(p.seq, p.kind.value) for p in problems] == said


@pytest.mark.parametrize("statement", [events.update().values(actor="x"), events.delete()])
def test_the_database_refuses_to_change_events(
    sql_journal: SqlJournal, journal_url: str, written: Claim, statement: sa.Executable
) -> None:
    with engine_of(journal_url).connect() as connection, pytest.raises(DBAPIError, match="append-only"):
        connection.execute(statement)
    assert len(sql_journal.events(written.migration_id)) == 5


@pytest.mark.postgres
def test_postgres_refuses_truncate_as_well(new_postgres_url: str) -> None:
    journal = opened(new_postgres_url)
    claim(journal, "run")
    with engine_of(new_postgres_url).connect() as connection, pytest.raises(DBAPIError, match="append-only"):
        connection.execute(sa.text("TRUNCATE topicshift_events"))


def test_a_changed_step_is_found(sql_journal: SqlJournal, journal_url: str) -> None:
    c = claim(sql_journal, "run")
    assert c is not None
    sql_journal.intend(c, "create_target", {"id": 1})
    sql_journal.finish(c, "create_target", {"id": 1})
    with engine_of(journal_url).begin() as connection:
        connection.execute(steps.update().values(data='{"id":2}'))
    problems = audit.verify_steps(sql_journal.steps(c.migration_id), sql_journal.events(c.migration_id))
    assert len(problems) == 1
    assert "create_target" in problems[0]


# ----------------------------------------------------------------------------------------------------- schema


def test_the_revisions_make_exactly_the_tables_that_the_code_reads(sql_journal: SqlJournal, journal_url: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    sql_journal.find()
    with engine_of(journal_url).connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": schema.VERSION_TABLE})
        assert compare_metadata(context, metadata) == []
        assert context.get_current_revision() == schema.REVISIONS[-1]


def test_the_named_revisions_are_those_in_the_folder() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(schema.__file__).parent / "migrations"))
    walked = [r.revision for r in ScriptDirectory.from_config(config).walk_revisions()]
    assert tuple(reversed(walked)) == schema.REVISIONS


def test_a_newer_schema_is_left_alone(sql_journal: SqlJournal, journal_url: str) -> None:
    sql_journal.find()
    with engine_of(journal_url).begin() as connection:
        connection.execute(sa.text("UPDATE topicshift_schema_version SET version_num = '0099'"))
    for create in (True, False):
        with pytest.raises(Unreadable, match=r"schema 0099.*newer"):
            opened(journal_url, create=create).find()


def test_going_back_is_refused(sql_journal: SqlJournal, journal_url: str) -> None:
    from alembic import command
    from alembic.config import Config

    sql_journal.find()
    config = Config()
    config.set_main_option("script_location", str(Path(schema.__file__).parent / "migrations"))
    with engine_of(journal_url).begin() as connection:
        config.attributes["connection"] = connection
        with pytest.raises(RuntimeError, match="only goes forward"):
            command.downgrade(config, "base")


def test_an_upgrade_that_fails_leaves_nothing(journal_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from alembic import op

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the power went")

    with monkeypatch.context() as patch:
        patch.setattr(op, "execute", fail)
        with pytest.raises(RuntimeError, match="power"):
            opened(journal_url).find()
    with engine_of(journal_url).connect() as connection:
        assert sa.inspect(connection).get_table_names() == []
    assert opened(journal_url).find() == []


def test_reading_makes_no_journal(journal_url: str) -> None:
    with pytest.raises(NotFound, match="no journal"):
        opened(journal_url, create=False).find()
    if journal_url.startswith("sqlite"):
        assert not Path(journal_url.removeprefix("sqlite:///")).exists()


def test_a_fresh_process_opens_it_without_alembic(sql_journal: SqlJournal, journal_url: str) -> None:
    sql_journal.find()
    script = """
import sys
from topicshift.adapters.journal import SqlJournal
journal = SqlJournal(sys.argv[1])
c = journal.claim(cluster_id="c", source="a", target="b", owner="run", spec={}, owner_alive=lambda _: True)
journal.intend(c, "plan", {})
print([m for m in ("alembic", "sqlalchemy.orm", "airflow", "confluent_kafka", "fsspec") if m in sys.modules])
"""
    process = _python(script, journal_url)
    out, _ = process.communicate(timeout=300)
    assert out == "[]\n"


# ------------------------------------------------------------------------------------------------------ faults


def test_a_database_that_does_not_answer_is_unreadable_and_keeps_its_password() -> None:
    url = "postgresql://me:hunter2@127.0.0.1:1/journal"
    with pytest.raises(Unreadable) as caught:
        opened(url).find()
    assert "127.0.0.1:1/journal" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_file_that_is_no_database_is_unreadable(tmp_path: Path) -> None:
    file = tmp_path / "journal.db"
    file.write_text("this is no database, and long enough to be looked at as a page header of one" * 20)
    with pytest.raises(Unreadable, match="not a database"):
        opened(f"sqlite:///{file}").find()


def test_a_folder_that_cannot_be_made_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unreadable, match="file"):
        opened(f"sqlite:///{tmp_path}/file/journal.db").find()


@pytest.mark.postgres
def test_a_lost_connection_is_made_again_and_nothing_is_written_twice(new_postgres_url: str) -> None:
    journal = opened(new_postgres_url)
    c = claim(journal, "run")
    assert c is not None
    with engine_of(new_postgres_url).connect() as connection:
        connection.execute(
            sa.text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'topicshift' AND pid <> pg_backend_pid()"
            )
        )
    journal.event(c, "note", "run", {})
    assert [e.kind for e in journal.events(c.migration_id)] == ["claimed", "note"]


def test_a_commit_whose_answer_was_lost_is_found_again(
    sql_journal: SqlJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write is tried again after a lost connection; if the first try did get through, it counts."""
    c = claim(sql_journal, "run")
    assert c is not None
    real = Database.write

    def twice(self: Database, work: object) -> object:
        real(self, work)  # type: ignore[arg-type]
        return real(self, lambda connection, _attempt: work(connection, 1))  # type: ignore[operator]

    with monkeypatch.context() as patch:
        patch.setattr(Database, "write", twice)
        sql_journal.event(c, "note", "run", {"n": 1})
        sql_journal.intend(c, "create_target", {})
        sql_journal.finish(c, "create_target", {})
        sql_journal.set_plan(c, "abc")
        renewed = sql_journal.renew(c, "producers are to be given back")
    assert renewed.epoch == sql_journal.current(c.migration_id).epoch == c.epoch + 1
    kinds = [e.kind for e in sql_journal.events(c.migration_id)]
    assert kinds == ["claimed", "note", "step_intended", "step_finished", "plan", "renewed"]
