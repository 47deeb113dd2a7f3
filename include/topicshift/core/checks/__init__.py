"""Checks: pure functions from facts to findings. One file a check; each registers itself with a scope and its codes.

A check may claim a failure as certain; that it finds nothing is never a promise. A check whose facts could not be read
does not run: :func:`run_checks` says so by name (TS501), and an unknown blocks like an error.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from topicshift.core.checks.snapshot import PARTS, Snapshot
from topicshift.core.fence.acls import DenyPlan, RouteProducer, deny_bindings, wide_deny
from topicshift.core.findings import Code, Finding, Level, sort_findings
from topicshift.core.kafka.cluster import Acl
from topicshift.core.sizing.sizing import SizingResult
from topicshift.core.spec.model import Spec


class Scope(StrEnum):
    """What a check looks at, by code: TOPIC TS1xx, CLUSTER TS2xx, PARTICIPANTS TS3xx, KEYS TS4xx, RIGHTS TS5xx, POLICY
    TS8xx."""

    TOPIC = "topic"
    CLUSTER = "cluster"
    PARTICIPANTS = "participants"
    KEYS = "keys"
    RIGHTS = "rights"
    POLICY = "policy"


@dataclass(frozen=True)
class Shape:
    """The target as the plan would make it. ``partitions`` and ``replication_factor`` are None while they cannot be
    known (no source, no cluster)."""

    name: str
    partitions: int | None
    replication_factor: int | None
    configs: tuple[tuple[str, str], ...] = ()
    acls: tuple[Acl, ...] = ()
    notes: tuple[str, ...] = ()
    sizing: SizingResult | None = None


@dataclass(frozen=True)
class Facts:
    """All that a check may look at."""

    spec: Spec
    snapshot: Snapshot
    shape: Shape

    @property
    def on_the_route(self) -> bool:
        """Whether a declared participant follows the route."""
        kinds = [p.kind for p in self.spec.producers] + [c.kind for c in self.spec.consumers]
        return "route" in kinds

    @functools.cached_property
    def route_producers(self) -> list[RouteProducer]:
        """The declared producers on the route, with the principals that their instances report."""
        seen = [f for f in self.snapshot.followers or () if f.role == "producer"]
        return [
            RouteProducer(
                p.name, p.principal, tuple(f.principal for f in seen if f.participant == p.name and f.principal)
            )
            for p in self.spec.producers
            if p.kind == "route"
        ]

    @functools.cached_property
    def deny(self) -> DenyPlan:
        """Whom the fence denies in the freeze, as the ACLs are now; nobody where they could not be read."""
        return deny_bindings(self.snapshot.acls or frozenset(), self.spec.source, self.route_producers)

    @functools.cached_property
    def deny_after_switch(self) -> DenyPlan:
        """The DENY that takes over when every producer has acknowledged the target."""
        return wide_deny(self.snapshot.acls or frozenset(), self.spec.source)


Run = Callable[[Facts], Iterable[Finding]]


@dataclass(frozen=True)
class Check:
    """A registered check. It runs only when every part of the snapshot named in ``needs`` was read and exists."""

    name: str
    scope: Scope
    needs: tuple[str, ...]
    codes: tuple[Code, ...]
    run: Run


_CHECKS: dict[str, Check] = {}

TS501 = Code(
    "TS501",
    (Level.ERROR,),
    "A part of the world could not be read: unreachable, timed out, or not allowed. Unknown is never OK.",
    "Do what the reason says (rights, network, brokers), then plan again.",
)


def check(scope: Scope, *codes: Code, needs: tuple[str, ...] = ()) -> Callable[[Run], Run]:
    """Register a check under the name of its module. Raises ``ValueError`` when a name or a code is taken."""

    def register(run: Run) -> Run:
        name = run.__module__.rpartition(".")[2]
        taken = {d.code for c in _CHECKS.values() for d in c.codes} | {TS501.code}
        if name in _CHECKS or any(d.code in taken for d in codes):
            raise ValueError(f"check {name} is registered already, or one of its codes is: {[d.code for d in codes]}")
        if set(needs) - set(PARTS):
            raise ValueError(f"check {name} needs parts that do not exist: {set(needs) - set(PARTS)}")
        _CHECKS[name] = Check(name, scope, needs, codes, run)
        return run

    return register


@functools.cache
def all_checks() -> tuple[Check, ...]:
    """Every check of this package, by its first code."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return tuple(sorted(_CHECKS.values(), key=lambda c: c.codes[0].code))


@functools.cache
def all_codes() -> tuple[Code, ...]:
    """Every code that a check can report, sorted."""
    return tuple(sorted((TS501, *(d for c in all_checks() for d in c.codes)), key=lambda d: d.code))


def run_checks(facts: Facts, scopes: Iterable[Scope] | None = None) -> list[Finding]:
    """Run the checks and sort their findings: what blocks first, then by level, code and subject."""
    wanted = set(scopes) if scopes is not None else set(Scope)
    checks = [c for c in all_checks() if c.scope in wanted]
    out: list[Finding] = []
    for each in checks:
        if not any(n in facts.snapshot.unread or getattr(facts.snapshot, n) is None for n in each.needs):
            out += each.run(facts)
    out += _unread(facts, checks)
    return sort_findings(out)


def _unread(facts: Facts, checks: Iterable[Check]) -> Iterator[Finding]:
    for part, reason in sorted(facts.snapshot.unread.items()):
        skipped = [c.name for c in checks if part in c.needs]
        yield TS501.error(
            part,
            f"{PARTS[part]} could not be read: {reason.rstrip('.')}.",
            "Unknown is never OK."
            + (f" Not checked because of it: {', '.join(skipped)}." if skipped else " The plan needs it."),
            "Mend that, then plan again.",
            unknown=True,
        )
