"""Operators of ``topic_assessment``: the plan of a migration that is not run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from airflow.sdk import BaseOperator

from topicshift_airflow.links import ASSESSMENT, EvidenceLink
from topicshift_airflow.operators.advance import RETRIES
from topicshift_airflow.runtime import (
    SPEC_FOLDER,
    endpoint_of,
    impact_page,
    kafka_config,
    open_journal,
    policy_file,
    typed_failures,
)


def assessment_id(context: Mapping[str, Any]) -> str:
    """The folder of this run's evidence."""
    return ASSESSMENT + re.sub(r"[^A-Za-z0-9._-]", "-", str(context["ti"].run_id))


class _Assess(BaseOperator):
    operator_extra_links = (EvidenceLink(),)
    evidence_url = ""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**RETRIES, **kwargs})

    def plan(self, context: Mapping[str, Any], impact: Mapping[str, Any] | None, no_impact: str | None = None) -> Any:
        """Make the plan of the form's spec, write ``plan.json``, log the findings."""
        from topicshift.acts.plan import Beside, make_plan
        from topicshift.adapters.controllers import ControllerEnv, controllers
        from topicshift.adapters.evidence import evidence_from_env
        from topicshift.adapters.kafka.admin import KafkaAdmin
        from topicshift.core.spec.form import spec_from_form

        spec = spec_from_form(dict(context["params"]), SPEC_FOLDER)
        config = kafka_config(spec.kafka_conn_id)
        with ExitStack() as open_:
            admin = open_.enter_context(KafkaAdmin(config))
            movers = open_.enter_context(controllers(ControllerEnv(config, admin, endpoint=endpoint_of)))
            journal = open_journal()
            open_.callback(journal.close)
            beside: Beside = {"impact": impact, "no_impact": no_impact, "journal": journal}
            beside["route"], beside["movers"] = movers("route"), movers
            beside["policy"] = lambda: policy_file()()
            plan = make_plan(spec, admin, **beside)
        for line in plan.lines():
            self.log.info("%s", line)
        self.evidence_url = evidence_from_env().write(
            assessment_id(context), "plan.json", plan.model_dump_json(indent=2)
        )
        return plan


class AssessInput(_Assess):
    """Check what needs no Spark, and say which counts to assess.

    What blocks by the topics and the cluster (a wrong count, a missing source) ends it before Spark is paid for; what
    speaks of participants does not: it is a part of the answer.
    """

    def execute(self, context: Any) -> Any:
        """Returns the source and the candidate counts for the impact job."""
        from topicshift.acts.planning import MEASURED_NEXT, candidates

        with typed_failures():
            plan = self.plan(context, None, MEASURED_NEXT)
            wrong = [f for f in plan.blocking() if f.code[2] in "128"]
            if plan.source is None or wrong:
                from topicshift.core.errors import PreflightFailed

                raise PreflightFailed(
                    "There is nothing to assess:\n" + "\n".join(f.line() for f in wrong or plan.findings)
                )
            wanted = plan.target.partitions if plan.target else plan.source.partitions * 2
            return {
                "source": plan.source.name,
                "kafka_conn_id": plan.spec.kafka_conn_id,
                "candidates": ",".join(map(str, candidates(plan.source.partitions, wanted))),
            }


class AssessReport(_Assess):
    """The plan with the impact in it."""

    def execute(self, context: Any) -> Any:
        """Returns whether a migration could go on, and the codes of what was found."""
        from topicshift.adapters.evidence import evidence_from_env

        with typed_failures():
            store = evidence_from_env()
            data = store.read(assessment_id(context), "impact.json")
            impact = json.loads(data) if data else None
            plan = self.plan(context, impact)
            if impact and plan.sizing is not None:
                # Rates, which the job that drew the page does not know, ask for another count than the skew does.
                store.write(assessment_id(context), "impact.html", impact_page(impact, plan.sizing))
            self.evidence_url = store.url(assessment_id(context), "impact.html")
            return {"ok": plan.ok, "plan_hash": plan.plan_hash, "findings": sorted({f.code for f in plan.findings})}
