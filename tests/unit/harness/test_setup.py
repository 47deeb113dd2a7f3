"""``make setup``: what is repeated, what is not, and the one line that is said when it cannot go on."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from lab.java import Java

ROOT = Path(__file__).resolve().parents[3]
MODULES = [("org.example", "thing_2.13", "1.2.3")]


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The steps of set-up, working in a folder of the test's own."""
    spec = importlib.util.spec_from_file_location("setup_steps_under_test", ROOT / "tools" / "setup_steps.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec.loader.exec_module(module)
    for name, path in {
        "ROOT": "",
        "BUILD": "build",
        "STATE": "build/setup",
        "JARS": "build/jars",
        "VENV": ".venv",
    }.items():
        monkeypatch.setattr(module, name, tmp_path / path)
    monkeypatch.setattr(module, "PYTHON", tmp_path / ".venv/bin/python")
    module.STATE.mkdir(parents=True)
    shipped = tmp_path / "pyspark-jars"
    shipped.mkdir()
    (shipped / "ivy-2.5.3.jar").touch()
    (shipped / "snappy-java-1.1.10.8.jar").touch()
    monkeypatch.setattr(module, "pyspark_jars", lambda: shipped)
    return module


def fake_ivy(folder: Path, script: str) -> Java:
    """A Java whose Ivy is a shell script; ``$out`` is the folder that it is told to fill, ``$good`` a whole jar."""
    good = folder / "good.jar"
    with zipfile.ZipFile(good, "w") as jar:
        jar.writestr("a/B.class", "x" * 5000)
    binary = folder / "java-home" / "bin" / "java"
    binary.parent.mkdir(parents=True, exist_ok=True)
    binary.write_text(
        f"#!/bin/sh\necho run >> '{folder}/runs'\nfor last; do :; done\n"
        f"out=$(dirname \"$last\")\ngood='{good}'\n{script}\n"
    )
    binary.chmod(0o755)
    return Java(17, binary.parent.parent, "JAVA_HOME")


def runs(folder: Path) -> int:
    path = folder / "runs"
    return len(path.read_text().splitlines()) if path.exists() else 0


GOOD = 'cp "$good" "$out/thing_2.13-1.2.3.jar"; cp "$good" "$out/other-4.jar"'


def test_jars_are_fetched_once(steps: ModuleType, tmp_path: Path) -> None:
    java = fake_ivy(tmp_path, GOOD)
    steps.fetch_jars("kafka", MODULES, java, beside_pyspark=False)
    assert sorted(jar.name for jar in (steps.JARS / "kafka").iterdir()) == ["other-4.jar", "thing_2.13-1.2.3.jar"]
    steps.fetch_jars("kafka", MODULES, java, beside_pyspark=False)
    assert runs(tmp_path) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "other-4.jar").unlink(),
        lambda folder: (folder / "other-4.jar").write_bytes((folder / "other-4.jar").read_bytes()[:200]),
        shutil.rmtree,
    ],
    ids=["one is missing", "one is cut off", "all are gone"],
)
def test_damaged_jars_are_fetched_again(steps: ModuleType, tmp_path: Path, damage: object) -> None:
    java = fake_ivy(tmp_path, GOOD)
    steps.fetch_jars("kafka", MODULES, java, beside_pyspark=False)
    assert callable(damage)
    damage(steps.JARS / "kafka")
    steps.fetch_jars("kafka", MODULES, java, beside_pyspark=False)
    assert runs(tmp_path) == 2
    assert all(steps.whole(jar) for jar in (steps.JARS / "kafka").glob("*.jar"))


def test_another_version_is_fetched_anew(steps: ModuleType, tmp_path: Path) -> None:
    java = fake_ivy(tmp_path, GOOD + '; cp "$good" "$out/thing_2.13-2.0.jar"')
    steps.fetch_jars("kafka", MODULES, java, beside_pyspark=False)
    steps.fetch_jars("kafka", [("org.example", "thing_2.13", "2.0")], java, beside_pyspark=False)
    assert runs(tmp_path) == 2


