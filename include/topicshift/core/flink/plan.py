"""The compiled plan of a Flink SQL job, given another id for the source that reads a table. Pure."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

SCANS = "stream-exec-table-source-scan_"
"""What the type of a node begins with that reads a table."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """A node that reads a table. ``table``: its whole identifier."""

    number: int
    table: str

    @property
    def uid(self) -> str:
        """The uid of the Kafka source that Flink makes from it, with its usual `table.exec.uid.format`."""
        return f"{self.number}_kafka"


def sources(plan: Any) -> list[Source]:
    """The nodes of a plan that read a table. Raises ``ValueError`` for what is no compiled plan."""
    try:
        nodes = [n for n in plan["nodes"] if str(n["type"]).startswith(SCANS)]
        return [Source(int(n["id"]), str(n["scanTableSource"]["table"]["identifier"])) for n in nodes]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a compiled plan of Flink SQL ({type(error).__name__}: {error})") from None


def source_of(plan: Any, table: str) -> Source:
    """The one node that reads a table, by its name or its whole identifier. Raises ``ValueError`` without just one."""
    there = sources(plan)
    found = [s for s in there if _plain(s.table) == _plain(table) or _plain(s.table).endswith(f".{_plain(table)}")]
    if len(found) != 1:
        names = ", ".join(s.table for s in there) or "no table at all"
        raise ValueError(f"{len(found)} of its sources read {table!r}, and it has to be one; it reads {names}")
    return found[0]


def with_other_source(plan: Any, table: str, number: int | None = None) -> tuple[Json, Source]:
    """A copy in which the source of a table has another id, so that it does not take up the old one's state.

    Args:
        plan: the compiled plan, as `COMPILE PLAN` writes it.
        table: the table whose source gets the id.
        number: the id; the next round hundred and one where it is None.

    Raises:
        ValueError: it is no such plan, or a node has that id.
    """
    before = source_of(plan, table)
    taken = {int(n["id"]) for n in plan["nodes"]}
    new = number if number is not None else max(taken) // 100 * 100 + 101
    if new in taken:
        raise ValueError(f"a node of the plan has the id {new} already; take one that none has")
    made = deepcopy(dict(plan))
    for node in made["nodes"]:
        if node["id"] == before.number:
            node["id"] = new
    for edge in made["edges"]:
        for end in ("source", "target"):
            if edge[end] == before.number:
                edge[end] = new
    return made, Source(new, before.table)


def _plain(identifier: str) -> str:
    return identifier.replace("`", "")
