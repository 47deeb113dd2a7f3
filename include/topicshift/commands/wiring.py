"""From a journal and client properties to the ports of an advancer; shared by the command line and Airflow's tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from typing import Any

from topicshift.acts.context import MigrationContext, Ports
from topicshift.adapters.rest import Endpoints, endpoint_from_env
from topicshift.core.engine.words import Act
from topicshift.core.policy.model import Installation
from topicshift.core.sizing.sizing import SizingResult
from topicshift.core.spec.model import Spec
from topicshift.ports import (
    ClusterAdmin,
    Controller,
    DrainReader,
    EvidenceStore,
    Journal,
    MigrationRow,
    Rehearser,
    Replayer,
)


def make_ports(
    journal: Journal,
    row: MigrationRow,
    config: Callable[[], Mapping[str, Any]],
    stack: ExitStack,
    *,
    owner_alive: Callable[[str], bool | None] = lambda _: None,
    run_job: Callable[[MigrationContext, Act], None] | None = None,
    impact_page: Callable[[Mapping[str, Any], SizingResult], str] | None = None,
    policy: Callable[[], Installation | None] | None = None,
    endpoint: Endpoints | None = None,
) -> Ports:
    """The ports of one advancer. Clients are made when they are first used, and closed by ``stack``.

    ``config`` gives librdkafka properties; it is called when a client is first needed. ``run_job`` runs Spark jobs;
    ``impact_page`` draws ``impact.html`` anew. ``policy`` gives the installation policy; by default the environment
    names it. ``endpoint`` gives the address and log-in of a connection; by default from the environment.
    """
    from topicshift.adapters.clock import SystemClock
    from topicshift.adapters.connectors import asks_of
    from topicshift.adapters.evidence import evidence_from_env
    from topicshift.adapters.executor import ThreadExecutor
    from topicshift.adapters.policy import policy_from_env
    from topicshift.adapters.readers import evidence_source
    from topicshift.adapters.verifier import FileVerifier

    clock, properties = SystemClock(), cache(config)

    def admin() -> ClusterAdmin:
        from topicshift.adapters.kafka.admin import KafkaAdmin

        made = KafkaAdmin(dict(properties()))
        stack.callback(made.close)
        return made

    def reader() -> DrainReader:
        from topicshift.adapters.kafka.reader import KafkaDrainReader

        made = KafkaDrainReader.from_config(dict(properties()))
        stack.callback(made.connection.close)
        return made

    def replayer() -> Replayer:
        from topicshift.adapters.kafka.replay import KafkaReplayer

        made = KafkaReplayer.from_config(dict(properties()))
        stack.callback(made.close)
        return made

    def rehearser() -> Rehearser:
        from topicshift.adapters.kafka.rehearse import KafkaRehearser

        made = KafkaRehearser.from_config(dict(properties()))
        stack.callback(made.close)
        return made

    def shadow(kind: str, cluster: ClusterAdmin, writer: Rehearser) -> Controller:
        from topicshift.adapters.controllers.shadow import ShadowController

        return ShadowController(kind, cluster, writer)

    def controller(kind: str, cluster: ClusterAdmin) -> Controller:
        from topicshift.adapters.controllers import ControllerEnv
        from topicshift.adapters.controllers import controller as make

        return make(kind, ControllerEnv(dict(properties()), cluster, clock, endpoint or endpoint_from_env, places))

    def places() -> Sequence[str] | None:
        found = installation()
        return found.reader_locations if found is not None else None

    def readers(spec: Spec, consumer: str) -> Any:
        named = [r.model_dump(mode="json") for r in spec.readers_of(consumer)]
        asks = asks_of(endpoint or endpoint_from_env)
        return evidence_source(named, spec.source, places=places() if named else None, ask_of=asks)

    def report(opened: Journal, store: EvidenceStore, migration: str, write: Callable[[str, str], str]) -> str:
        from topicshift.reporting.run_report import write_report

        return write_report(opened, store, migration, write)

    installation = policy or policy_from_env()
    executor = ThreadExecutor()
    stack.callback(executor.close)
    return Ports(
        journal=journal,
        evidence=evidence_from_env(),
        clock=clock,
        executor=executor,
        make_admin=admin,
        make_reader=reader,
        make_controller=controller,
        make_replayer=replayer,
        make_rehearser=rehearser,
        make_shadow_controller=shadow,
        verifier=FileVerifier(row.migration_id, clock),
        run_job=run_job,
        owner_alive=owner_alive,
        report=report,
        impact_page=impact_page,
        installation=installation,
        reader_evidence=readers,
    )
