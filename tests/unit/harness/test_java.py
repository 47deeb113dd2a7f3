"""Which Java is taken, and what is said when none will do."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.java import NoJava, find_java, major_version


def fake_java(home: Path, version: str) -> Path:
    """A ``java`` that answers ``-version`` as a real one of that version does."""
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    binary.chmod(0o755)
    return home


def environ(java_home: Path | None = None, on_path: Path | None = None) -> dict[str, str]:
    env = {"PATH": str(on_path / "bin") if on_path else "/nonexistent"}
    return env | ({"JAVA_HOME": str(java_home)} if java_home else {})


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea"', 25),
        ("command not found", None),
    ],
)
def test_the_version_is_read_from_javas_own_words(text: str, major: int | None) -> None:
    assert major_version(text) == major


@given(st.integers(9, 99), st.integers(0, 30))
def test_the_major_version_is_the_first_number(major: int, minor: int) -> None:
    assert major_version(f'openjdk version "{major}.{minor}.1" 2026-01-01') == major


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    env = environ(fake_java(tmp_path / "a", "21.0.1"), fake_java(tmp_path / "b", "17.0.1"))
    assert find_java(env).home == tmp_path / "a"


def test_a_java_on_the_path_is_taken_where_java_home_does_not_fit(tmp_path: Path) -> None:
    env = environ(fake_java(tmp_path / "a", "11.0.1"), fake_java(tmp_path / "b", "17.0.1"))
    found = find_java(env)
    assert (found.home, found.major, found.found_by) == (tmp_path / "b", 17, "PATH")


def test_the_java_of_a_version_manager_is_taken_where_it_says_it_lives(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "versions" / "17", "17.0.1")
    with (real / "bin" / "java").open("a") as script:
        script.write(f"echo '    java.home = {real}' >&2\n")
    shim = tmp_path / "shims" / "bin" / "java"
    shim.parent.mkdir(parents=True)
    shim.write_text(f'#!/bin/sh\nexec {real}/bin/java "$@"\n')
    shim.chmod(0o755)
    found = find_java(environ(on_path=tmp_path / "shims"))
    assert (found.home, found.binary.exists()) == (real, True)


def test_java_25_runs_the_broker_and_not_spark(tmp_path: Path) -> None:
    env = environ(fake_java(tmp_path / "a", "25.0.1"))
    assert find_java(env, for_spark=False).major == 25
    with pytest.raises(NoJava, match=r"found Java 25 .*run the broker but not Spark.*Install Java 17 or 21"):
        find_java(env)


def test_a_java_that_is_too_old_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoJava, match=r"found Java 8 at .*\(JAVA_HOME\).*Install Java 17 or 21"):
        find_java(environ(fake_java(tmp_path / "a", "1.8.0_392")))


def test_no_java_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(NoJava, match=rf"no Java was found in JAVA_HOME \({tmp_path}/gone\) or on PATH"):
        find_java(environ(tmp_path / "gone"))
    with pytest.raises(NoJava, match=r"no Java was found in JAVA_HOME or on PATH\. Install Java 17 or 21"):
        find_java(environ())
