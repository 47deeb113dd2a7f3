"""Hosts of their own for processes: network namespaces whose links to the broker and to the journal can be cut.

Takes Linux, the rights of root and ``ip`` of iproute2. Broker and journal listen at two addresses of this machine; each
host has a link (a pair of virtual interfaces) to either, and nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psutil

LINKS = ("kafka", "journal")
NETS = range(1, 250)
LOCK = Path(tempfile.gettempdir()) / "topicshift-hosts.lock"


class NoHosts(RuntimeError):
    """This machine gives us no network namespaces; the message says why."""


def _ip(*words: str) -> str:
    ran = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise NoHosts(f"ip {' '.join(words)}: {ran.stderr.strip() or ran.returncode}")
    return ran.stdout


class Hosts:
    """``count`` hosts. A context manager; raises ``NoHosts`` where the machine cannot have them."""

    def __init__(self, count: int = 2) -> None:
        self.count = count
        self._net = 0
        self._stack = contextlib.ExitStack()

    @property
    def kafka(self) -> str:
        """The address at which the broker is reached from every host, and from this one."""
        return f"10.200.{self._net}.1"

    @property
    def journal(self) -> str:
        """The address at which the journal's database is reached."""
        return f"10.200.{self._net}.2"

    def __enter__(self) -> Hosts:
        if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("nsenter"):
            raise NoHosts("network namespaces take the rights of root, ip and nsenter")
        with self._stack:
            self._claim()
            for address in (self.kafka, self.journal):
                _ip("address", "add", f"{address}/32", "dev", "lo")
                self._stack.callback(_quietly, "address", "delete", f"{address}/32", "dev", "lo")
            for n in range(self.count):
                for at, link in enumerate(LINKS):
                    self._join(n, link, f"10.{201 + at}.{self._net}", (self.kafka, self.journal)[at])
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def _claim(self) -> None:
        """Make the namespaces; their names keep others off our addresses."""
        with LOCK.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _sweep()
            taken = {name.split("-")[1] for name in _names()}
            self._net = next(n for n in NETS if str(n) not in taken)
            for n in range(self.count):
                _ip("netns", "add", self._name(n))
                self._stack.callback(_quietly, "netns", "delete", self._name(n))
                _ip("-n", self._name(n), "link", "set", "lo", "up")

    def _name(self, n: int) -> str:
        return f"chaos-{self._net}-{os.getpid()}-{n}"

    def _end(self, n: int, link: str) -> str:
        return f"ch{self._net}{link[0]}{n}"

    def _join(self, n: int, link: str, net: str, address: str) -> None:
        host, here = self._name(n), self._end(n, link)
        first = 4 * n
        _ip("link", "add", here, "type", "veth", "peer", "name", link, "netns", host)
        _ip("address", "add", f"{net}.{first + 1}/30", "dev", here)
        _ip("-n", host, "address", "add", f"{net}.{first + 2}/30", "dev", link)
        _ip("link", "set", here, "up")
        _ip("-n", host, "link", "set", link, "up")
        _ip("-n", host, "route", "add", f"{address}/32", "via", f"{net}.{first + 1}")
        # While the link is cut, answers go nowhere, instead of by the way to the outside.
        _ip("route", "add", "blackhole", f"{net}.{first}/30", "metric", "1000")
        self._stack.callback(_quietly, "route", "delete", "blackhole", f"{net}.{first}/30", "metric", "1000")

    def on(self, n: int, words: Sequence[str]) -> list[str]:
        """The command that runs ``words`` on a host; its process is the one that is started."""
        return ["nsenter", f"--net=/run/netns/{self._name(n)}", *words]

    def cut(self, n: int, link: str) -> None:
        """Cut a link of a host: nothing gets through, and nobody is told."""
        _ip("link", "set", self._end(n, link), "down")

    def mend(self, n: int, link: str) -> None:
        """Make the link whole again."""
        _ip("link", "set", self._end(n, link), "up")


def _quietly(*words: str) -> None:
    with contextlib.suppress(NoHosts):
        _ip(*words)


def _names() -> list[str]:
    return [line.split()[0] for line in _ip("netns", "list").splitlines() if line.startswith("chaos-")]


def _sweep() -> None:
    """Remove what a run has left behind that was killed."""
    for name in _names():
        _, net, pid, _ = name.split("-")
        if psutil.pid_exists(int(pid)):
            continue
        _quietly("netns", "delete", name)
        for last in (1, 2):
            _quietly("address", "delete", f"10.200.{net}.{last}/32", "dev", "lo")
        for at in range(len(LINKS)):
            for n in range(8):
                _quietly("route", "delete", "blackhole", f"10.{201 + at}.{net}.{4 * n}/30", "metric", "1000")
