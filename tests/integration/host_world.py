"""A host whose applications are processes (``plain_app.py``), moved by the hook of ``docs/examples``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from lab.broker import EmbeddedBroker

ROOT = Path(__file__).parents[2]
HOOK = (ROOT / "docs/examples/hooks/one-process").read_text()
Line = tuple[str, int, str]


def seen(file: Path) -> list[Line]:
    """What an application has had acknowledged, or was given, in order: key, number and topic."""
    lines = (line.split(",") for line in file.read_text().splitlines()) if file.exists() else ()
    return [(key, int(number), topic) for key, number, topic in lines]


def by_key(lines: list[Line]) -> dict[str, list[int]]:
    """The numbers of each key, in their order."""
    found = defaultdict(list)
    for key, number, _ in lines:
        found[key].append(number)
    return dict(found)


class Host:
    """One host: applications that run as processes, and the hooks, in ``hooks``, by which they are moved."""

    def __init__(self, home: Path, broker: EmbeddedBroker, hooks: Path | None = None) -> None:
        self.home, self.broker = home, broker
        self.hooks = hooks or home / "hooks"
        self.hooks.mkdir(exist_ok=True)

    def install(self, role: str, name: str, topic: str, group: str = "", user: str | None = None) -> None:
        """An application with its hook, running on the topic, as a user of the broker."""
        folder = self.home / "applications" / name
        folder.mkdir(parents=True)
        member = {"group.id": group, "session.timeout.ms": 6000} if group else {}
        config = folder / "config"
        config.touch(0o600)
        config.write_text(json.dumps({**self.broker.config(user), **member}))
        (folder / "topic").write_text(topic)
        app = Path(__file__).parent / "plain_app.py"
        (folder / "run").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{app}" {role} "{folder}" "{folder}/config"\n')
        (folder / "run").chmod(0o755)
        self.mend_hook(name)
        self.start(name)

    def start(self, name: str) -> None:
        """By its hook, as everybody does."""
        subprocess.run([self.hooks / name, "start"], env={**os.environ, "TOPICSHIFT_PARTICIPANT": name}, check=True)

    def seen(self, name: str) -> list[Line]:
        """What an application has had acknowledged, or has processed, in order."""
        return seen(self.file(name))

    def file(self, name: str) -> Path:
        """Where it keeps that."""
        return self.home / "applications" / name / "seen"

    def running(self, name: str) -> tuple[str, bool]:
        """The topic it was started on, and whether it lives."""
        folder = self.home / "applications" / name
        stat = Path(f"/proc/{(folder / 'pid').read_text().strip()}/stat")
        return (folder / "running").read_text(), stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"

    def fields(self) -> dict[str, dict[str, object]]:
        """Everything that is kept of each application, but for its process's number and what it has seen."""
        passing = ("pid", "seen", "log", "numbers")
        return {
            folder.name: {f.name: f.read_text() for f in sorted(folder.iterdir()) if f.name not in passing}
            | {"alive": self.running(folder.name)[1]}
            for folder in sorted((self.home / "applications").iterdir())
        }

    def stand(self, name: str) -> None:
        """Stop it, outside of any migration."""
        os.kill(int((self.home / "applications" / name / "pid").read_text()), signal.SIGTERM)

    def mend_hook(self, name: str) -> None:
        """The hook is the example, with this host as its home."""
        self.break_hook(name, "never", ":")

    def break_hook(self, name: str, moment: str, instead: str) -> None:
        """From now on the hook does something else at that moment."""
        lead = f'HOME="{self.home}"\n[ "$1" = {moment} ] && {{ {instead}; }}\n'
        (self.hooks / name).write_text(HOOK.replace("#!/bin/sh\n", f"#!/bin/sh\n{lead}", 1))
        (self.hooks / name).chmod(0o755)

    def close(self) -> None:
        """End everything that was started."""
        for path in (self.home / "applications").glob("*/pid"):
            try:
                os.killpg(int(path.read_text()), signal.SIGKILL)
            except (ProcessLookupError, ValueError):
                continue
