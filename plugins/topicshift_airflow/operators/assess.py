"""Operators of ``topic_assessment``: the plan of a migration that is not run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from topicshift.core.errors import Refused, TopicshiftError
from topicshift.core.page.drafts import DRAFT
from topicshift.core.spec.form import spec_from_form
from topicshift.core.spec.io import parse_spec
from topicshift.core.spec.model import Spec
from topicshift.core.text import one_line
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

if TYPE_CHECKING:
    from topicshift.ports import EvidenceStore

SAID = "said"
"""XCom of why a look failed, and whether the task tries again."""

SHOWN = 500
"""Characters of a finding that go into the answer of a task."""


def _store() -> EvidenceStore:
    # A DAG file is parsed for each of its tasks, and this takes time to import.
    from topicshift.adapters.evidence import evidence_from_env

    return evidence_from_env()


def source_alone(params: Mapping[str, Any]) -> bool:
    """Whether a form names the source and neither a spec file nor anybody who writes or reads."""
    return bool(params.get("source")) and not any(params.get(k) for k in ("spec_file", "producers", "consumers"))


def assessment_id(context: Mapping[str, Any]) -> str:
    """The folder of this run's evidence."""
    return ASSESSMENT + re.sub(r"[^A-Za-z0-9._-]", "-", str(context["ti"].run_id))


class _Assess(BaseOperator):
    operator_extra_links = (EvidenceLink(),)
    evidence_url = ""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**RETRIES, **kwargs})

    def spec(self, context: Mapping[str, Any]) -> Spec:
        """The form's spec; of a form that names the source alone, the draft that was written of it."""
        params = dict(context["params"])
        if not source_alone(params):
            return spec_from_form(params, SPEC_FOLDER)
        text = _store().read(assessment_id(context), DRAFT)
        if text is None:
            raise Refused(f"{DRAFT} is not in the evidence of this run, so there is no spec to go by. Clear `check`.")
        found: Spec = parse_spec(text.decode(), DRAFT)
        return found

    def plan(self, context: Mapping[str, Any], impact: Mapping[str, Any] | None, no_impact: str | None = None) -> Any:
        """Make the plan of the form's spec, write ``plan.json``, log the findings."""
        from topicshift.acts.plan import Beside, make_plan
        from topicshift.adapters.controllers import ControllerEnv, controllers
        from topicshift.adapters.kafka.admin import KafkaAdmin

        spec = self.spec(context)
        config = kafka_config(spec.kafka_conn_id)
        with ExitStack() as open_:
            admin = open_.enter_context(KafkaAdmin(config))
            env = ControllerEnv(config, admin, endpoint=endpoint_of, places=_places)
            movers = open_.enter_context(controllers(env))
            journal = open_journal()
            open_.callback(journal.close)
            beside: Beside = {"impact": impact, "no_impact": no_impact, "journal": journal}
            beside["route"], beside["movers"] = movers("route"), movers
            beside["policy"] = lambda: policy_file()()
            plan = make_plan(spec, admin, **beside)
        for line in plan.lines():
            self.log.info("%s", line)
        self.evidence_url = _store().write(assessment_id(context), "plan.json", plan.model_dump_json(indent=2))
        return plan


