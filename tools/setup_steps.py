"""The steps of set-up, each repeated only when what it was made from has changed.

A step leaves a stamp in ``build/setup/`` when it is done: a hash of its inputs, and of its jars where it fetched any.
An interrupted step has no stamp and is repeated; whatever it had half made is repaired, never trusted.
Standard library only: this runs before anything is installed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "include")]

from lab.java import CLASS_ARCHIVE, Java, NoJava, find_java  # noqa: E402
from topicshift.core.files import write_whole  # noqa: E402

VENV = ROOT / ".venv"
BUILD = ROOT / "build"
STATE = BUILD / "setup"
JARS = BUILD / "jars"
PYTHON = VENV / "bin" / "python"
UV_VERSION = "0.13.9"
KAFKA_VERSION = "4.3.1"
SPARK_VERSION = "4.2.0"
KAFKA_MODULES = [
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.kafka", "connect-mirror", KAFKA_VERSION),  # a reader that commits nothing to Kafka, for tests
    ("org.apache.kafka", "connect-file", KAFKA_VERSION),  # connectors of Kafka's own, for tests
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),  # or the broker and the tools say nothing at all
]
SPARK_MODULES = [("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION)]
SPRING_VERSION = "4.0.7"
SPRING_MODULES = [  # for the test that runs the Spring Boot example of docs/route-protocol.md
    ("org.springframework.boot", "spring-boot-starter-kafka", SPRING_VERSION),
    ("org.springframework.boot", "spring-boot-starter-jackson", SPRING_VERSION),
]
FLINK_VERSION = "2.3.0"
FLINK_MODULES = [  # a JobManager, a TaskManager and a SQL Gateway, for the tests that move Flink jobs
    ("org.apache.flink", "flink-runtime-web", FLINK_VERSION),
    ("org.apache.flink", "flink-clients", FLINK_VERSION),
    ("org.apache.flink", "flink-connector-base", FLINK_VERSION),
    ("org.apache.flink", "flink-connector-kafka", "5.0.0-2.2"),
    ("org.apache.flink", "flink-sql-gateway", FLINK_VERSION),
    ("org.apache.flink", "flink-json", FLINK_VERSION),  # in which the gateway answers
    ("org.apache.flink", "flink-table-planner-loader", FLINK_VERSION),
    ("org.apache.flink", "flink-table-runtime", FLINK_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
]
DISK_WANTED = 4 * 1024**3
HEARTBEAT = 10.0

_say_lock = threading.Lock()


class Stop(Exception):
    """Set-up cannot go on; the message is one line that says what to do."""


def say(line: str) -> None:
    """One progress line on stderr, flushed."""
    with _say_lock:
        print(f"setup: {line}", file=sys.stderr, flush=True)


# ------------------------------------------------------------------------------------------------ stamps


def digest(*parts: Any) -> str:
    """A hash of JSON-able parts and of the content of files."""
    total = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else json.dumps(part, sort_keys=True).encode()
        total.update(hashlib.sha256(data).digest())
    return total.hexdigest()


def read_stamp(name: str) -> dict[str, Any]:
    """The stamp, empty where there is none or it cannot be read."""
    try:
        stamp = json.loads((STATE / f"{name}.json").read_text())
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(name: str, stamp: dict[str, Any]) -> None:
    """Write a stamp atomically."""
    STATE.mkdir(parents=True, exist_ok=True)
    write_whole(STATE / f"{name}.json", json.dumps(stamp, indent=1, sort_keys=True))


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """One set-up at a time in this tree; a second one waits for the first."""
    STATE.mkdir(parents=True, exist_ok=True)
    with (STATE / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("another set-up is at work in this folder; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# ------------------------------------------------------------------------------------------------ running things


def environment(java: Java | None = None) -> dict[str, str]:
    """The environment of every child: byte code on, a HOME that exists, the Java that was chosen."""
    env = dict(os.environ)
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "SPARK_HOME"):
        env.pop(name, None)
    home = env.get("HOME", "")
    if not home or not Path(home).is_dir() or not os.access(home, os.W_OK):
        (BUILD / "home").mkdir(parents=True, exist_ok=True)
        env["HOME"] = str(BUILD / "home")
    if java:
        env["JAVA_HOME"] = str(java.home)
    return env


NETWORK_SIGNS = (
    "failed to fetch",
    "dns error",
    "connection refused",
    "connection reset",
    "connection error",
    "connect error",
    "could not connect",
    "temporary failure in name resolution",
    "name or service not known",
    "network is unreachable",
    "timed out",
    "unknownhostexception",
    "connectexception",
    "server access error",
    "newconnectionerror",
    "no matching distribution found",
    "unresolved dependencies",
)


def explain(what: str, log: Path) -> Stop:
    """Turn the log of a failed child into one line."""
    text = log.read_text(errors="replace") if log.exists() else ""
    low = text.lower()
    if "no space left on device" in low:
        return Stop(f"{what}: the disk is full. Free at least {DISK_WANTED // 1024**3} GB and run make setup again.")
    if any(sign in low for sign in NETWORK_SIGNS):
        return Stop(
            f"{what}: the package registry did not answer as it should. Check the network or the proxy settings "
            f"and run make setup again; it goes on where it stopped (details: {log.relative_to(ROOT)})."
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1][:300] if lines else "it said nothing"
    return Stop(f"{what} failed: {last} (details: {log.relative_to(ROOT)}).")


def run(what: str, command: list[str], env: dict[str, str], progress: Callable[[str], str] | None = None) -> str:
    """Run a child with its output in ``build/setup/<what>.log`` and a heartbeat; ends it if this process is ended.

    Raises:
        Stop: it could not be started or ended with another code than 0.
    """
    log = STATE / (re.sub(r"\W+", "-", what) + ".log")
    began = time.monotonic()
    with log.open("w") as out:
        try:
            child = subprocess.Popen(
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=env,
                cwd=ROOT,
                start_new_session=True,
            )
        except OSError as error:
            raise Stop(f"{what} could not be started: {error}") from error
        try:
            while True:
                try:
                    code = child.wait(HEARTBEAT)
                    break
                except subprocess.TimeoutExpired:
                    now = progress(log.read_text(errors="replace")) if progress else ""
                    say(f"{what}: {time.monotonic() - began:.0f} s{', ' + now if now else ''} ...")
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)
            child.wait()
            raise
    if code != 0:
        raise explain(what, log)
    return log.read_text(errors="replace")


# ------------------------------------------------------------------------------------------------ the steps


def check_disk() -> None:
    """Raises Stop where the packages and jars would not fit."""
    free = shutil.disk_usage(ROOT).free
    if free < DISK_WANTED and not (read_stamp("packages") and read_stamp("jars-kafka")):
        raise Stop(
            f"{free / 1024**3:.1f} GB are free where {ROOT.name}/ lies, and set-up needs {DISK_WANTED / 1024**3:.0f} "
            "GB for packages and jars. Free some space, or clone it to a larger disk."
        )


def venv_version() -> tuple[int, int] | None:
    """Python version of .venv; None where it does not run."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired, ValueError):
        answer = subprocess.run(
            [str(PYTHON), "-c", "import sys; print(*sys.version_info[:2])"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if answer.returncode == 0:
            major, minor = answer.stdout.split()
            return int(major), int(minor)
    return None


def make_venv() -> None:
    """Make .venv, or take the one that is there; one that does not run is repaired in place."""
    version = venv_version()
    if version is None:
        say(f"making .venv with Python {sys.version_info[0]}.{sys.version_info[1]}")
        try:
            run("virtual environment", [sys.executable, "-m", "venv", str(VENV)], environment())
        except Stop as stop:
            text = (STATE / "virtual-environment.log").read_text(errors="replace")
            if "ensurepip" in text:
                raise Stop(
                    "this Python has no venv module with pip. Install it (Debian, Ubuntu: apt install python3-venv) "
                    "and run make setup again."
                ) from stop
            raise
        version = venv_version()
    if version is None or not (3, 11) <= version <= (3, 13):
        seen = "does not run" if version is None else f"holds Python {version[0]}.{version[1]}"
        raise Stop(f".venv {seen}; this project needs Python 3.11 to 3.13. Move .venv away and run make setup again.")


def install_uv() -> Path:
    """The pinned uv inside .venv."""
    uv = VENV / "bin" / "uv"
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        answer = subprocess.run([str(uv), "--version"], capture_output=True, text=True, timeout=60, check=False)
        if answer.returncode == 0 and answer.stdout.split()[1:2] == [UV_VERSION]:
            return uv
    say(f"installing uv {UV_VERSION}")
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"uv=={UV_VERSION}"]
    run("uv", command, environment())
    return uv


def install_packages(requirements: str = "dev.txt") -> None:
    """Everything of a file of requirements/, compiled to byte code."""
    version = venv_version()
    wanted = digest(ROOT / "requirements" / requirements, UV_VERSION, list(version or ()), str(VENV))
    if read_stamp("packages").get("inputs") != wanted:
        uv = install_uv()
        say("installing the pinned packages and compiling them (about a minute with a good network)")
        began = time.monotonic()
        command = [
            str(uv),
            "pip",
            "install",
            "--python",
            str(PYTHON),
            "--compile-bytecode",
            "-r",
            f"requirements/{requirements}",
        ]
        run("packages", command, environment(), lambda text: (text.strip().splitlines() or [""])[-1].strip()[:100])
        write_stamp("packages", {"inputs": wanted})
        say(f"packages: done in {time.monotonic() - began:.0f} s")


def install_project() -> None:
    """The project itself, editable, so that ``topicshift`` is a command and a module of .venv."""
    wanted = digest(ROOT / "pyproject.toml", str(ROOT), list(venv_version() or ()))
    if read_stamp("project").get("inputs") == wanted and (VENV / "bin" / "topicshift").exists():
        return
    say("installing topicshift itself, editable")
    command = [str(install_uv()), "pip", "install", "--python", str(PYTHON), "--no-deps", "--editable", "."]
    run("project", command, environment())
    write_stamp("project", {"inputs": wanted})


def compile_project() -> None:
    """Byte code for the project's own rooms: the first Airflow task should not pay for it."""
    rooms = [room for room in ("include", "plugins", "dags", "spark_jobs", "lab", "deploy") if (ROOT / room).is_dir()]
    subprocess.run(
        [str(PYTHON), "-m", "compileall", "-q", *rooms], cwd=ROOT, env=environment(), check=False, capture_output=True
    )


# ------------------------------------------------------------------------------------------------ jars

SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir={cache}/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""

MODULE = """<ivy-module version="2.0">
  <info organisation="topicshift" module={name}/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
{excludes}
  </dependencies>
</ivy-module>
"""


def artifact(jar: str) -> str:
    """The artifact's name without version: ``kafka-clients-4.3.1.jar`` -> ``kafka-clients``."""
    return re.sub(r"-\d[^/]*\.jar$", "", jar)


def jar_digests(folder: Path) -> dict[str, str]:
    """Hash of each jar in a folder, by name."""
    return {jar.name: digest(jar) for jar in sorted(folder.glob("*.jar"))}


def whole(jar: Path) -> bool:
    """Whether the archive is complete: every entry is there and its checksum fits."""
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile, EOFError):
        return False


