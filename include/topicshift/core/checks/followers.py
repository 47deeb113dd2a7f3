"""TS317: applications on the route of this topic, against those that the spec declares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level
from topicshift.core.route.judge import Follower
from topicshift.core.spec.model import Spec

TS317 = Code(
    "TS317",
    (Level.ERROR,),
    "An application follows the route of this topic and the spec does not declare it, or declares it as `manual`; "
    "or it is on the source by another route; or who follows the route is unknown. It would be paused with the "
    "others and never waited for, or be left behind.",
    "Declare it with `kind: route`, under the name that it reports, or let it leave the route.",
)


@check(Scope.PARTICIPANTS, TS317)
def run(facts: Facts) -> Iterator[Finding]:
    """Compares all who follow the route with the declared participants."""
    followers = facts.snapshot.followers
    if followers is None:
        asked = facts.snapshot.source is not None and "followers" not in facts.snapshot.unread
        if facts.on_the_route and asked:
            yield TS317.error(
                "route",
                "nobody has looked who follows the route of this topic.",
                "An application that the spec does not name would be paused with the others and never waited for.",
                "Plan with access to the route topics.",
                unknown=True,
            )
        return
    yield from strays(facts.spec, followers)


def strays(spec: Spec, followers: Sequence[Follower]) -> Iterator[Finding]:
    """One finding for each application on the route, or on the source by another route, that the spec does not move."""
    kinds: dict[tuple[str, str, str | None], str] = {("producer", p.name, None): p.kind for p in spec.producers}
    kinds |= {("consumer", c.name, c.group): c.kind for c in spec.consumers}
    seen: dict[tuple[str, str, str, str | None], Follower] = {}
    for f in followers:
        seen.setdefault((f.logical, f.role, f.participant, f.group), f)
    ours = _logical(spec, followers, kinds)
    for follower in seen.values():
        kind = kinds.get((follower.role, follower.participant, follower.group))
        if kind == "route" and follower.logical == ours:
            continue
        yield _stray(follower, kind, elsewhere=follower.logical != ours)


def _logical(spec: Spec, followers: Sequence[Follower], kinds: dict[tuple[str, str, str | None], str]) -> str:
    """The logical topic of this migration: that of the declared participants, else the source's own name."""
    known = [f.logical for f in followers if kinds.get((f.role, f.participant, f.group)) == "route"]
    return max(sorted(set(known)), key=known.count) if known else spec.source


def _stray(follower: Follower, kind: str | None, *, elsewhere: bool) -> Finding:
    group = f" (group {follower.group})" if follower.group else ""
    if elsewhere:
        seen = f"it is on the source by the route of {follower.logical!r}, which this migration does not move."
        why = "It would not be paused with the others and be left behind on the source."
        do = "Give all applications of this topic one logical topic, or take this one off the source."
    else:
        said = "the spec does not declare it" if kind is None else f"the spec declares it as `{kind}`"
        seen = f"it follows the route of this topic ({', '.join(follower.instances[:3])}), and {said}."
        why = (
            "It is paused and pointed with the others, nobody waits for it, and the fence may deny it beyond its lease."
            if follower.role == "producer"
            else "It obeys the route, and nobody waits until it has read the source or looks whether it was moved."
        )
        do = f"Declare it under `{follower.role}s` with `kind: route`, this name{' and group' if group else ''}, or "
        do += "take it off the route."
    return TS317.error(f"{follower.role} {follower.participant}{group}", seen, why, do)
