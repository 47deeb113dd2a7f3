"""The evidence store: one contract for the fake one, memory and the local disk; then what only a disk can show."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from tests.beside import meanwhile

from topicshift.adapters import evidence
from topicshift.adapters.evidence import FsspecEvidence, default_evidence_url, evidence_from_env
from topicshift.core.errors import SpecError, Transient, Unreadable
from topicshift.testing.fake_journal import FakeEvidence


@pytest.fixture(params=["fake", "local", "file-url", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "fake":
        return FakeEvidence()
    base = {
        "local": str(tmp_path / "with space"),
        "file-url": f"file://{tmp_path}/sub",
        "memory": f"memory://evidence-{uuid.uuid4()}",
    }
    return FsspecEvidence(base[request.param])


def test_what_was_written_is_read(store: Any) -> None:
    url = store.write("m-1", "plan.json", '{"ü": 1}')
    assert url == store.url("m-1", "plan.json")
    assert url.endswith("/m-1/plan.json")
    assert "://" in url
    assert url.startswith(store.base_url)
    assert store.read("m-1", "plan.json") == '{"ü": 1}'.encode()
    store.write("m-1", "plan.json", b"\x00\xff")
    assert store.read("m-1", "plan.json") == b"\x00\xff"


def test_what_is_not_there_is_none_and_an_empty_list(store: Any) -> None:
    assert store.read("m-1", "plan.json") is None
    assert store.names("m-1") == []
    store.write("m-1", "b.json", "")
    store.write("m-1", "a.html", "x")
    store.write("m-2", "c.json", "x")
    assert store.names("m-1") == ["a.html", "b.json"]
    assert store.read("m-1", "b.json") == b""


@pytest.mark.parametrize(
    "bad", ["", ".", "..", "../x", "a/b", "/etc/passwd", ".hidden", "a\\b", "a\nb", "ü", "x" * 201]
)
def test_names_that_could_lead_elsewhere_are_refused(store: Any, bad: str) -> None:
    for call in (
        lambda: store.write(bad, "plan.json", "x"),
        lambda: store.write("m-1", bad, "x"),
        lambda: store.read("m-1", bad),
        lambda: store.read(bad, "plan.json"),
        lambda: store.names(bad),
        lambda: store.url(bad, "plan.json"),
        lambda: store.url("m-1", bad),
    ):
        with pytest.raises(SpecError):
            call()
    assert store.names("m-1") == []


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    store = FsspecEvidence(str(tmp_path))
    sizes = [10, 300_000]
    store.write("m", "f", b"a" * sizes[0])
    turn = itertools.cycle(reversed(sizes))
    with meanwhile(lambda: store.write("m", "f", b"a" * next(turn))):
        seen = {len(store.read("m", "f") or b"") for _ in range(200)}
        names = {tuple(store.names("m")) for _ in range(50)}
    assert seen <= set(sizes)
    assert names == {("f",)}


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FsspecEvidence(str(tmp_path))
    store.write("m", "f", "old")

    def fail(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(Unreadable, match="No space left"):
            store.write("m", "f", "new")
    assert store.read("m", "f") == b"old"
    assert [f.name for f in (tmp_path / "m").iterdir()] == ["f"]


def test_a_folder_that_is_a_file_is_unreadable_not_empty(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = FsspecEvidence(str(tmp_path / "file"))
    with pytest.raises(Unreadable, match="could not be written"):
        store.write("m", "f", "x")
    with pytest.raises(Unreadable, match="could not be read"):
        store.read("m", "f")
    with pytest.raises(Unreadable, match="could not be listed"):
        store.names("m")


class PlainStore(MemoryFileSystem):  # type: ignore[misc]
    """A store that is not known to put files whole, so that they are written beside and moved."""

    protocol = "plainstore"
    store: dict[str, Any] = {}
    pseudo_dirs = [""]
    moved: list[tuple[str, str]] = []

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        self.moved.append((path1, path2))
        super().mv(path1, path2, **kwargs)


@pytest.fixture
def plainstore() -> Iterator[str]:
    fsspec.register_implementation("plainstore", PlainStore, clobber=True)
    yield "plainstore://evidence"
    PlainStore.moved.clear()


def test_where_a_put_is_not_atomic_the_file_is_moved_into_place(plainstore: str) -> None:
    store = FsspecEvidence(plainstore)
    store.write("m", "f", "x")
    assert store.read("m", "f") == b"x"
    assert store.names("m") == ["f"]
    [(beside, target)] = PlainStore.moved
    assert target.endswith("/m/f")
    assert beside.rsplit("/", 1)[0] == target.rsplit("/", 1)[0]


@pytest.mark.parametrize(
    ("base", "said"),
    [
        ("", "empty"),
        ("nosuch://bucket", "nosuch"),
        ("s3://key:hunter2@bucket/dir", "password"),
    ],
)
def test_bases_that_are_refused(base: str, said: str) -> None:
    with pytest.raises(SpecError, match=said) as caught:
        FsspecEvidence(base)
    assert "hunter2" not in str(caught.value)


def test_the_default_lies_beside_the_journal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TOPICSHIFT_EVIDENCE", raising=False)
    monkeypatch.delenv("TOPICSHIFT_HOME", raising=False)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    assert default_evidence_url() == f"{tmp_path}/topicshift/evidence"
    assert evidence_from_env().base_url == f"file://{tmp_path}/topicshift/evidence"
    monkeypatch.setenv("TOPICSHIFT_EVIDENCE", "memory://elsewhere")
    assert evidence_from_env().base_url == "memory:///elsewhere"


class Flaky(Exception):
    """As a store's client raises it: neither an OSError nor a time-out."""


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Exception]]:
    """What the store raises, one after the other, before it answers; written, read and listed alike."""
    left: list[Exception] = []

    def fails(name: str) -> Any:
        real = getattr(MemoryFileSystem, name)

        def act(*args: Any, **kwargs: Any) -> Any:
            if left:
                raise left.pop(0)
            return real(*args, **kwargs)

        return act

    for name in ("pipe_file", "cat_file", "ls"):
        monkeypatch.setattr(MemoryFileSystem, name, fails(name))
    monkeypatch.setattr(evidence, "_PAUSE_S", 0.001)
    yield left


ACTS = {
    "written": lambda store: store.write("m-1", "fence.json", b"x"),
    "read": lambda store: store.read("m-1", "plan.json"),
    "listed": lambda store: store.names("m-1"),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("passing", [ConnectionResetError(104, "reset"), TimeoutError(), Flaky("503 SlowDown")])
def test_a_passing_fault_of_the_store_is_tried_again(failing: list[Exception], act: str, passing: Exception) -> None:
    store = FsspecEvidence(f"memory://evidence-{uuid.uuid4()}")
    store.write("m-1", "plan.json", b"{}")
    failing += [passing] * 3
    assert ACTS[act](store) in (store.url("m-1", "fence.json"), b"{}", ["plan.json"]) and not failing
    failing += [passing] * 9
    with pytest.raises(Transient, match=f"could not be {act}") as told:
        ACTS[act](store)
    assert told.value.retryable, "Airflow tries the task again"


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("lasting", [PermissionError(13, "denied"), OSError(28, "No space left"), ValueError("no key")])
def test_what_trying_again_does_not_mend_is_said_at_once(
    failing: list[Exception], act: str, lasting: Exception
) -> None:
    store = FsspecEvidence(f"memory://evidence-{uuid.uuid4()}")
    failing += [lasting] * 2
    with pytest.raises(Unreadable, match=f"could not be {act}") as told:
        ACTS[act](store)
    assert not told.value.retryable and len(failing) == 1
