"""Errors typed by what the world looks like when they are raised, so that callers know whether to retry.

Every message says what was seen, why it matters and what to do; none carries a secret.
"""

from __future__ import annotations


class TopicshiftError(Exception):
    """Base of all of them. ``exit_code`` is what the command line answers with."""

    exit_code = 3
    retryable = False


class SpecError(TopicshiftError):
    """The spec (or the command's words) is wrong. Nothing was touched."""

    exit_code = 2


class PreflightFailed(TopicshiftError):
    """The world does not allow the plan (findings of level error). Nothing was touched."""


class NotFound(TopicshiftError):
    """A topic, group, migration or file that was named does not exist."""

    exit_code = 2


class Unreadable(TopicshiftError):
    """Something could not be read: unreachable, timed out, not allowed. Unknown is never OK."""

    exit_code = 4


class Transient(Unreadable):
    """A passing fault (leader election, time-out of one request). Nothing changed by it; try again."""

    retryable = True


class AccessDenied(Unreadable):
    """A right is missing; the message names the operation and the resource."""


class Refused(TopicshiftError):
    """A guard said no before the act: lock held by another run, lease too short, approval for another plan."""


class NotCounted(Refused):
    """An answer of somebody who may not answer, or not alone. The question stays open for somebody else."""


class OwnershipLost(Refused):
    """A newer epoch owns this migration. Never retried: this run must stop and a person is told."""


class FenceBroken(TopicshiftError):
    """Records were written to the source after the fence. Every certificate is void."""


class DrainTimedOut(TopicshiftError):
    """The freeze budget ran out before every group had drained the source."""


class AmbiguousState(TopicshiftError):
    """It cannot be told whether an act happened. Never retried blindly: a person is called."""


class GuardViolated(TopicshiftError):
    """An invariant of the product does not hold (lost records, crossed order). Stop everything."""
