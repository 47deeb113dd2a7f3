"""`topicshift audit export --out` and `topicshift audit verify BUNDLE`: what was changed in a bundle is named."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from topicshift.adapters.bundle import _THEN
from topicshift.adapters.evidence import evidence_from_env
from topicshift.adapters.journal import SqlJournal
from topicshift.core.proof.bundle import sha256
from topicshift.ports import Claim
from topicshift.reporting.run_report import write_report

PEM, PKCS8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
SPKI = serialization.PublicFormat.SubjectPublicKeyInfo


@pytest.fixture
def migration(tmp_path: Path) -> str:
    """A journal and an evidence folder with one migration that has ended."""
    journal = SqlJournal(f"sqlite:///{tmp_path}/airflow/topicshift/journal.db")
    topics = {"source": "payments", "target": "payments-v2"}
    claim = journal.claim(cluster_id="c", owner="topic_migration/r", spec={}, owner_alive=lambda _: True, **topics)
    journal.set_plan(claim, "ab" * 32)
    journal.event(claim, "approved", "user:ann", {"text": "ü\u2028"})
    journal.intend(claim, "create_target", {"configs": {"a": "b"}})
    journal.finish(claim, "create_target", {"topic_id": "xyz"})
    evidence_from_env().write(claim.migration_id, "plan.json", '{"plan_hash": "abab"}')
    journal.set_state(claim, "done", active=False)
    write_report(
        journal, evidence_from_env(), claim.migration_id, partial(evidence_from_env().write, claim.migration_id)
    )
    journal.close()
    return claim.migration_id


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    """A private key and its public key, as files."""
    return _keys(tmp_path, "mine")


def _keys(folder: Path, name: str, key: Any = None, passphrase: bytes | None = None) -> tuple[Path, Path]:
    key = key or Ed25519PrivateKey.generate()
    lock = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub.pem"
    private.write_bytes(key.private_bytes(PEM, PKCS8, lock))
    public.write_bytes(key.public_key().public_bytes(PEM, SPKI))
    return private, public


@pytest.fixture
def bundle(migration: str, keys: tuple[Path, Path], tmp_path: Path, run: Any) -> Path:
    """A signed bundle; journal, evidence and Airflow are gone."""
    out = tmp_path / "audit.zip"
    code, said, err = run("audit", "export", migration, "--out", str(out), "--key", str(keys[0]))
    assert (code, said) == (0, ""), err
    shutil.rmtree(tmp_path / "airflow")
    return out


def rewritten(bundle: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """The same archive after somebody's hands."""
    with zipfile.ZipFile(bundle) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    out = bundle.with_name("changed.zip")
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, _THEN), data)
    return out


def test_a_bundle_is_verified_with_nothing_but_itself(
    bundle: Path, migration: str, keys: tuple[Path, Path], run: Any
) -> None:
    code, out, _ = run("audit", "verify", str(bundle), "--public-key", str(keys[1]))
    assert code == 0 and "intact: 6 events" in out and f"signed by the key of {keys[1]}" in out
    code, out, _ = run("audit", "verify", str(bundle), "--json")
    found = json.loads(out)
    assert (code, found["intact"], found["migration"], found["broken"]) == (0, True, migration, [])
    assert found["signed_by"] and found["missing"] == []
    assert run("audit", "verify", str(bundle), "--head", found["head"])[0] == 0
    assert run("audit", "verify", str(bundle), "--head", f"3:{'f' * 64}")[0] == 3
    with zipfile.ZipFile(bundle) as archive:
        names = set(archive.namelist())
        report = archive.read("report.html").decode()
    assert {"manifest.json", "trail.jsonl", "steps.json", "migration.json", "evidence/plan.json"} < names
    assert "payments-v2" in report and "user:ann" in report


def _drop(name: str) -> Callable[[dict[str, bytes]], None]:
    def change(files: dict[str, bytes]) -> None:
        del files[name]

    return change


def _swap(name: str, old: bytes, new: bytes) -> Callable[[dict[str, bytes]], None]:
    def change(files: dict[str, bytes]) -> None:
        assert old in files[name]
        files[name] = files[name].replace(old, new)

    return change