def pyspark_jars() -> Path:
    """The folder of jars inside the installed PySpark."""
    found = sorted(VENV.glob("lib/python*/site-packages/pyspark/jars"))
    if not found or not list(found[-1].glob("ivy-*.jar")):
        STATE.joinpath("packages.json").unlink(missing_ok=True)
        raise Stop("PySpark's jars are not where they should be in .venv. Run make setup again to repair the packages.")
    return found[-1]


def ivy_progress(log: str) -> str:
    """How far Ivy is, from its log."""
    fetched = log.count("[SUCCESSFUL ]")
    return f"{fetched} jars fetched" if fetched else "resolving what they depend on"


def fetch_jars(name: str, modules: list[tuple[str, str, str]], java: Java, *, beside_pyspark: bool) -> None:
    """Fetch modules with what they depend on into ``build/jars/<name>``.

    Ivy (the jar inside PySpark) resolves against Maven Central by its built-in Maven resolver, with a cache of its
    own, so that a half-filled ``~/.m2`` cannot get in the way. The folder appears only when it is whole.

    Args:
        name: the folder.
        modules: group, artifact, version.
        java: runs Ivy.
        beside_pyspark: leave out what PySpark ships already.
    """
    shipped = pyspark_jars()
    excludes = sorted({artifact(jar.name) for jar in shipped.glob("*.jar")}) if beside_pyspark else []
    wanted = digest(modules, excludes, SETTINGS, MODULE)
    folder = JARS / name
    stamp = read_stamp(f"jars-{name}")
    if stamp.get("inputs") == wanted and stamp.get("jars") and stamp["jars"] == jar_digests(folder):
        return
    say(f"fetching the {name} jars: {', '.join(':'.join(module) for module in modules)}")
    began = time.monotonic()
    work = STATE / f"ivy-{name}"
    work.mkdir(parents=True, exist_ok=True)
    (work / "settings.xml").write_text(SETTINGS.format(cache=quoteattr(str(work / "cache"))))
    dependencies = "\n".join(
        f'    <dependency org="{group}" name="{module}" rev="{version}" conf="default->default"/>'
        for group, module, version in modules
    )
    skipped = "\n".join(f'    <exclude org="*" module="{module}"/>' for module in excludes)
    (work / "ivy.xml").write_text(MODULE.format(name=quoteattr(name), dependencies=dependencies, excludes=skipped))
    part = JARS / f".{name}.part"
    for attempt in (1, 2):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        command = [str(java.binary), "-Xmx256m", "-jar", str(next(shipped.glob("ivy-*.jar")))]
        command += ["-settings", str(work / "settings.xml"), "-ivy", str(work / "ivy.xml"), "-types", "jar", "bundle"]
        command += ["-confs", "default", "-retrieve", f"{part}/[artifact]-[revision](-[classifier]).[ext]"]
        run(f"{name} jars", command, environment(java), ivy_progress)
        broken = [jar.name for jar in part.glob("*.jar") if not whole(jar)]
        if not broken:
            break
        shutil.rmtree(work / "cache", ignore_errors=True)
        if attempt == 2:
            raise Stop(
                f"{name} jars: {', '.join(broken)} came broken twice. Check the network or the proxy, then run "
                "make setup again."
            )
        say(f"{name} jars: {', '.join(broken)} came broken; fetching them anew")
    missing = [
        f"{module}-{version}.jar" for _, module, version in modules if not (part / f"{module}-{version}.jar").exists()
    ]
    if missing:
        raise Stop(f"{name} jars: {', '.join(missing)} did not come (details: build/setup/{name}-jars.log).")
    shutil.rmtree(folder, ignore_errors=True)
    part.replace(folder)
    write_stamp(f"jars-{name}", {"inputs": wanted, "jars": jar_digests(folder)})
    say(f"{name} jars: {len(list(folder.glob('*.jar')))} in build/jars/{name}, {time.monotonic() - began:.0f} s")


