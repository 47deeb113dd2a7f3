"""The names of a rehearsal's shadow topics and groups: each begins with the mark of its run. Pure.

The mark stands in front, so that a consumer that subscribes to `payments.*` does not take the sample for its records,
and so that one prefix bounds the rights to write it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Final

from pydantic_core import PydanticCustomError

from topicshift.core.kafka.rules import MAX_NAME
from topicshift.core.spec.fields import problem

PREFIX: Final = "topicshift-rehearsal-"
"""Of every topic, group and transactional id of a rehearsal."""

_SHADOW: Final = re.compile(re.escape(PREFIX) + r"[0-9a-f]{8}\.(?P<real>.+)", re.DOTALL)

LONGEST: Final = MAX_NAME - len(f"{PREFIX}00000000.")
"""Characters of the longest topic name that can be rehearsed."""


def mark_of_run(owner: str) -> str:
    """The mark of a run's shadow objects: the same for every try of it, so that what a killed try made is found."""
    return hashlib.sha256(owner.encode()).hexdigest()[:8]


def shadow_name(name: str, mark: str) -> str:
    """The shadow of a topic or group."""
    return f"{PREFIX}{mark}.{name}"


def real_name(shadow: str) -> str | None:
    """The topic or group that this is the shadow of; None for a name that is none of a rehearsal."""
    found = _SHADOW.fullmatch(shadow)
    return found["real"] if found else None


def side_group(source: str, role: str, name: str) -> str:
    """The group whose one commit says where a shadow participant is; nobody ever reads as it.

    ``source`` is the shadow of the source, ``role`` producer or consumer.
    """
    return f"{source}:{role}:{name}"


def rehearsal_problems(
    source: str, target: str | None, *, rehearse: bool, windowed: bool
) -> Iterator[PydanticCustomError]:
    """What keeps a spec from being rehearsed; for one that moves a topic, that it is the shadow of another."""
    for at, name in (("source", source), ("target", target or "")):
        if not rehearse and name.startswith(PREFIX):
            yield problem(
                f"{name!r} has a name of a rehearsal's shadow",
                "Such a topic is deleted when its rehearsal ends.",
                f"Name the topic itself: {real_name(name) or 'one of another name'}.",
                (at,),
            )
        if rehearse and not real_name(name) and len(name) > LONGEST:
            yield problem(
                f"a name of {len(name)} characters is too long for a rehearsal",
                f"The name of its shadow would be longer than the {MAX_NAME} that Kafka takes.",
                f"Topics of up to {LONGEST} characters can be rehearsed; move this one without. Leave `mode` out.",
                (at,),
            )
    if rehearse and windowed:
        yield problem(
            "a rehearsal has a window",
            "It stops nobody, so it waits for no window; and each opening would start one.",
            "Leave `window` out, and trigger it by hand.",
            ("window",),
        )
