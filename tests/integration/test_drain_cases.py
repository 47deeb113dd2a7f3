"""Every drain case through the library, the watch behind the trigger, and the command line, which must agree."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.integration.drain_cases import Case, Kit, Scenario, iter_cases

from lab.broker import EmbeddedBroker
from topicshift import cli
from topicshift.acts.drain import DrainTaker
from topicshift.acts.drain_inputs import DrainConfig, DrainInputs
from topicshift.acts.drain_watch import DrainWatch
from topicshift.adapters.executor import run_async
from topicshift.adapters.kafka.reader import KafkaDrainReader
from topicshift.adapters.spark_checkpoint import read_checkpoint
from topicshift.commands.drain import print_text
from topicshift.core.drain.certificate import DrainCertificate
from topicshift.core.drain.evidence import ReaderEvidence
from topicshift.core.fence.point import FencePoint

CASES = list(iter_cases())
UNREAD = {"partition_unreadable", "commit_unreadable", "group_unreadable", "tail_unreadable"}
"""Reasons beside which the certificate says why, and whatever it says a person is told."""


def inputs_of(scenario: Scenario) -> DrainInputs:
    """The question of a scenario, as the library takes it."""
    declared = scenario.groups or scenario.spec_groups

    def evidence() -> list[ReaderEvidence]:
        folders = scenario.checkpoints.items()
        return [*scenario.evidence, *(read_checkpoint(n, f, scenario.topic) for n, f in folders)]

    return DrainInputs(
        scenario.topic,
        declared=declared or None,
        compare=not scenario.groups,
        ignored=scenario.ignored,
        accepted_lost=frozenset(scenario.accept_lost),
        evidence=evidence if scenario.evidence or scenario.checkpoints else None,
    )


def fence_of(scenario: Scenario) -> FencePoint | None:
    if scenario.fence is None:
        return None
    return FencePoint(
        topic=scenario.topic,
        topic_id=scenario.fence_topic_id,
        taken_at=scenario.fence_at,
        fence_offsets=dict(scenario.fence),
    )


def arguments(scenario: Scenario, broker: EmbeddedBroker, folder: Path) -> list[str]:
    """The same question as words of the command line."""
    words = ["drain", "--topic", scenario.topic, "--json"]
    config = broker.write_client_properties(scenario.user, folder / "client.properties")
    words += ["--kafka-config", str(config)]
    words += [w for g in scenario.groups for w in ("--group", g)]
    words += [w for g, why in scenario.ignored.items() for w in ("--ignore-group", f"{g}={why}")]
    words += [w for g in scenario.accept_lost for w in ("--accept-lost", g)]
    words += [w for n, f in scenario.checkpoints.items() for w in ("--spark-checkpoint", f"{n}={f}")]
    if scenario.spec_groups is not None:
        spec = {
            "apiVersion": "topicshift/v1",
            "source": scenario.topic,
            "partitions": 30,
            "producers": [{"name": "writer"}],
            "consumers": [{"name": g, "group": g} for g in scenario.spec_groups],
        }
        (folder / "spec.yaml").write_text(json.dumps(spec))
        words += ["--spec", str(folder / "spec.yaml")]
    if (fence := fence_of(scenario)) is not None:
        (folder / "fence.json").write_text(fence.model_dump_json())
        words += ["--fence", str(folder / "fence.json")]
    if scenario.evidence:
        (folder / "evidence.json").write_text(json.dumps([e.model_dump(mode="json") for e in scenario.evidence]))
        words += ["--evidence", str(folder / "evidence.json")]
    return words


def check(case: Case, scenario: Scenario, certificate: DrainCertificate, how: str) -> None:
    """The certificate says what the case states."""

    def named(stem: str, names: set[str]) -> str:
        return stem if stem in names else f"{stem}-{scenario.topic}"

    groups = {g.group: g for g in certificate.groups}
    told = {g: [(r.reason, r.records_left) for r in e.partitions] for g, e in groups.items()}
    assert certificate.verdict.value == case.verdict, f"{how}: {certificate.reasons} {told}"
    for (stem, partition), (reason, left) in case.rows.items():
        row = groups[named(stem, set(groups))].partitions[partition]
        assert row.reason == reason, f"{how}: {stem}[{partition}] is {row}"
        assert left is ... or row.records_left == left, f"{how}: {stem}[{partition}] is {row}"
    for group in certificate.groups:
        for row in group.partitions:
            about = [e.error for e in certificate.errors if e.group in (None, group.group)]
            assert row.reason not in UNREAD or about, f"{how}: nobody says why {group.group} is {row.reason}"
    assert all(any(word in e.error for e in certificate.errors) for word in case.errors), f"{how}: {certificate.errors}"
    for stem, state in case.state.items():
        assert groups[named(stem, set(groups))].state == state, how
    for stem, kind in case.kind.items():
        assert groups[named(stem, set(groups))].kind == kind, how
    for entry in case.topic_reasons:
        code, _, stem = entry.partition(":")
        wanted = f"{code}:{stem}-{scenario.topic}" if stem else code
        assert wanted in certificate.reasons, f"{how}: {certificate.reasons}"
    if "no_groups" not in case.topic_reasons and not case.topic_reasons:
        assert not certificate.reasons, f"{how}: {certificate.reasons}"


async def two_looks(reader: KafkaDrainReader, taker: DrainTaker) -> DrainCertificate:
    """What the trigger sees first, and, where it goes on, what the cheap second look makes of it."""
    watch = DrainWatch(taker, timeout_s=60)
    looks = 0
    async for progress in watch:
        assert watch.certificate == progress.certificate
        looks += 1
        if looks == 2:
            break
    await reader.close()
    assert watch.certificate is not None
    return watch.certificate


@pytest.fixture(scope="module", autouse=True)
def quick_cleaner(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The cleaner's first pause of 15 s runs out while other cases run."""
    with Kit(broker, tmp_path_factory.mktemp("cleaner")) as kit:
        kit.quick_cleaner()


@pytest.mark.broker
@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_case(case: Case, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert case.truth, "a case states its truth"
    broker: EmbeddedBroker = request.getfixturevalue("secure_broker" if case.secure else "broker")
    with Kit(broker, tmp_path) as kit:
        scenario = case.build(kit)
        config = broker.config(scenario.user)
        reader = KafkaDrainReader.from_config(config)
        fence = fence_of(scenario)
        certificate = run_async(DrainTaker(reader, inputs_of(scenario), fence=fence).take)
        check(case, scenario, certificate, "library")
        taker = DrainTaker(reader, inputs_of(scenario), fence=fence, config=DrainConfig(poll_s=0.1, poll_max_s=0.1))
        watched = asyncio.run(two_looks(reader, taker))
        check(case, scenario, watched, "watch")
        capsys.readouterr()
        code = cli.run(arguments(scenario, broker, tmp_path))
        out, err = capsys.readouterr()
        assert code == case.exit_code, f"{code}: {out} {err}"
        assert "Traceback" not in err
        answer = DrainCertificate.model_validate_json(out)
        check(case, scenario, answer, "command line")
        print_text(answer)
        text = " ".join(capsys.readouterr().out.split())
        told = [" ".join(e.error.split()) for e in answer.errors]
        told += [f"producer id {t.producer_id}" for t in answer.transactions]
        assert [words for words in told if words not in text] == []
