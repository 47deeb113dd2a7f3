"""TS801 to TS806: what the installation policy does not let a spec do."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level
from topicshift.core.policy.floor import lies_below, matches, who_answers
from topicshift.core.policy.model import Installation
from topicshift.core.spec.answers import ROLE
from topicshift.core.spec.duration import format_duration
from topicshift.core.spec.model import Approval, Approvals, Spec
from topicshift.core.spec.shadows import real_name

_ERROR = (Level.ERROR,)
_OR = "or have whoever runs this installation change its policy."
TS801 = Code(
    "TS801", _ERROR, "The installation policy does not allow this Kafka connection.", f"Name another one, {_OR}"
)
TS802 = Code(
    "TS802",
    _ERROR,
    "The installation policy does not allow this topic as a source or target.",
    f"Name another one, {_OR}",
)
TS803 = Code(
    "TS803", _ERROR, "The spec leaves out an approval that the installation policy requires.", f"Require it, {_OR}"
)
TS804 = Code(
    "TS804",
    _ERROR,
    "The source would be deleted sooner than the installation policy allows.",
    f"Lengthen the time, {_OR}",
)
TS805 = Code(
    "TS805",
    _ERROR,
    "The evidence of a reader lies at a place that the installation policy does not let a spec name.",
    f"Move it to an allowed place, {_OR}",
)
TS806 = Code(
    "TS806",
    _ERROR,
    "Who may answer a question (`answers`) contradicts the approvals or the installation policy, or leaves nobody.",
    "Name people whom the policy names as well, and require the approval.",
)
_WHY = "A spec, a form or a command line cannot go below what the installation allows."


@check(Scope.POLICY, TS801, TS802, TS803, TS804, TS805, TS806)
def run(facts: Facts) -> Iterator[Finding]:
    """Fires for each thing that the policy does not allow, and for rules of ``answers`` that nobody could follow."""
    policy = facts.snapshot.policy
    if policy is not None:
        yield from forbidden(facts.spec, facts.shape.name, policy)
        if real_name(facts.spec.source) is None:  # a rehearsal judges the migration itself before it makes a shadow
            yield from _below_the_floor(facts.spec, policy)
    yield from _answers(facts.spec, policy)


def forbidden(spec: Spec, target: str, policy: Installation) -> Iterator[Finding]:
    """What no later approval can mend: the connection, a topic, a place of evidence."""
    yield from out_of_bounds(spec, target, policy)
    places = policy.reader_locations
    for where, location in spec.opened() if places is not None else ():
        if not any(lies_below(location, place) for place in places or ()):
            allowed = f"allows {', '.join(places)}" if places else "allows none"
            field, _, name = where.partition(" of ")
            yield TS805.error(field, f"{location} of {name}; the policy {allowed}.", _WHY)


def out_of_bounds(spec: Spec, target: str, policy: Installation) -> Iterator[Finding]:
    """A connection or a topic that the policy does not allow."""
    known = policy.connections
    if known is not None and not matches(spec.kafka_conn_id, known):
        yield TS801.error(
            "kafka_conn_id", f"{spec.kafka_conn_id!r}; the policy allows {', '.join(known) or 'none'}.", _WHY
        )
    topics = policy.topics
    for field, name in (("source", spec.source), ("target", target)):
        # The policy speaks of topics, and a shadow is a copy of one.
        if topics is not None and not matches(real_name(name) or name, topics):
            yield TS802.error(field, f"{name!r}; the policy allows {', '.join(topics) or 'none'}.", _WHY)


def _below_the_floor(spec: Spec, policy: Installation) -> Iterator[Finding]:
    for name in sorted(policy.floor):
        if getattr(spec.approvals, name) is not Approval.REQUIRED:
            yield TS803.error(f"approvals.{name}", "auto; the policy says required.", _WHY)
    for name in ("after", "scream_test"):
        has, least = getattr(spec.retire, name), getattr(policy.retire, name)
        if has < least:
            yield TS804.error(
                f"retire.{name}", f"{format_duration(has)}; the policy says {format_duration(least)} at least.", _WHY
            )


def _answers(spec: Spec, policy: Installation | None) -> Iterator[Finding]:
    who = who_answers(spec, policy)
    for i, rule in enumerate(spec.answers):
        at, people = f"answers[{i}]", rule.people or []
        roles = policy.roles if policy else {}
        unknown = [n for n in people if n.startswith(ROLE) and n.removeprefix(ROLE) not in roles]
        above = policy.rule(rule.question) if policy else None
        if unknown:
            yield TS806.error(
                at, f"{', '.join(unknown)}: the installation policy has no such role.", "Nobody would be in it."
            )
        elif policy and above and above.people is not None:
            more = policy.members(people) - policy.members(above.people)
            if more:
                yield TS806.error(at, f"{', '.join(sorted(more))}: the policy does not let them answer.", _WHY)
        left = who[rule.question].people
        if left is not None and not unknown and len(left) < (2 if who[rule.question].two else 1):
            seen = f"{len(left)} people may answer {rule.question}, and it takes {2 if who[rule.question].two else 1}."
            yield TS806.error(at, seen, "The run would wait for an answer that cannot be given.")
        if rule.question in Approvals.model_fields and getattr(spec.approvals, rule.question) is Approval.AUTO:
            seen = f"it says who answers {rule.question}, and approvals.{rule.question} is auto."
            yield TS806.error(at, seen, "Nobody would be asked.", f"Set approvals.{rule.question}: required.")