CHANGES: list[tuple[Callable[[dict[str, bytes]], None], str]] = [
    (_swap("evidence/plan.json", b"abab", b"acab"), "evidence/plan.json: changed"),
    (_swap("report.html", b"payments", b"refunds"), "report.html: changed"),
    (_drop("evidence/plan.json"), "evidence/plan.json: missing"),
    (_drop("trail.jsonl"), "trail.jsonl: missing"),
    (_drop("manifest.json"), "manifest.json: missing"),
    (lambda files: files.update({"evidence/more.json": b"{}"}), "evidence/more.json: added"),
    (lambda files: files.update({"../../etc/passwd": b"x"}), "'../../etc/passwd': added"),
    (_swap("trail.jsonl", b"user:ann", b"user:bob"), "trail.jsonl: row 3: changed"),
    (_swap("steps.json", b"xyz", b"zyx"), "step create_target: its data"),
    (_swap("manifest.json", b'"count": 6', b'"count": 5'), "manifest.sig: changed"),
    (_swap("manifest.json", b"topicshift-audit-bundle/1", b"topicshift-audit-bundle/9"), "it is no manifest"),
    (lambda files: files.update({"manifest.sig": b"x" * 64}), "manifest.sig: changed"),
    (_drop("manifest.sig"), "manifest.sig: missing"),
]


@pytest.mark.parametrize(("change", "said"), CHANGES)
def test_whatever_was_changed_is_named(change: Any, said: str, bundle: Path, keys: tuple[Path, Path], run: Any) -> None:
    other = rewritten(bundle, change)
    code, out, _ = run("audit", "verify", str(other), "--public-key", str(keys[1]))
    assert code == 3 and said in out
    code, out, _ = run("audit", "verify", str(other), "--json")
    assert (code, json.loads(out)["intact"]) == (3, False)


def test_a_bundle_that_was_made_anew_over_a_changed_trail_is_found(bundle: Path, tmp_path: Path, run: Any) -> None:
    """Whoever cannot sign can still make hashes: the chain breaks, and the signature does not fit any more."""

    def change(files: dict[str, bytes]) -> None:
        files["trail.jsonl"] = files["trail.jsonl"].replace(b"user:ann", b"user:bob")
        manifest = json.loads(files["manifest.json"])
        for file in manifest["files"]:
            file["sha256"] = sha256(files[file["name"]])
        files["manifest.json"] = json.dumps(manifest).encode()

    code, out, _ = run("audit", "verify", str(rewritten(bundle, change)))
    assert code == 3
    assert "trail.jsonl: row 3: changed" in out and "manifest.sig: changed" in out


def test_a_key_of_somebody_else_is_found(bundle: Path, tmp_path: Path, run: Any) -> None:
    _, other = _keys(tmp_path, "other")
    code, out, _ = run("audit", "verify", str(bundle), "--public-key", str(other))
    assert code == 3 and "manifest.sig: changed" in out and "the bundle's own key is" in out


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0), to=st.binary(min_size=1, max_size=4))
def test_no_change_of_the_archive_is_taken_for_intact(bundle: Path, run: Any, at: int, to: bytes) -> None:
    """Bytes anywhere: named, or no archive any more; never a traceback."""
    data = bytearray(bundle.read_bytes())
    at %= len(data)
    with zipfile.ZipFile(bundle) as archive:
        before = {name: archive.read(name) for name in archive.namelist()}
    data[at : at + len(to)] = to
    other = bundle.with_name("bytes.zip")
    other.write_bytes(data)
    code, _, _ = run("audit", "verify", str(other))
    if code == 0:  # a time stamp or a comment of the archive: what it holds is as it was
        with zipfile.ZipFile(other) as archive:
            assert {name: archive.read(name) for name in archive.namelist()} == before
    assert code in (0, 3, 4)


def test_an_entry_that_stands_there_twice_is_named(bundle: Path, run: Any) -> None:
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(bundle, "a") as archive:
        archive.writestr("evidence/plan.json", "{}")
    code, out, _ = run("audit", "verify", str(bundle))
    assert code == 3 and "evidence/plan.json': added" in out


def test_evidence_that_is_not_there_is_said_and_never_exit_code_0(migration: str, tmp_path: Path, run: Any) -> None:
    (tmp_path / "airflow/topicshift/evidence" / migration / "plan.json").unlink()
    out = tmp_path / "audit.zip"
    code, _, err = run("audit", "export", migration, "--out", str(out))
    assert code == 4 and "plan.json" in err and "TOPICSHIFT_EVIDENCE" in err
    code, said, _ = run("audit", "verify", str(out))
    assert code == 4 and "missing when it was exported: plan.json" in said and "not signed" in said


def test_the_trail_that_was_rewritten_since_the_run_is_found(migration: str, tmp_path: Path, run: Any) -> None:
    copy = tmp_path / "airflow/topicshift/evidence" / migration / "audit.jsonl"
    copy.write_text(copy.read_text().replace("user:ann", "user:eve"))
    out = tmp_path / "audit.zip"
    assert run("audit", "export", migration, "--out", str(out))[0] == 0
    code, said, _ = run("audit", "verify", str(out))
    assert code == 3 and "evidence/audit.jsonl: changed: row 3" in said


