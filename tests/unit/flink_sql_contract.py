"""What a Flink SQL Gateway does, as the controller relies on it: run on the one in memory and on a real one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from topicshift.adapters.flink_gateway import NOWHERE, TARGET, SqlGateway
from topicshift.core.errors import Refused, TopicshiftError


def a_gateway_keeps_to(ask: Any, gateway: SqlGateway, statements: Sequence[str], plan: str) -> None:
    """``plan``: the file of a plan of the tables that ``statements`` make known."""
    assert gateway.version() == (2, 3)
    with gateway.session({TARGET: NOWHERE}) as session:
        for number, statement in enumerate(statements, 1):
            session.run(statement, f"statement {number}")
        session.translate(f"EXECUTE PLAN '{plan}'", "the plan")
        with pytest.raises(
            Refused, match=r"^it cannot be translated by its SQL Gateway \([\w.$]*Exception\); see its log$"
        ):
            session.translate(f"EXECUTE PLAN '{plan}.none'", "it")
        with pytest.raises(Refused, match=r"^it failed at its SQL Gateway \([\w.$]*Exception\); see its log$"):
            session.run(f"EXECUTE PLAN '{plan}.none'", "it")
        session.translate(f"EXECUTE PLAN '{plan}'", "the session goes on")
    answer = ask("POST", "/v1/sessions", {"properties": {}})
    ask("DELETE", f"/v1/sessions/{answer['sessionHandle']}", None)
    with pytest.raises(TopicshiftError):
        ask("POST", f"/v1/sessions/{answer['sessionHandle']}/statements", {"statement": "SHOW TABLES"})
