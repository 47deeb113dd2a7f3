"""After the switch: judge the proof, write the report, close the migration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from topicshift.acts.on_record import require_all_switched
from topicshift.core.errors import GuardViolated
from topicshift_airflow.operators.base import StepOperator
from topicshift_airflow.runtime import Run


def write_report(run: Run) -> str:
    """Write ``audit.jsonl`` and ``report.html`` from what is in the evidence store, and return the report's URL."""
    from dataclasses import asdict

    from topicshift.reporting.run_report import render

    events = run.journal.events(run.row.migration_id)
    run.write("audit.jsonl", "".join(json.dumps(asdict(e), sort_keys=True) + "\n" for e in events))
    names = run.evidence.names(run.row.migration_id)
    found = {n: run.evidence.read(run.row.migration_id, n) for n in names if not n.endswith(".html")}
    steps = json.dumps([asdict(s) for s in run.journal.steps(run.row.migration_id)], default=str)
    migration = json.dumps(asdict(run.journal.current(run.row.migration_id)), default=str)
    return run.write(
        "report.html",
        render(
            {n: d for n, d in found.items() if d is not None}
            | {"steps.json": steps.encode(), "migration.json": migration.encode()}
        ),
    )


class FinishMigration(StepOperator):
    """Judge the order proof, write the report, and close the migration so that its topics are free again."""

    after_the_end = True

    def step(self, run: Run, context: Mapping[str, Any]) -> Any:
        """Raises ``GuardViolated`` where the proof found a loss or a crossing; the report is written all the same.

        Raises ``Refused`` where the producers or a group are not on the target.
        """
        proof = json.loads(run.read("order_proof.json"))
        verdict = proof.get("verdict")
        run.event("proof", {"verdict": verdict, "checks": proof.get("checks", [])})
        if verdict not in ("proven", "partly_proven"):
            self.evidence_url = write_report(run)
            raise GuardViolated(
                f"The order proof says {verdict!r}: {proof.get('reason')}. The migration "
                f"stays open. Read {self.evidence_url} and order_proof.json before anything else is done."
            )
        if run.row.state == "open":
            require_all_switched(run.journal, run.row.migration_id, [c.group for c in run.spec.consumers])
            run.journal.set_state(run.claim, "done", active=False)
        self.evidence_url = write_report(run)
        return {"verdict": verdict, "report": self.evidence_url}