def archive_classes(java: Java) -> None:
    """An archive of the classes that Spark loads at its start: with it a driver starts with two fifths less CPU time.

    Nothing depends on it, so where it cannot be made set-up goes on and says so.
    """
    release = java.home / "release"
    warm_up = ROOT / "tools" / "spark_warm_up.py"
    # The JVM turns an archive down without a word where a jar has another size or time than when it was made.
    found = [(jar.name, jar.stat()) for jar in pyspark_jars().glob("*.jar")]
    jars = sorted(f"{name} {stat.st_size} {int(stat.st_mtime)}" for name, stat in found)
    wanted = digest(jars, str(java.home), release.read_text() if release.exists() else "", warm_up, str(VENV))
    if read_stamp("class-archive").get("inputs") == wanted and CLASS_ARCHIVE.exists():
        return
    say("archiving the classes of Spark's start, so that it starts faster (half a minute)")
    began = time.monotonic()
    part = CLASS_ARCHIVE.with_name(f".{CLASS_ARCHIVE.name}.{os.getpid()}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={part}"
    command = [str(VENV / "bin" / "spark-submit"), "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    command += ["--conf", "spark.driver.host=127.0.0.1", "--driver-java-options", options, str(warm_up)]
    env = {**environment(java), "PYSPARK_PYTHON": str(PYTHON), "SPARK_LOCAL_IP": "127.0.0.1"}
    try:
        run("class archive", command, env)
        part.chmod(0o644)
        part.replace(CLASS_ARCHIVE)
    except (Stop, OSError) as problem:
        say(f"no class archive, so Spark starts as slowly as it does without one: {problem}")
        return
    finally:
        part.unlink(missing_ok=True)
    write_stamp("class-archive", {"inputs": wanted})
    say(f"class archive: done in {time.monotonic() - began:.0f} s")


def in_parallel(*jobs: Callable[[], None]) -> None:
    """Run jobs side by side; the first error of any is raised when all have ended."""
    errors: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)
    if errors:
        raise errors[0]


def set_up(requirements: str) -> None:
    """Every step, in order."""
    began = time.monotonic()
    java = find_java()
    with only_one():
        check_disk()
        make_venv()
        install_packages(requirements)
        in_parallel(
            install_project,
            lambda: fetch_jars("kafka", KAFKA_MODULES, java, beside_pyspark=False),
            lambda: fetch_jars("spark", SPARK_MODULES, java, beside_pyspark=True),
            *(
                [
                    lambda: fetch_jars("spring", SPRING_MODULES, java, beside_pyspark=False),
                    lambda: fetch_jars("flink", FLINK_MODULES, java, beside_pyspark=False),
                    lambda: archive_classes(java),
                ]
                if requirements == "dev.txt"
                else []
            ),
        )
        compile_project()
        write_stamp("java", {"home": str(java.home), "major": java.major})
    took = time.monotonic() - began
    say(f"ready in {took:.1f} s (Java {java.major}, {'.'.join(str(n) for n in venv_version() or ())} in .venv)")


def main() -> int:
    """Run set-up; 0 when ready, 2 with one line on stderr where something has to be done first.

    ``--runtime`` leaves out what only tests and linters need, for an image.
    """
    if sys.argv[1:] not in ([], ["--runtime"]):
        say("the only option is --runtime, which leaves out what only tests and linters need")
        return 2
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    try:
        set_up("runtime.txt" if sys.argv[1:] else "dev.txt")
    except (Stop, NoJava) as problem:
        say(str(problem))
        return 2
    except KeyboardInterrupt:
        say("interrupted; make setup goes on where it stopped")
        return 130
    except OSError as error:
        if error.errno == 28:
            say("the disk is full. Free some space and run make setup again.")
        else:
            say(f"{error}. Look at the rights and the space of this folder, and run make setup again.")
        return 2
    return 0
