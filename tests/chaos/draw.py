"""Which faults strike a migration, and when: decided by chance (a seed) and by how often each class has struck."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tests.chaos.faults import Class

MOMENTS = (
    "", "check", "create_target", "arm", "freeze", "stop_producers", "fence", "certificate", "switch_producers",
    "wide_deny", "switch_consumer:ledger", "switch_consumer:fraud", "order_proof",
)  # fmt: skip
"""Rows of the journal after which a fault may strike; none: from the beginning on."""

AFTER_SWITCH = MOMENTS[MOMENTS.index("switch_producers") :]


@dataclass(frozen=True)
class Planned:
    """A fault that is to strike ``wait_s`` seconds after a row of the journal was begun, for ``lasts_s`` seconds."""

    name: str
    moment: str
    wait_s: float
    lasts_s: float


def draw(
    rng: random.Random, faults: int, known: Mapping[str, Class], counts: Mapping[str, float] | None = None
) -> list[Planned]:
    """The faults of one migration, in the order in which they strike.

    ``counts`` says how often each class has struck so far, or a weight by it: those with the least come first, chance
    decides between equals. One that ends a migration comes at most once, as the last.
    """
    so_far = {name: (counts or {}).get(name, 0) for name in known}
    names: list[str] = []
    last = ""
    for _ in range(faults):
        open_to = [n for n in sorted(known) if not (known[n].last and last)]
        least = min(so_far[n] for n in open_to)
        name = rng.choice([n for n in open_to if so_far[n] == least])
        so_far[name] += 1
        last = name if known[name].last else last
        names.append(name)
    out = []
    for name in names:
        of = known[name].moments or MOMENTS
        late = [m for m in of if m in AFTER_SWITCH]
        moment = rng.choice(late) if late and rng.random() < 0.3 else rng.choice(of)
        out.append(Planned(name, moment, rng.choice([0.0, rng.uniform(0, 4)]), rng.uniform(*known[name].lasts)))
    out.sort(key=lambda p: (known[p.name].last, MOMENTS.index(p.moment)))
    if last:
        # What ends a migration strikes in the second half of it, and what should come later just before it.
        end = rng.choice(out[len(out) // 2 :]).moment
        out = [p if MOMENTS.index(p.moment) <= MOMENTS.index(end) else replace(p, moment=end) for p in out]
        out[-1] = replace(out[-1], moment=end)
    return out