def test_a_certificate_that_was_changed_before_the_export_is_found(migration: str, tmp_path: Path, run: Any) -> None:
    journal = SqlJournal(f"sqlite:///{tmp_path}/airflow/topicshift/journal.db")
    row = journal.current(migration)
    certificate = b'{"verdict": "drained"}'
    evidence_from_env().write(migration, "drain_certificate.json", certificate)
    journal.finish(Claim(migration, row.epoch, row.owner), "certificate", {"sha256": sha256(certificate)})
    journal.close()
    out = tmp_path / "audit.zip"
    assert run("audit", "export", migration, "--out", str(out))[0] == 0
    assert run("audit", "verify", str(out))[0] == 0
    evidence_from_env().write(migration, "drain_certificate.json", certificate + b" ")
    assert run("audit", "export", migration, "--out", str(out))[0] == 0
    code, said, _ = run("audit", "verify", str(out))
    assert code == 3 and "step certificate: no certificate in evidence/" in said


def test_evidence_that_was_changed_before_the_export_is_found(migration: str, tmp_path: Path, run: Any) -> None:
    evidence, out = evidence_from_env(), tmp_path / "audit.zip"
    plan, fence = b'{"plan_hash": "abab"}', b'{"fence_offsets": {"0": 41}}'
    evidence.write(migration, "fence.json", fence)
    named = {"plan.json": sha256(b"an earlier one"), "fence.json": sha256(fence)}
    _named(migration, tmp_path, named)
    _named(migration, tmp_path, {"plan.json": sha256(plan)})
    assert run("audit", "export", migration, "--out", str(out))[0] == 0
    code, said, _ = run("audit", "verify", str(out))
    assert code == 0 and "of which the trail has no SHA-256, so it may have been changed: audit.jsonl, report" in said
    for name, was in (("plan.json", plan), ("fence.json", fence)):
        evidence.write(migration, name, was + b" ")
        assert run("audit", "export", migration, "--out", str(out))[0] == 0
        code, said, _ = run("audit", "verify", str(out))
        assert code == 3 and f"evidence/{name}: it is not what the run wrote: SHA-256" in said
        evidence.write(migration, name, was)


def test_evidence_that_the_trail_names_and_nobody_has_is_named(migration: str, tmp_path: Path, run: Any) -> None:
    out = tmp_path / "audit.zip"
    _named(migration, tmp_path, {"impact.json": sha256(b"{}")})
    code, _, err = run("audit", "export", migration, "--out", str(out))
    assert code == 4 and "impact.json" in err
    code, said, _ = run("audit", "verify", str(out))
    assert code == 4 and "NOT WHOLE" in said and "missing when it was exported: impact.json" in said

    def unsaid(files: dict[str, bytes]) -> None:
        manifest = json.loads(files["manifest.json"])
        files["manifest.json"] = json.dumps({**manifest, "missing": []}).encode()

    code, said, _ = run("audit", "verify", str(rewritten(out, unsaid)))
    assert code == 3 and "evidence/impact.json: missing: row" in said


def _named(migration: str, tmp_path: Path, evidence: dict[str, str]) -> None:
    journal = SqlJournal(f"sqlite:///{tmp_path}/airflow/topicshift/journal.db")
    row = journal.current(migration)
    journal.event(Claim(migration, row.epoch, row.owner), "evidence", "topicshift", {"evidence": evidence})
    journal.close()


def _signed_anew(files: dict[str, bytes]) -> None:
    """Whoever changed a file of a bundle that nobody signed wrote the manifest anew."""
    manifest = json.loads(files["manifest.json"])
    kept = [{"name": n, "size": len(d), "sha256": sha256(d)} for n, d in files.items() if not n.startswith("manifest")]
    files["manifest.json"] = json.dumps({**manifest, "files": kept}).encode()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_swap("migration.json", b'"state": "done"', b'"state": "rolled_back"'), "migration.json: state: it is not"),
        (_swap("migration.json", b"ab" * 32, b"ac" * 32), "migration.json: plan_hash: it is not"),
        (_swap("migration.json", b'"payments-v2"', b'"refunds-v2"'), "migration.json: target: it is not"),
        (lambda files: files.update({"migration.json": b"[" * 100_000}), "migration.json: unreadable"),
        (_drop("migration.json"), "migration.json: missing: every bundle has one"),
        (_drop("report.html"), "report.html: missing: every bundle has one"),
        (_drop("steps.json"), "steps.json: missing: every bundle has one"),
        (_swap("report.html", b"payments-v2", b"payments-v3"), "report.html: changed: the other files"),
        (_swap("evidence/plan.json", b"abab", b"acab"), "report.html: changed: the other files"),
    ],
)
def test_a_bundle_that_nobody_signed_is_held_to_its_own_trail(
    change: Any, said: str, migration: str, tmp_path: Path, run: Any
) -> None:
    out = tmp_path / "audit.zip"
    evidence_from_env().write(migration, "plan.json", '{"plan_hash": "abab", "spec": {"source": "abab"}}')
    assert run("audit", "export", migration, "--out", str(out))[0] == 0

    def both(files: dict[str, bytes]) -> None:
        change(files)
        _signed_anew(files)

    code, told, _ = run("audit", "verify", str(rewritten(out, both)))
    assert code == 3 and said in told


