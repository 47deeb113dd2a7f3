"""Free loopback ports that nothing else of ours takes, and that stay free while a server is down for a restart."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

FIRST, LAST = 20_000, 31_999
"""Below the range from which systems take the ports of outgoing connections, so that none steals one in between."""

_held: dict[int, IO[str]] = {}


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port right now."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def claim(count: int = 1) -> list[int]:
    """Claim free loopback ports for as long as this process lives (or until ``release``).

    A lock file each keeps other claimers of the same user off, the bind test everybody else.

    Raises:
        RuntimeError: no free port was found in a bounded number of tries.
    """
    folder = Path(tempfile.gettempdir()) / f"topicshift-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    taken: list[int] = []
    for port in random.sample(range(FIRST, LAST + 1), 2_000):
        if len(taken) == count:
            break
        if port in _held:
            continue
        lock = (folder / str(port)).open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        if not is_free(port):
            lock.close()
            continue
        _held[port] = lock
        taken.append(port)
    if len(taken) < count:
        release(taken)
        raise RuntimeError(f"no {count} free loopback ports between {FIRST} and {LAST}; stop what holds them")
    return taken


def release(ports: list[int]) -> None:
    """Give claimed ports back."""
    for port in ports:
        lock = _held.pop(port, None)
        if lock is not None:
            lock.close()