def test_an_interrupted_fetch_leaves_nothing_that_is_trusted(steps: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(steps.Stop, match=r"kafka jars: the package registry did not answer.*run make setup again"):
        java = fake_ivy(
            tmp_path, 'cp "$good" "$out/other-4.jar"; echo "Server access Error: Connection refused"; exit 1'
        )
        steps.fetch_jars("kafka", MODULES, java, beside_pyspark=False)
    assert not (steps.JARS / "kafka").exists()
    steps.fetch_jars("kafka", MODULES, fake_ivy(tmp_path, GOOD), beside_pyspark=False)
    assert (steps.JARS / "kafka" / "thing_2.13-1.2.3.jar").exists()


def test_a_jar_that_comes_half_is_fetched_a_second_time_and_then_named(steps: ModuleType, tmp_path: Path) -> None:
    java = fake_ivy(tmp_path, GOOD + '; head -c 200 "$good" > "$out/half-1.jar"')
    with pytest.raises(steps.Stop, match=r"kafka jars: half-1\.jar came broken twice\. Check the network"):
        steps.fetch_jars("kafka", MODULES, java, beside_pyspark=False)
    assert runs(tmp_path) == 2 and not (steps.JARS / "kafka").exists()


def test_a_module_that_does_not_come_is_named(steps: ModuleType, tmp_path: Path) -> None:
    java = fake_ivy(tmp_path, 'cp "$good" "$out/other-4.jar"')
    with pytest.raises(steps.Stop, match=r"kafka jars: thing_2\.13-1\.2\.3\.jar did not come"):
        steps.fetch_jars("kafka", MODULES, java, beside_pyspark=False)


def test_what_pyspark_ships_is_left_out_and_no_host_is_named(steps: ModuleType, tmp_path: Path) -> None:
    steps.fetch_jars("spark", MODULES, fake_ivy(tmp_path, GOOD), beside_pyspark=True)
    asked = (steps.STATE / "ivy-spark" / "ivy.xml").read_text()
    assert '<exclude org="*" module="snappy-java"/>' in asked
    settings = (steps.STATE / "ivy-spark" / "settings.xml").read_text()
    assert "://" not in settings and settings.count("<ibiblio") == 1


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("error: No space left on device (os error 28)", r"the disk is full\. Free at least 4 GB"),
        ("error: Failed to fetch: `simple/rich/`\n  Caused by: dns error", r"the package registry did not answer"),
        ("one\n\nValueError: odd\n", r"packages failed: ValueError: odd \(details: build/setup/packages\.log\)"),
        ("", r"packages failed: it said nothing"),
    ],
)
def test_a_failed_child_is_explained_in_one_line(steps: ModuleType, log: str, said: str) -> None:
    path = steps.STATE / "packages.log"
    path.write_text(log)
    stop = steps.explain("packages", path)
    assert re.search(said, str(stop)) and "\n" not in str(stop)


def test_too_little_disk_is_said_before_anything_is_fetched(steps: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5 * 10**8))
    with pytest.raises(steps.Stop, match=r"0\.5 GB are free .* needs 4 GB"):
        steps.check_disk()
    for stamp in ("packages", "jars-kafka"):
        steps.write_stamp(stamp, {"inputs": "x"})
    steps.check_disk()


def test_a_venv_of_another_python_is_named_and_never_removed(
    steps: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "venv_version", lambda: (3, 9))
    (steps.VENV / "lib").mkdir(parents=True)
    with pytest.raises(
        steps.Stop, match=r"\.venv holds Python 3\.9; this project needs Python 3\.11 to 3\.13\. Move \.venv away"
    ):
        steps.make_venv()
    assert (steps.VENV / "lib").exists()


def test_two_set_ups_in_one_folder_take_turns(steps: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    order: list[str] = []
    inside, go_on = threading.Event(), threading.Event()

    def first() -> None:
        with steps.only_one():
            inside.set()
            assert go_on.wait(30)
            order.append("first")

    def second() -> None:
        with steps.only_one():
            order.append("second")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert inside.wait(30)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert order == ["first", "second"]


def test_a_broken_stamp_counts_as_none(steps: ModuleType) -> None:
    steps.write_stamp("x", {"inputs": "1"})
    assert steps.read_stamp("x") == {"inputs": "1"}
    (steps.STATE / "x.json").write_text('{"inputs": ')
    assert steps.read_stamp("x") == {}


def test_children_get_a_home_and_byte_code(steps: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("HOME", "")
    env = steps.environment()
    assert "PYTHONDONTWRITEBYTECODE" not in env and Path(env["HOME"]).is_dir()


def bootstrap(code: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    """Run tools/bootstrap.py after some code that changes the world it sees."""
    script = f"import runpy, sys\n{code}\nrunpy.run_path({str(ROOT / 'tools/bootstrap.py')!r}, run_name='__main__')"
    env = {"PATH": "/nonexistent", "HOME": "/nonexistent", **environ}
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=env, timeout=120, check=False
    )


def test_a_python_that_is_too_old_is_told_what_to_install() -> None:
    done = bootstrap("sys.version_info = (3, 10, 1)")
    assert done.returncode == 2
    assert "Python 3.10 " in done.stderr and "needs Python 3.11, 3.12 or 3.13" in done.stderr
    assert done.stderr.count("\n") == 1


def test_bootstrap_can_be_read_by_a_python_2() -> None:
    source = (ROOT / "tools" / "bootstrap.py").read_text()
    head = source[: source.index("from setup_steps")]
    assert head.isascii()
    assert not any(token in head for token in ('f"', "f'", " -> ", ":=", "print "))


def test_no_java_is_one_clear_line() -> None:
    done = bootstrap()
    assert done.returncode == 2
    assert done.stderr.startswith("setup: no Java was found in JAVA_HOME or on PATH. Install Java 17 or 21")
    assert done.stderr.count("\n") == 1
