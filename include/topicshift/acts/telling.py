"""Tell applications of several kinds: one that cannot be told now keeps no other from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topicshift.acts.context import MigrationContext
from topicshift.core.errors import OwnershipLost, TopicshiftError, Transient
from topicshift.ports import Controller, Participant

Act = Callable[[Controller, list[Participant]], None]
"""What a controller is let do with participants of its kind."""


def tell(ctx: MigrationContext, participants: Sequence[Participant], act: Act, *, refusal_ends: bool = False) -> None:
    """Let each kind act, those under a lease first; who stays behind for one that fails is acted on alone.

    An error of a kind under a lease ends it at once: its applications could go on with the source by themselves while
    others already write to the target. So does, with ``refusal_ends``, any error but ``Transient``. Else all are
    tried, and then an error that nobody repeats is raised, or ``Transient`` with what was said of everybody.
    """
    late: list[TopicshiftError] = []
    for controller, members in ctx.by_kind(participants):
        ctx.check_seat()
        if getattr(controller, "leased", False):
            act(controller, members)
        else:
            late += _each(controller, members, act, refusal_ends)
    if late:
        raise _worst(late)


def _each(controller: Controller, members: list[Participant], act: Act, refusal_ends: bool) -> list[TopicshiftError]:
    """The error of each that could not be acted on. Those that an error names come last: they may take long again."""
    try:
        act(controller, members)
    except OwnershipLost:
        raise
    except TopicshiftError as error:
        if refusal_ends and not isinstance(error, Transient):
            raise
        if len(members) == 1:
            return [error]
        named = str(error)
        alone = sorted(members, key=lambda p: p.name in named)
        return [e for p in alone for e in _each(controller, [p], act, refusal_ends)]
    return []


def _worst(errors: list[TopicshiftError]) -> TopicshiftError:
    for error in errors:
        if not isinstance(error, Transient):
            return error
    return errors[0] if len(errors) == 1 else Transient("; ".join(dict.fromkeys(map(str, errors))))
