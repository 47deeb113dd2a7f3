"""This machine's clocks in one reading, for whoever counts an age across a process that may sleep."""

from __future__ import annotations

import time

from topicshift.core.route.clocks import Now

_BOOT = getattr(time, "CLOCK_BOOTTIME", None)


def read_now() -> Now:
    """The wall clock, and the one that counts suspend where the system has it, else the monotonic one."""
    return Now(time.time(), time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT))
