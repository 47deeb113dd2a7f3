"""Links on tasks: from a step to the evidence it wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey


class EvidenceLink(BaseOperatorLink):
    """Where the step's report or evidence file lies. Operators set ``evidence_url`` while they run."""

    name = "Evidence"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """The URL of the file that this task wrote, or nothing."""
        return str(getattr(operator, "evidence_url", ""))
