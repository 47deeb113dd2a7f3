"""TS319: consumers that store the offset of a record as its version, its id, or to skip duplicates."""

from __future__ import annotations

import re
from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level
from topicshift.core.kafka.cluster import GroupInfo
from topicshift.core.spec.model import Approval
from topicshift.core.spec.participants import Consumer

_SEARCH = re.compile(r"elastic|opensearch|\bes\b|solr|vespa|algolia|typesense|meili|search|index", re.IGNORECASE)
"""What connectors into search engines are called: these write the offset of a record as its version."""

_TASK = re.compile(r"connector-consumer-(?P<name>.+)-\d+")
"""The client id of a sink connector's task, whatever its group is called."""


TS319 = Code(
    "TS319",
    (Level.ERROR, Level.WARNING, Level.INFO),
    "Offsets start at 0 on the target. A consumer that stores the offset of a record as its version, its id or to "
    "skip duplicates takes new records for old ones and drops them, with lag 0. An error for the group of a sink "
    "connector that does not say `stored_offsets`; of another consumer that does not, a warning for the person who "
    "approves the plan, and an error where nobody does (`approvals.plan: auto`); an info where it is handled.",
    "Ask the owner, then write `stored_offsets: none`, or `handled` once the stored offsets are dealt with (a new "
    "index, a version that is no offset, a cleared table).",
)


@check(Scope.PARTICIPANTS, TS319, needs=("described",))
def run(facts: Facts) -> Iterator[Finding]:
    """Asks once for all ordinary consumers, and blocks by name for those that show to be sink connectors."""
    unsaid = []
    for i, consumer in enumerate(facts.spec.consumers):
        where = f"consumers[{i}].stored_offsets"
        if consumer.stored_offsets == "handled":
            yield TS319.info(
                where,
                f"{consumer.name!r} stores offsets, and its owner deals with them.",
                "Offsets start at 0 on the target, so what is stored would make new records look old.",
                "See that it is done before this group is switched.",
            )
        elif consumer.stored_offsets is None:
            connector = _connector(consumer, (facts.snapshot.described or {}).get(consumer.group))
            if connector is None:
                unsaid.append(consumer.name)
                continue
            search = _SEARCH.search(connector)
            yield TS319.error(
                where,
                f"{consumer.group!r} is the group of the sink connector {connector!r}"
                + (", which by its name writes to a search engine." if search else "."),
                (
                    "Connectors into search engines store the offset of a record as the version of its document. "
                    if search
                    else "Whether it stores offsets as a version, an id or to skip duplicates cannot be seen here. "
                )
                + "Offsets start at 0 on the target, so every update of an old key would be dropped, with lag 0.",
                "Look at its settings, then write `stored_offsets: none`, or `handled` once it is dealt with (a new "
                "index or table, or a version that is no offset).",
            )
    if unsaid:
        asked = facts.spec.approvals.plan is Approval.REQUIRED
        yield TS319.at(
            Level.WARNING if asked else Level.ERROR,
            "consumers",
            f"{', '.join(unsaid)}: whether offsets are stored is not said"
            + ("." if asked else ", and with approvals.plan auto nobody is asked."),
            "Offsets start at 0 on the target. An application that stores them as a version, an id or to skip "
            "duplicates drops new records there, with lag 0, and no proof of this run sees that.",
            "Ask the owners, then write `stored_offsets: none` (or `handled`) for each of these consumers.",
        )


def _connector(consumer: Consumer, info: GroupInfo | None) -> str | None:
    """The name of the sink connector that reads as this group, as far as spec, group and client ids tell."""
    if consumer.kind == "connect":  # a mirror is a source connector; those who read its copies may store offsets
        return None if consumer.settings.get("mirror") else str(consumer.settings["connector"])
    group = consumer.group
    for member in info.members if info is not None else ():
        if found := _TASK.fullmatch(member.client_id):
            return found["name"]
    return group.removeprefix("connect-") if group.startswith("connect-") else None
