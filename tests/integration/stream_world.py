"""A real Structured Streaming query, run by the driver and moved by the hook of ``docs/examples``."""

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

from tests.integration.host_world import Line, seen

from lab.broker import EmbeddedBroker
from lab.runfolder import ROOT
from topicshift.adapters.controllers import hooks
from topicshift.adapters.controllers.hooks import Answer

HOOK = (ROOT / "docs/examples/hooks/streaming-query").read_text()


class Stream:
    """One query with its hook, in ``hooks_folder``. Its applications live below ``home``."""

    def __init__(
        self, home: Path, broker: EmbeddedBroker, name: str, hooks_folder: Path | None = None, user: str | None = None
    ) -> None:
        self.name, self.home = name, home
        self.app = home / "applications" / name
        self.app.mkdir(parents=True)
        self.hooks = hooks_folder or home / "hooks"
        self.hooks.mkdir(exist_ok=True)
        broker.write_client_properties(user, self.app / "client.properties")
        app = Path(__file__).parent / "stream_app.py"
        path = os.pathsep.join(str(ROOT / part) for part in ("include", "spark_jobs", "."))
        (self.app / "run").write_text(
            f'#!/bin/sh\nexport PYTHONPATH="{path}"\nexec "{sys.executable}" "{app}" "{self.app}"\n'
        )
        (self.app / "run").chmod(0o755)
        self.mend_hook()

    def mend_hook(self) -> None:
        """The hook is the example, with this host as its home."""
        self.break_hook("never", "pass")

    def break_hook(self, moment: str, instead: str) -> None:
        """From now on the hook does something else at that moment."""
        lead = (
            f'import os, sys\nos.environ["HOME"] = {str(self.home)!r}\nif sys.argv[1] == {moment!r}:\n    {instead}\n'
        )
        first = f"#!{sys.executable}\n"
        (self.hooks / self.name).write_text(HOOK.replace("#!/usr/bin/env python3\n", first + lead, 1))
        (self.hooks / self.name).chmod(0o755)

    def call(self, moment: str, **told: str) -> Answer:
        """Call its hook."""
        env = {f"TOPICSHIFT_{k.upper()}": v for k, v in told.items()} | {"TOPICSHIFT_PARTICIPANT": self.name}
        return hooks.run(self.hooks / self.name, moment, env, 9.0)

    def begin(self, topic: str, checkpoint: Path, starting_offsets: str) -> None:
        """Start it, outside of any migration."""
        told = {"topic": topic, "checkpoint": str(checkpoint), "starting_offsets": starting_offsets}
        (self.app / "wanted.json").write_text(json.dumps({**told, "run": True}))
        assert self.call("start").code == 0
        self.until(lambda: self.status() == ("running", topic), "it runs", 120)

    def status(self) -> tuple[str, str | None]:
        """What its hook says."""
        answer = self.call("observe")
        if answer.code != 0:
            return "unknown", None
        said = json.loads(answer.out)
        return said["status"], said.get("topic")

    def wanted(self) -> dict[str, Any]:
        """What its driver was told last."""
        found: dict[str, Any] = json.loads((self.app / "wanted.json").read_text())
        return found

    def seen(self) -> list[Line]:
        """What it was given, in order."""
        return seen(self.app / "seen")

    def until(self, holds: Callable[[], Any], what: str, seconds: float = 60) -> None:
        """Wait for a condition."""
        deadline = time.monotonic() + seconds
        while not holds():
            log = self.app / "log"
            assert time.monotonic() < deadline, f"{what}: {log.read_text()[-3000:] if log.exists() else 'no log'}"
            time.sleep(0.1)

    def close(self) -> None:
        """End it, with its JVM."""
        try:
            os.killpg(int((self.app / "pid").read_text()), signal.SIGKILL)
        except (OSError, ValueError):
            return

    def kill(self) -> None:
        """End its driver as a crash does, and wait until it is gone."""
        self.close()
        pid = (self.app / "pid").read_text().strip()
        subprocess.run(["tail", f"--pid={pid}", "-f", "/dev/null"], timeout=20, check=False)
