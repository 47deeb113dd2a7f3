"""Findings: what a check saw, why it matters and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from pydantic import Field

from topicshift.core.base import Model


class Level(StrEnum):
    """How much a finding weighs. An error blocks; a warning is shown at the approval; info explains."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Finding(Model):
    """One statement of a check, with a stable code (``TS101``) that documents and tests refer to.

    ``subject`` names the thing (a spec field such as ``consumers[0].group``, a topic, a group, ``topic[3]``).
    ``unknown`` is true where the check could not read what it needs: it blocks like an error, whatever the level.
    """

    code: str = Field(pattern=r"^TS\d{3}$")
    level: Level
    subject: str
    seen: str
    why: str
    do: str
    unknown: bool = False

    @property
    def blocks(self) -> bool:
        """Whether a plan with this finding may not go on."""
        return self.unknown or self.level is Level.ERROR

    def line(self) -> str:
        """One line for a terminal or a log."""
        return f"{self.code} {self.level.value}: {self.subject}: {self.seen} {self.why} {self.do}"


@dataclass(frozen=True)
class CodeDoc:
    """One code for ``docs/findings.md``: its levels, what it says, and what to do."""

    code: str
    levels: tuple[Level, ...]
    says: str
    remedy: str


def find(code: str, level: Level, subject: str, seen: str, why: str, do: str, *, unknown: bool = False) -> Finding:
    """A finding, in the order in which people read it."""
    return Finding(code=code, level=level, subject=subject, seen=seen, why=why, do=do, unknown=unknown)


def sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """What blocks first, then by level, code and subject; each once."""
    order = [Level.ERROR, Level.WARNING, Level.INFO]
    unique = {(f.code, f.subject, f.seen): f for f in findings}.values()
    return sorted(unique, key=lambda f: (not f.blocks, order.index(f.level), f.code, f.subject, f.seen))
