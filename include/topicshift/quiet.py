"""Lets kafka-python say less: its own talk would bury the one line that matters in a task's log or a terminal."""

from __future__ import annotations

import logging
import os


def quiet(*, wholly: bool = False) -> None:
    """Pass over what it warns of: log-ins without TLS, its own event loop, each connection that is tried again.

    Whatever goes wrong comes as an exception, so ``wholly`` (for a terminal) loses nothing. With ``TOPICSHIFT_DEBUG``
    set it says all. Never makes louder what is quieter already.
    """
    if os.environ.get("TOPICSHIFT_DEBUG"):
        return
    logger = logging.getLogger("kafka")
    logger.setLevel(max(logging.CRITICAL if wholly else logging.ERROR, logger.level))
