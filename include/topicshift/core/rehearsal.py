"""A rehearsal: the spec of a migration turned into that of its shadow, whose topics and groups nobody else has.

The engine and its acts only ever see the shadow's spec, so they cannot name a topic or a group of the real migration.
Pure.
"""

from __future__ import annotations

from topicshift.core.spec.model import Approvals, Mode, Spec
from topicshift.core.spec.participants import IgnoredGroup
from topicshift.core.spec.shadows import shadow_name, side_group


def shadow_spec(spec: Spec, target: str, mark: str) -> Spec:
    """The spec of the shadow: the same partitions, participants and order, on topics and groups of its own.

    Left out is what nobody needs who stops nobody: the window, approvals and who gives them, readers without commits
    and groups to ignore, which read the real source alone.
    """
    source = shadow_name(spec.source, mark)
    sides = [
        *(side_group(source, "producer", p.name) for p in spec.producers),
        *(side_group(source, "consumer", c.name) for c in spec.consumers),
    ]
    consumers = [
        c.model_copy(update={"group": shadow_name(c.group, mark), "stored_offsets": "handled"}) for c in spec.consumers
    ]
    return Spec.model_validate(
        {
            **spec.model_dump(mode="json"),
            "mode": Mode.REHEARSE.value,
            "source": source,
            "target": shadow_name(target, mark),
            "consumers": [c.model_dump(mode="json") for c in consumers],
            "approvals": Approvals(plan="auto", freeze="auto", certificate="auto", retire="auto").model_dump(),
            "answers": [],
            "readers": [],
            "lost_records_accepted": [],
            "coupled": [],
            "ignore_groups": [
                IgnoredGroup(group=g, reason="where a shadow participant is").model_dump() for g in sides
            ],
        }
    )


def rehearsed_spec(spec: Spec, target: str) -> Spec:
    """The spec of the migration that a rehearsal is of."""
    return spec.model_copy(update={"mode": Mode.MIGRATE, "target": target})