def test_a_migrations_row_that_was_changed_in_the_journal_is_found(migration: str, tmp_path: Path, run: Any) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "airflow/topicshift/journal.db") as connection:
        connection.execute("UPDATE topicshift_migrations SET state = 'retired'")
    code, said, _ = run("audit", "verify", migration)
    assert code == 3 and "the migration's row: state: it is not what the trail says" in said


def test_a_broken_trail_is_exported_and_says_so(migration: str, tmp_path: Path, run: Any) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "airflow/topicshift/journal.db") as connection:
        connection.execute("DROP TRIGGER topicshift_events_no_update")
        connection.execute("UPDATE topicshift_events SET actor = 'x' WHERE seq = 3")
    out = tmp_path / "audit.zip"
    code, _, err = run("audit", "export", migration, "--out", str(out))
    assert code == 3 and "row 3: changed" in err
    code, said, _ = run("audit", "verify", str(out))
    assert code == 3 and "row 3: changed" in said


def test_the_key_may_come_from_an_airflow_connection(
    migration: str, keys: tuple[Path, Path], tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = keys[0].read_text()
    for name, fields in (("INLINE", {"password": pem}), ("FILE", {"extra": {"key_file": str(keys[0])}})):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps({"conn_type": "generic", **fields}))
        out = tmp_path / f"{name}.zip"
        code, said, err = run("audit", "export", migration, "--out", str(out), "--key-conn-id", name.lower())
        assert code == 0, err
        assert not any(line in said + err for line in pem.splitlines()[1:-1])
        assert run("audit", "verify", str(out), "--public-key", str(keys[1]))[0] == 0
    code, _, err = run("audit", "export", migration, "--out", str(tmp_path / "x.zip"), "--key-conn-id", "nowhere")
    assert code == 2 and "'nowhere' does not exist" in err


def test_a_key_that_will_not_do_is_refused_and_nothing_is_written(
    migration: str, keys: tuple[Path, Path], tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, public = _keys(tmp_path, "locked", passphrase=b"hush")
    curve, _ = _keys(tmp_path, "curve", ec.generate_private_key(ec.SECP256R1()))
    (tmp_path / "text").write_text("hunter2")
    out = tmp_path / "audit.zip"

    def export(*more: str) -> tuple[int, str]:
        code, _, err = run("audit", "export", migration, *more)
        assert "hunter2" not in err and "hush" not in err
        return code, err

    for key, said in ((locked, "passphrase"), (curve, "another kind"), (tmp_path / "text", "no private key")):
        code, err = export("--out", str(out), "--key", str(key))
        assert code == 2 and said in err and not out.exists()
    assert export("--out", str(out), "--key", str(tmp_path / "none"))[0] == 2
    assert export("--key", str(locked))[0] == 2
    assert export("--out", str(out), "--key", str(locked), "--key-conn-id", "x")[0] == 2
    assert export("--out", str(tmp_path / "no" / "where.zip"))[0] == 4
    monkeypatch.setenv("TOPICSHIFT_KEY_PASSPHRASE", "hush")
    assert export("--out", str(out), "--key", str(locked))[0] == 0
    assert export("--out", str(out), "--key", str(keys[0]))[0] == 0  # one without a passphrase needs none
    assert run("audit", "verify", str(out), "--public-key", str(tmp_path / "text"))[0] == 2
    assert run("audit", "verify", "nowhere.zip", "--public-key", str(public))[0] == 2


def test_what_is_no_archive_is_unknown(tmp_path: Path, run: Any) -> None:
    file = tmp_path / "audit.zip"
    for content in (b"", b"hello", b"PK\x03\x04" + b"\0" * 40):
        file.write_bytes(content)
        code, out, err = run("audit", "verify", str(file))
        assert (code, out) == (4, "") and "no archive" in err
