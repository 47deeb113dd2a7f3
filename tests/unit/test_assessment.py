"""An assessment that found blockers does not look like one that found none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from topicshift_airflow.operators.assess import NothingBlocks


def verdict(report: Any) -> Any:
    ti = SimpleNamespace(xcom_pull=lambda task_ids: report if task_ids == "report" else None)
    return NothingBlocks(task_id="nothing_blocks", report="report").execute({"ti": ti})


def test_it_is_green_only_where_nothing_blocks() -> None:
    assert verdict({"ok": True, "findings": ["TS110"], "blocking": []})["ok"] is True
    with pytest.raises(AirflowFailException, match=r"1 finding\(s\) would block.*report(.|\n)*TS301 error: checkout"):
        verdict({"ok": False, "findings": ["TS301"], "blocking": ["TS301 error: checkout: nobody"]})
    with pytest.raises(AirflowFailException, match="left no answer"):
        verdict(None)
