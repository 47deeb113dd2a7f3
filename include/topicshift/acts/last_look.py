"""What is known of a source just before it is deleted, kept as evidence."""

from __future__ import annotations

import json

from topicshift.acts.context import MigrationContext
from topicshift.core.errors import Unreadable
from topicshift.ports import GroupCommits, TopicInfo

LAST_LOOK = "source_at_retirement.json"
"""The evidence file."""


def unread(commits: GroupCommits | None) -> bool:
    """Whether the commits of a group, or a part of them, could not be read."""
    return commits is None or bool(commits.error or commits.errors)


def keep_last_look(ctx: MigrationContext, info: TopicInfo) -> dict[int, int]:
    """Write configs, offsets, commits and ACLs of a source to evidence, before it is deleted. Returns where it ends.

    Raises ``Unreadable`` where an offset or a group cannot be read: it could never be known again.
    """
    admin, source = ctx.admin, info.name
    offsets = admin.offsets(source)
    names = sorted(g.group for g in admin.groups())
    commits = admin.commits(names, source, sorted(info.replicas)) if names else {}
    blind = [f"partition {p}" for p in info.replicas if p not in offsets or offsets[p].end is None]
    blind += [f"group {name}" for name in names if unread(commits.get(name))]
    if blind:
        raise Unreadable(f"{source} is not deleted: its offsets could not be kept as evidence ({', '.join(blind)}).")
    acls = admin.acls() if admin.cluster().authorizer else None
    kept = {
        "topic": source,
        "topic_id": info.topic_id,
        "taken_at": ctx.clock.now().isoformat(),
        "configs": {name: entry.value for name, entry in sorted(info.configs.items()) if entry.set_here},
        "partitions": {
            str(p): {
                "log_start": o.log_start,
                "end_committed": o.end_committed,
                "end": o.end,
                "replicas": list(info.replicas.get(p, ())),
            }
            for p, o in sorted(offsets.items())
        },
        "commits": {
            name: {str(p): o for p, o in sorted(c.offsets.items()) if o is not None}
            for name, c in sorted(commits.items())
            if any(o is not None for o in c.offsets.values())
        },
        "acls": None
        if acls is None
        else [vars(a) for a in sorted(acls) if a.resource_type == "TOPIC" and a.name == source],
    }
    ctx.write(LAST_LOOK, json.dumps(kept, indent=2))
    return {p: o.end for p, o in offsets.items() if o.end is not None}
