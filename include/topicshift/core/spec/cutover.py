"""The order of the cut-over; of its own, so that whoever only names steps need not import the whole spec."""

from __future__ import annotations

from enum import StrEnum


class Cutover(StrEnum):
    """The order of the cut-over."""

    DRAIN_FIRST = "drain_first"
    PRODUCERS_FIRST = "producers_first"
