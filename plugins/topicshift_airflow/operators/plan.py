"""Operators of plan, approve and create_target."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from topicshift.acts.approvals import find_approval, record_approval
from topicshift.core.errors import PreflightFailed, Refused, SpecError, Unreadable
from topicshift.core.spec.model import Approval, Spec
from topicshift_airflow.links import EvidenceLink, page_of
from topicshift_airflow.operators.base import RETRIES, AskingOperator, Question, StepOperator
from topicshift_airflow.runtime import (
    SPEC_FOLDER,
    Run,
    kafka_config,
    open_journal,
    owner_alive,
    owner_of,
    typed_failures,
)

if TYPE_CHECKING:
    from topicshift.core.plan.model import Plan, SourceFacts, TargetShape

log = logging.getLogger("topicshift")

APPROVE_PLAN = "approve.plan"
"""The task whose answer accepts the plan; it names the act in the audit trail."""


class OpenMigration(BaseOperator):
    """Read the spec of this run (form or file), check it, and lock its source and target for this run."""

    operator_extra_links = (EvidenceLink(),)
    ui_color = "#e8f0fb"

    def __init__(self, *, spec_file: str | None = None, **kwargs: Any) -> None:
        super().__init__(**{**RETRIES, **kwargs})
        self.spec_file = spec_file

    def execute(self, context: Any) -> Any:
        """Returns the names of the consumers, over which later tasks are mapped."""
        from topicshift.acts.open import open_migration
        from topicshift.adapters.kafka.admin import KafkaAdmin
        from topicshift.core.spec.form import spec_from_form

        with typed_failures(context):
            params = {"spec_file": self.spec_file} if self.spec_file else dict(context["params"])
            spec = spec_from_form(params, SPEC_FOLDER)
            require_places(spec)
            journal = open_journal()
            admin = KafkaAdmin(kafka_config(spec.kafka_conn_id))
            try:
                claim, row = open_migration(
                    spec, admin=admin, journal=journal, owner=owner_of(context), owner_alive=owner_alive
                )
            finally:
                admin.close()
                journal.close()
            context["ti"].xcom_push(
                key="migration", value={"id": claim.migration_id, "source": row.source, "target": row.target}
            )
            kept = Spec.model_validate(dict(row.spec))
            if kept != spec.model_copy(update={"target": row.target}):
                self.log.warning(
                    "The spec has changed since this run began to act; it goes on with the one that it began with."
                )
            # Tasks can be mapped over a return value alone.
            return [c.name for c in kept.consumers]


def require_places(spec: Spec) -> None:
    """Raise ``SpecError`` where a reader's evidence lies at a place that the installation does not let a spec name."""
    from topicshift.adapters.readers import places_from_env, refusal

    for number, reader in enumerate(spec.readers):
        why = refusal(reader.location, places_from_env())
        if why is not None:
            raise SpecError(f"readers[{number}].location of {reader.name}: {why}.")


MEASURED_NEXT = "the next task measures them"


class DecidePlan(StepOperator):
    """Take stock of the cluster, run every check, and write the plan. Read-only.

    The first time (``final=False``) it stops a run before Spark is started, and names the counts to assess; the
    second time it takes the key-rehash impact in, and the plan's hash is fixed.
    """

    def __init__(self, *, final: bool, **kwargs: Any) -> None:
        super().__init__(**{**RETRIES, **kwargs})
        self.final = final

    def step(self, run: Run, context: Mapping[str, Any]) -> Any:
        """Returns what the following tasks need of the plan."""
        plan = plan_now(run, with_impact=self.final)
        for finding in plan.findings:
            run.progress(finding.line())
        self.evidence_url = run.write("plan.json", plan.model_dump_json(indent=2))
        if not plan.ok:
            raise (Unreadable if plan.unknown else PreflightFailed)(
                f"{len(plan.blocking())} finding(s) block this plan; nothing was changed:\n"
                + "\n".join(f"- {f.line()}" for f in plan.blocking())
            )
        if self.final:
            write_sized_report(plan, json.loads(run.read("impact.json")), run.write)
            run.journal.set_plan(run.claim, plan.plan_hash)
            run.event("planned", {"plan_hash": plan.plan_hash, "findings": sorted({f.code for f in plan.findings})})
        source, target = shapes(plan)
        return {
            "plan_hash": plan.plan_hash,
            "partitions": target.partitions,
            "candidates": ",".join(map(str, candidates(source.partitions, target.partitions))),
        }


