"""A spec under the installation policy: what is raised to it, and who may answer which question."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from topicshift.core.policy.model import Installation
from topicshift.core.policy.who import Who
from topicshift.core.spec.answers import ROLE, AnswerRule
from topicshift.core.spec.model import Approval, Mode, Spec


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name fits one of the patterns; case matters."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


_AMBIGUOUS = re.compile(r"::|\\|%2[ef]|%5c|[\x00-\x20]", re.IGNORECASE)
"""A chain of file systems, and what two parsers may read in two ways."""


def is_local(location: str) -> bool:
    """Whether a location is a path of this machine."""
    return urlsplit(location).scheme in ("", "file")


def lies_below(location: str, place: str) -> bool:
    """Whether a path or URL lies below a place, by its text alone; links are not followed.

    Nothing does that two parsers could read in two ways, and no relative path does.
    """
    if _AMBIGUOUS.search(location):
        return False
    try:
        where, base = urlsplit(location), urlsplit(place)
    except ValueError:
        return False
    if where.query or where.fragment or {".", ".."} & set(where.path.split("/")):
        return False
    if is_local(location) and is_local(place):
        path, folder = PurePosixPath(unquote(where.path)), PurePosixPath(unquote(base.path))
        local = not where.netloc and not base.netloc and path.is_absolute() and folder.is_absolute()
        return local and path.is_relative_to(folder)
    if (where.scheme.lower(), where.netloc.lower()) != (base.scheme.lower(), base.netloc.lower()):
        return False
    return f"{where.path}/".startswith(base.path.rstrip("/") + "/")


def raised(spec: Spec, policy: Installation | None) -> Spec:
    """The spec with its approvals and times raised to the policy: what a run goes by that began before it.

    A rehearsal moves nothing, so nobody has to approve it.
    """
    if policy is None or spec.mode is Mode.REHEARSE:
        return spec
    approvals = dict.fromkeys(policy.floor, Approval.REQUIRED)
    retire, least = spec.retire, policy.retire
    times = {"after": max(retire.after, least.after), "scream_test": max(retire.scream_test, least.scream_test)}
    return spec.model_copy(
        update={
            "approvals": spec.approvals.model_copy(update=approvals),
            "retire": retire.model_copy(update=times),
        }
    )


def who_answers(spec: Spec, policy: Installation | None) -> dict[str, Who]:
    """Who may answer which question: the spec may narrow what the policy says, and never widen it."""
    found: dict[str, Who] = {}
    for rule in (*(policy.answers if policy else ()), *spec.answers):
        people = None if rule.people is None else _members(rule, policy)
        before = found.get(rule.question, Who())
        both = before.people if people is None else people if before.people is None else people & before.people
        found[rule.question] = Who(both, before.two or rule.two_people)
    return found


def _members(rule: AnswerRule, policy: Installation | None) -> frozenset[str]:
    people = rule.people or []
    return policy.members(people) if policy else frozenset(n for n in people if not n.startswith(ROLE))
