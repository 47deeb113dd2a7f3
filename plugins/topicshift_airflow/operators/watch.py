"""The watch over the sources of finished migrations. It changes nothing on the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from topicshift.core.errors import PreflightFailed, Refused, Unreadable
from topicshift_airflow.notices import news_told
from topicshift_airflow.operators.advance import RETRIES
from topicshift_airflow.runtime import find_migration, journal, log, open_context, typed_failures

if TYPE_CHECKING:
    from topicshift.ports import Journal, MigrationRow


class FindWatched(BaseOperator):
    """The migrations whose source is watched. None: the run ends here, skipped."""

    def execute(self, context: Any) -> list[str]:
        """Returns migration ids."""
        wanted = str(context["params"].get("migration") or "").strip()
        now = datetime.now(UTC)
        with typed_failures():
            only = find_migration(wanted).migration_id if wanted else None
            with journal() as opened:
                rows = opened.find()
                found = {r.migration_id: _over(opened, r, rows, now) for r in rows if only in (None, r.migration_id)}
            watched = [migration for migration, why in found.items() if why is None]
            if only and not watched:
                raise Refused(f"The source of {only} is not watched: {found[only]}.")
        if not watched:
            raise AirflowSkipException("No finished migration has a source to watch.")
        return watched


def _over(opened: Journal, row: MigrationRow, rows: Sequence[MigrationRow], now: datetime) -> str | None:
    from topicshift.acts.watch import gone_at, over

    return over(row, rows, gone_at(opened.step(row.migration_id, "delete_source")), now)


class WatchSource(BaseOperator):
    """Look at one source, on behalf of its migration, which stays with its owner.

    Fails while something stands that a person has to see to (a finding of level error), and where something could not
    be read; both are named.
    """

    template_fields = ("migration",)

    def __init__(self, *, migration: str, **kwargs: Any) -> None:
        super().__init__(**{**RETRIES, **kwargs})
        self.migration = migration

    def execute(self, context: Mapping[str, Any]) -> list[str]:
        """Returns the codes of what was found."""
        from topicshift.acts.health import watch_after
        from topicshift.acts.watch import watch

        with typed_failures():
            with open_context(context, self.migration, take_over=False) as ctx, news_told(ctx):
                found = watch(ctx)
                watch_after(ctx)
            for finding in found:
                log.warning("%s", finding.line())
            if unread := [f.line() for f in found if f.unknown]:
                raise Unreadable("; ".join(unread))
            if wrong := [f.line() for f in found if f.blocks]:
                raise PreflightFailed("; ".join(wrong))
        return sorted({f.code for f in found})
