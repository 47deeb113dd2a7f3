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
class Code:
    """A code of findings: the levels that it may have, what it says, and what to do (both for ``docs/findings.md``).

    Makes findings of itself, in the order in which people read them; ``do`` is the code's own remedy unless given.
    ``of_a_moment``: it speaks of what may be over in a minute (an idle group, an open transaction), so it is shown, and
    an approval of the plan does not depend on it.
    """

    code: str
    levels: tuple[Level, ...]
    says: str
    remedy: str
    of_a_moment: bool = False

    def at(self, level: Level, subject: str, seen: str, why: str, do: str = "", *, unknown: bool = False) -> Finding:
        """A finding of this level. Raises ``ValueError`` for one that the code does not have."""
        if level not in self.levels:
            raise ValueError(f"{self.code} has no level {level.value}")
        do = do or self.remedy
        return Finding(code=self.code, level=level, subject=subject, seen=seen, why=why, do=do, unknown=unknown)

    def error(self, subject: str, seen: str, why: str, do: str = "", *, unknown: bool = False) -> Finding:
        """A finding that blocks."""
        return self.at(Level.ERROR, subject, seen, why, do, unknown=unknown)

    def warning(self, subject: str, seen: str, why: str, do: str = "", *, unknown: bool = False) -> Finding:
        """A finding for whoever approves."""
        return self.at(Level.WARNING, subject, seen, why, do, unknown=unknown)

    def info(self, subject: str, seen: str, why: str, do: str = "") -> Finding:
        """A finding that explains."""
        return self.at(Level.INFO, subject, seen, why, do)


def sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """What blocks first, then by level, code and subject; each once."""
    order = [Level.ERROR, Level.WARNING, Level.INFO]
    unique = {(f.code, f.subject, f.seen): f for f in findings}.values()
    return sorted(unique, key=lambda f: (not f.blocks, order.index(f.level), f.code, f.subject, f.seen))
