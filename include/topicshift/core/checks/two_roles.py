"""TS328: one application that the spec declares in several parts, which are stopped and started together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level
from topicshift.core.spec.cutover import Cutover
from topicshift.core.spec.participants import Application, Consumer

TS328 = Code(
    "TS328",
    (Level.ERROR, Level.WARNING, Level.INFO),
    "One application is declared in several parts: it writes the source and reads it, or reads it by several groups, "
    "and what stops, points or starts one part does so with all of it. An error with `drain_first`, where it would "
    "stand as a producer while its group has to drain, and where one setting names the topic of a consumer and of "
    "another part. Otherwise a warning; an info where it follows the route, which tells its parts apart.",
    "Use `cutover: producers_first` and a setting of its own for each part's topic; or run the parts as applications "
    "that are stopped apart from each other; or let it follow the route (docs/coupling.md).",
)


@dataclass(frozen=True)
class _Part:
    """One participant of an application; ``pointer`` is what names its topic there, as far as the spec tells."""

    where: str
    name: str
    role: str
    pointer: str


@check(Scope.PARTICIPANTS, TS328)
def run(facts: Facts) -> Iterator[Finding]:
    """Compares the participants of the spec with each other."""
    found: dict[tuple[str, ...], list[_Part]] = {}
    for section, listed in (("producers", facts.spec.producers), ("consumers", facts.spec.consumers)):
        for i, one in enumerate(listed):
            key, pointer = _application(one)
            role = "consumer" if isinstance(one, Consumer) else "producer"
            found.setdefault(key, []).append(_Part(f"{section}[{i}]", one.name, role, pointer or role))
    for key, parts in found.items():
        if len(parts) > 1 and any(p.role == "consumer" for p in parts):
            yield _told(facts, key, parts)


def _application(one: Application) -> tuple[tuple[str, ...], str]:
    """What is stopped and started as one, and what in it names the topic of this participant (empty: its role)."""
    settings, default = one.settings, f"{one.kind}_default"
    connection = str(settings.get("connection", default))
    if one.kind == "kubernetes":
        place = f"{settings['topic_in']} of {settings.get('container') or 'every container'}"
        return (one.kind, connection, str(settings["namespace"]), str(settings["workload"])), place
    if one.kind == "connect":
        return (one.kind, connection, str(settings["connector"])), "its topics"
    if one.kind == "flink":  # its controller says so itself (TS325)
        return (one.kind, one.name, str(isinstance(one, Consumer))), ""
    return (one.kind, one.name), ""


def _told(facts: Facts, key: tuple[str, ...], parts: list[_Part]) -> Finding:
    subject, kind = ", ".join(p.where for p in parts), key[0]
    names = " and ".join(dict.fromkeys(p.name for p in parts))
    which = f"{key[-1]!r} ({names})" if kind in ("kubernetes", "connect") else repr(names)
    both = len({p.role for p in parts}) > 1
    if kind == "route":
        return TS328.info(
            subject,
            f"{which} writes and reads the source, by the route.",
            "In the freeze it writes nothing and goes on reading. Where it has to write to the source to be done with "
            "a record, its group does not drain.",
            "Nothing, if it has not; else `cutover: producers_first`.",
        )
    pointers = [p.pointer for p in parts if p.role == "consumer" or both]
    if len(set(pointers)) < len(pointers):
        return TS328.error(
            subject,
            f"{which} is one application, and one setting of it ({pointers[0]}) names the topic of several parts.",
            "Pointed for one part it is pointed for all: it would read the target before that group has drained the "
            "source and has its offsets there.",
            "Give each part a setting of its own for its topic, or run them as applications of their own.",
        )
    if both and facts.spec.cutover is Cutover.DRAIN_FIRST:
        return TS328.error(
            subject,
            f"{which} writes the source and reads it, and is stopped as a whole.",
            "Stopped with the producers it reads nothing, so its group never drains and the budget ends the freeze.",
            "Write `cutover: producers_first`, with one setting for the topic that it writes and another for the one "
            "that it reads; or run both halves as applications of their own; or let it follow the route.",
        )
    return TS328.warning(
        subject,
        f"{which} is one application of {len(parts)} parts.",
        "It is stopped and started once for each of them, and the others stand with it for that time.",
        "See that each part has a setting of its own for its topic, and goes on where it was when another is moved.",
    )
