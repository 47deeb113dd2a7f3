"""Tell applications of several kinds side by side: one that cannot be told now keeps no other from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from topicshift.acts.context import MigrationContext
from topicshift.core.errors import OwnershipLost, TopicshiftError, Transient
from topicshift.ports import Controller, Participant

Act = Callable[[Controller, list[Participant]], None]
"""What a controller is let do with participants of its kind."""


@dataclass(frozen=True)
class Late:
    """Participants that could not be told, and why."""

    participants: tuple[Participant, ...]
    error: TopicshiftError


def tell(ctx: MigrationContext, participants: Sequence[Participant], act: Act) -> None:
    """Let each kind act: those under a lease first, then all others side by side.

    An error of a kind under a lease ends it: nobody else stands still for a freeze that cannot begin. Else everybody is
    tried, and raised is what :func:`worst` makes of the errors.
    """
    for stage in stages(ctx, participants):
        if late := beside(ctx, stage, act):
            raise worst(late)


def stages(ctx: MigrationContext, participants: Sequence[Participant]) -> list[list[Participant]]:
    """Participants under a lease, then all others; a stage without anybody is left out."""
    leased = [p for p in participants if ctx.leased(p)]
    return [stage for stage in (leased, [p for p in participants if p not in leased]) if stage]


def beside(ctx: MigrationContext, participants: Sequence[Participant], act: Act) -> list[Late]:
    """Let every kind act at the same time; who could not be told. Raises ``OwnershipLost`` alone."""
    kinds = {members[0].kind: (controller, members) for controller, members in ctx.by_kind(participants)}
    calls = {kind: partial(_kind, ctx, *told, act) for kind, told in kinds.items()}
    answers = ctx.ports.executor.gather(calls)
    for answer in answers.values():
        if isinstance(answer, OwnershipLost):
            raise answer
    late = (
        [Late(tuple(kinds[kind][1]), answer)] if isinstance(answer, TopicshiftError) else answer
        for kind, answer in answers.items()
    )
    return [one for found in late for one in found]


def worst(late: Sequence[Late]) -> TopicshiftError:
    """One error that says all of them: of the first type that nobody repeats, else ``Transient``."""
    first = next((one for one in late if not isinstance(one.error, Transient)), late[0])
    said = dict.fromkeys(map(_said, (first, *late)))
    if len(said) == 1:
        return first.error
    kind = Transient if isinstance(first.error, Transient) else type(first.error)
    return kind("; ".join(said))


def _said(late: Late) -> str:
    text, names = str(late.error), [p.name for p in late.participants]
    return text if any(_names(text, name) for name in names) else f"{', '.join(names)}: {text}"


def _kind(ctx: MigrationContext, controller: Controller, members: list[Participant], act: Act) -> list[Late]:
    """Let a controller act on all of its kind; where that fails, on each alone that its error does not name.

    One under a lease acts on all of them at once, or on none.
    """
    ctx.check_seat()
    try:
        act(controller, members)
    except OwnershipLost:
        raise
    except TopicshiftError as error:
        if len(members) == 1 or ctx.leased(members[0]):
            return [Late(tuple(members), error)]
        named = tuple(p for p in members if _names(str(error), p.name))
        others = [late for p in members if p not in named for late in _kind(ctx, controller, [p], act)]
        return [*([Late(named, error)] if named else []), *others]
    return []


def _names(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text) is not None