class AssessInput(_Assess):
    """Check what needs no Spark, and say which counts to assess.

    What blocks by the topics and the cluster (a wrong count, a missing source) ends it before Spark is paid for; what
    speaks of participants does not: it is a part of the answer.
    """

    def execute(self, context: Any) -> Any:
        """Returns the source and the candidate counts for the impact job."""
        with typed_failures():
            try:
                return self._looked(context)
            except TopicshiftError as error:
                # A task that fails returns nothing: the page that had it begun tells the reason from this.
                context["ti"].xcom_push(key=SAID, value={"cannot": one_line(str(error)), "again": error.retryable})
                raise

    def _looked(self, context: Any) -> dict[str, Any]:
        from topicshift.acts.planning import candidates
        from topicshift.core.checks.snapshot import MEASURED_NEXT

        self._draft(context)
        plan = self.plan(context, None, MEASURED_NEXT)
        wrong = [f for f in plan.blocking() if f.code[2] in "128"]
        if plan.source is None or wrong:
            from topicshift.core.errors import PreflightFailed

            raise PreflightFailed("There is nothing to assess:\n" + "\n".join(f.line() for f in wrong or plan.findings))
        wanted = plan.target.partitions if plan.target else plan.source.partitions * 2
        return {
            "source": plan.source.name,
            "kafka_conn_id": plan.spec.kafka_conn_id,
            "candidates": ",".join(map(str, candidates(plan.source.partitions, wanted))),
        }

    def _draft(self, context: Mapping[str, Any]) -> None:
        """Leave a first spec of the source as evidence, as ``topicshift init`` writes it.

        Where the form holds a whole spec, a draft that cannot be made takes nothing from the assessment.
        """
        from topicshift.acts.draft import connectors_of, draft_spec
        from topicshift.adapters.controllers import ControllerEnv, controllers
        from topicshift.adapters.kafka.admin import KafkaAdmin
        from topicshift.adapters.rest import asker
        from topicshift.core.plan.draft import Wish

        params = dict(context["params"])
        alone = source_alone(params)
        spec = None if alone else spec_from_form(params, SPEC_FOLDER)
        source = spec.source if spec is not None else str(params["source"])
        conn_id = spec.kafka_conn_id if spec is not None else str(params.get("kafka_conn_id") or "kafka_default")
        count = params.get("partitions") if alone else None
        members = [] if spec is None else [*spec.producers, *spec.consumers]
        named = {str(m.settings.get("connection", "connect_default")) for m in members if m.kind == "connect"}
        try:
            asked = [connectors_of(name, asker(endpoint_of(name))) for name in sorted(named)] or None
            config = kafka_config(conn_id)
            given = [] if spec is None or spec.target is None else [spec.target]
            targets = (*given, *targets_of(SPEC_FOLDER, source, conn_id))
            wish = Wish(conn_id, count, "as given" if count is not None else "", targets)
            with KafkaAdmin(config) as admin, controllers(ControllerEnv(config, admin)) as movers:
                found = draft_spec(source, admin, movers("route"), asked, wish=wish)
        except TopicshiftError as error:
            if alone:
                raise
            self.log.warning("%s could not be written: %s", DRAFT, error)
            return
        self.log.info("%s is evidence of this run:\n%s", DRAFT, found.yaml())
        _store().write(assessment_id(context), DRAFT, found.yaml())


def targets_of(folder: Path, source: str, conn_id: str) -> list[str]:
    """The targets that spec files name for this source. A folder or file that cannot be read names none."""
    from topicshift.core.spec.form import spec_files
    from topicshift.core.spec.io import load_spec

    found = list[str]()
    with suppress(TopicshiftError):
        for name in spec_files(folder):
            with suppress(TopicshiftError):
                spec = load_spec(folder / name)
                if spec.target and (spec.source, spec.kafka_conn_id) == (source, conn_id):
                    found.append(spec.target)
    return found


def _places() -> Sequence[str]:
    """The places below which a spec may let a worker read."""
    from topicshift.adapters.readers import places_from_env

    found = policy_file()()
    listed = found.reader_locations if found is not None else None
    return places_from_env() if listed is None else listed


class AssessReport(_Assess):
    """The plan with the impact in it."""

    def execute(self, context: Any) -> Any:
        """Returns whether a migration could go on, and the codes of what was found."""
        with typed_failures():
            store = _store()
            data = store.read(assessment_id(context), "impact.json")
            impact = json.loads(data) if data else None
            plan = self.plan(context, impact)
            if impact and plan.sizing is not None:
                # Rates, which the job that drew the page does not know, ask for another count than the skew does.
                store.write(assessment_id(context), "impact.html", impact_page(impact, plan.sizing))
            self.evidence_url = store.url(assessment_id(context), "impact.html")
            return {
                "ok": plan.ok,
                "plan_hash": plan.plan_hash,
                "findings": sorted({f.code for f in plan.findings}),
                "blocking": [one_line(f.line())[:SHOWN] for f in plan.blocking()],
            }


class NothingBlocks(BaseOperator):
    """Red where a migration would be refused, so that a run with blockers does not look like one without."""

    ui_color = "#fbe3e0"

    def __init__(self, *, report: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.report = report

    def execute(self, context: Any) -> Any:
        """Returns what was not in the way. Fails with every finding that is."""
        found = context["ti"].xcom_pull(task_ids=self.report)
        if found and found.get("ok") is True:
            return {"ok": True, "findings": found["findings"]}
        lines = found["blocking"] if found else [f"the task {self.report} left no answer"]
        raise AirflowFailException(
            f"{len(lines)} finding(s) would block a migration; the assessment itself is whole, its report is the "
            f"evidence of the task {self.report}:\n" + "\n".join(f"- {line}" for line in lines)
        )