def plan_now(run: Run, *, with_impact: bool) -> Plan:
    """The plan as the world is now, with the impact that this run has measured if it has."""
    from topicshift.acts.plan import make_plan

    impact = json.loads(run.read("impact.json")) if with_impact else None
    return make_plan(
        run.spec,
        run.admin,
        impact=impact,
        no_impact=None if with_impact else MEASURED_NEXT,
        journal=run.journal,
        migration_id=run.row.migration_id,
        route=run.cast({"route"}).controllers["route"],
        now=run.clock.now(),
    )


def write_sized_report(plan: Plan, impact: Mapping[str, Any], write: Callable[[str, str], Any]) -> None:
    """Write ``impact.html`` anew where the count was worked out from rates, which the job that made it did not know.

    A page that cannot be drawn takes nothing from the plan: the one without rates stays.
    """
    if plan.sizing is None:
        return
    try:
        from topicshift.reporting.impact import render

        write("impact.html", render(impact, plan.sizing))
    except Exception as error:  # noqa: BLE001
        log.warning("impact.html keeps its choice by skew alone (%s: %s)", type(error).__name__, error)


def shapes(plan: Plan) -> tuple[SourceFacts, TargetShape]:
    """Source and target of a plan that is ok. Raises ``PreflightFailed`` for one without them."""
    if plan.source is None or plan.target is None:
        raise PreflightFailed("The plan could not work out the shape of source and target; see its findings.")
    return plan.source, plan.target


def candidates(source: int, target: int) -> list[int]:
    """The counts to assess: the planned one, and its neighbours that are multiples of the source's count."""
    others = {source * k for k in (2, 3, 4, 5)} | {target}
    return sorted(n for n in others if n >= 1)


class ApprovePlan(AskingOperator):
    """A person accepts exactly this plan, by its hash. With ``approvals.plan: auto`` the spec has done so."""

    YES = "Approve"
    NO = "Reject"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(subject="Approve the plan", **kwargs)

    def question(self, run: Run, context: Mapping[str, Any]) -> Question | None:
        """The plan in words."""
        from topicshift.core.plan.model import Plan
        from topicshift.reporting.markdown import plan_markdown

        plan = Plan.model_validate_json(run.read("plan.json"))
        source, target = shapes(plan)
        if plan.plan_hash != run.row.plan_hash:
            raise Refused("plan.json is not the plan that was decided; clear the task plan.decide to make it again.")
        about = {"plan_hash": plan.plan_hash}
        if run.spec.approvals.plan is Approval.AUTO:
            if not find_approval(run.journal, run.row.migration_id, self.task_id, about):
                record_approval(run.journal, run.claim, self.task_id, about, actor="spec", how="auto")
            return None
        return Question(
            f"Move {source.name} ({source.partitions} partitions) to {target.name} ({target.partitions})?",
            plan_markdown(
                plan,
                json.loads(run.read("impact.json")),
                page_of(run.evidence.url(run.row.migration_id, "impact.html")),
            ),
            timedelta(days=3),
            about,
        )

    def act(self, run: Run, context: Mapping[str, Any]) -> Any:
        """Nothing is done here: the recorded answer is the result."""
        return {"plan_hash": run.row.plan_hash}


class CreateTarget(StepOperator):
    """Create the target as planned: topic, configs, ACLs. The plan must still be the one that was approved."""

    def step(self, run: Run, context: Mapping[str, Any]) -> Any:
        """Returns the target's topic id."""
        from topicshift.acts.on_record import require_approval
        from topicshift.acts.open import require_same_plan
        from topicshift.acts.target import create_target
        from topicshift.core.plan.model import Plan

        plan = Plan.model_validate_json(run.read("plan.json"))
        require_approval(run.journal, run.row.migration_id, APPROVE_PLAN, {"plan_hash": plan.plan_hash})
        begun = run.journal.step(run.row.migration_id, "create_target")
        if begun is None or begun.state not in ("intended", "done"):
            require_same_plan(plan, plan_now(run, with_impact=True), run.row)
        _, target = shapes(plan)
        topic_id = create_target(
            run.admin,
            run.journal,
            run.claim,
            name=target.name,
            partitions=target.partitions,
            replication_factor=target.replication_factor,
            configs=target.configs,
            acls=[a.to_acl() for a in target.acls],
        )
        return {"topic_id": topic_id}


class BrokenSpec(BaseOperator):
    """Stands in for a spec file that cannot be read, so that its DAG shows the reason."""

    def __init__(self, *, message: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.message = message

    def execute(self, context: Any) -> Any:
        """Fail with the reason."""
        raise AirflowFailException(f"SpecError: {self.message}")
