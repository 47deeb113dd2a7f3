"""A cluster with rules of its own: what it would refuse is known from the plan, by the config's name and its reason."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.integration.test_plan_broker import NO_IMPACT, wanted

from lab.broker import EmbeddedBroker, kafka_jars
from lab.java import find_java
from topicshift.acts.plan import make_plan
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.core.errors import Refused
from topicshift.core.plan.model import Plan
from topicshift.core.spec.model import Spec
from topicshift.testing.fakes import FakeCluster

pytestmark = pytest.mark.broker
DAY_MS, WEEK_MS = 86_400_000, 604_800_000


def jars_with_rules(folder: Path) -> Path:
    """Kafka's jars, and one with the rules in it."""
    source = Path(__file__).parent / "policies" / "HouseRules.java"
    beside = find_java(for_spark=False).home / "bin" / "javac"
    javac = str(beside) if beside.exists() else shutil.which("javac")
    assert javac, "these tests compile a policy of a broker: install a JDK (javac), not only a Java runtime"
    classes, jars = folder / "classes", folder / "jars"
    jars.mkdir()
    command = [javac, "--release", "17", "-cp", f"{kafka_jars()}/*", "-d", str(classes), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for jar in kafka_jars().glob("*.jar"):
        (jars / jar.name).symlink_to(jar.resolve())
    with zipfile.ZipFile(jars / "house-rules.jar", "w") as out:
        out.write(classes / "house" / "HouseRules.class", "house/HouseRules.class")
    return jars


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaAdmin]:
    jars = jars_with_rules(tmp_path_factory.mktemp("rules"))
    rules = dict.fromkeys(("create.topic.policy.class.name", "alter.config.policy.class.name"), "house.HouseRules")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOPICSHIFT_KAFKA_JARS", str(jars))
        with EmbeddedBroker(server_properties=rules) as broker, KafkaAdmin(broker.config()) as admin:
            yield admin


def by_hand(source: str, **changes: object) -> Spec:
    people = {
        "producers": [{"name": "checkout", "kind": "manual"}],
        "consumers": [{"name": "ledger", "kind": "manual", "group": f"{source}-g"}],
    }
    return wanted(source, f"{source}-g", **people, **changes)


def test_a_count_that_the_cluster_forbids_blocks_the_plan(ruled: KafkaAdmin) -> None:
    ruled.create_topic("counted", 2, 1, {"retention.ms": str(DAY_MS)})
    ruled.alter_commits("counted-g", "counted", {0: 0, 1: 0})
    before = ruled.topic_names()
    plan = make_plan(by_hand("counted", partitions=25), ruled, no_impact=NO_IMPACT)
    (refused,) = _of(plan, "TS119")
    assert not plan.ok and not plan.unknown, str(plan)
    assert "'counted-v2' with 25 partitions and 1 replicas" in refused.seen
    assert "house rule: at most 24 partitions" in refused.seen
    assert ruled.topic_names() == before, "nothing was made to find out"
    allowed = make_plan(by_hand("counted", partitions=24), ruled, no_impact=NO_IMPACT)
    assert not _of(allowed, "TS119") and not _of(allowed, "TS120")
    assert allowed.ok, str(allowed)


def test_a_retention_that_the_cluster_forbids_is_named_by_its_config(ruled: KafkaAdmin) -> None:
    """At the limit already: the copy is allowed, and anything longer is not."""
    ruled.create_topic("kept", 2, 1, {"retention.ms": str(WEEK_MS), "segment.ms": "3600000"})
    ruled.alter_commits("kept-g", "kept", {0: 0, 1: 0})
    plan = make_plan(by_hand("kept"), ruled, no_impact=NO_IMPACT)
    (longer,) = _of(plan, "TS120")
    assert (longer.level.value, longer.subject) == ("warning", "source retention.ms")
    assert "house rule: nothing is kept for longer than a week" in longer.seen
    assert plan.ok and not _of(plan, "TS119"), str(plan)
    seen = ruled.topic("kept")
    assert seen is not None and seen.configs["retention.ms"].value == str(WEEK_MS), "nothing was changed to find out"


def _of(plan: Plan, code: str) -> list:
    return [f for f in plan.findings if f.code == code]


def _rules(partitions: int | None, configs: Mapping[str, str]) -> str | None:
    if int(configs.get("retention.ms", "0")) > WEEK_MS:
        return "house rule: nothing is kept for longer than a week"
    return "house rule: at most 24 partitions" if (partitions or 0) > 24 else None


def test_the_fake_answers_as_a_cluster_with_rules_does(ruled: KafkaAdmin) -> None:
    fake = FakeCluster()
    fake.policy = _rules
    for admin in (ruled, fake):
        admin.create_topic("both", 2, 1, {})
        admin.validate_create("both-v2", 24, 1, {"retention.ms": str(WEEK_MS)})
        admin.validate_configs("both", {"retention.ms": str(WEEK_MS)})
        for refused in (
            lambda a=admin: a.validate_create("both-v2", 25, 1, {}),
            lambda a=admin: a.validate_create("both-v2", 4, 1, {"retention.ms": str(WEEK_MS + 1)}),
            lambda a=admin: a.validate_configs("both", {"retention.ms": str(WEEK_MS + 1)}),
            lambda a=admin: a.create_topic("both-v2", 25, 1, {}),
            lambda a=admin: a.alter_topic_configs("both", set_={"retention.ms": str(WEEK_MS + 1)}),
        ):
            with pytest.raises(Refused, match="house rule"):
                refused()
        assert "both-v2" not in admin.topic_names()
