"""Whether an installation is fit for a migration: one row for each thing that was looked at. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from topicshift.core.checks.rights import ON_CLUSTER
from topicshift.core.kafka.cluster import ClusterInfo, TopicInfo
from topicshift.core.kafka.rules import ACKS_TOPIC, ROUTES_TOPIC
from topicshift.core.route.topics import topic_problems

Verdict = Literal["ok", "not_ok", "unknown"]

DAGS: Final[Mapping[str, str]] = {
    "topic_migration": "migrations that are started by hand",
    "topic_migration_producers_first": "the same in the other order",
    "topic_assessment": "plan and impact, read-only",
    "topic_rollback": "the way back",
    "topic_resume_on_source": "ends a freeze whose run was deleted; paused, nobody does",
    "topic_control": "pause, postpone, abort",
    "topic_question": "a question that has changed; paused, a run waits for an answer that nobody can give",
    "topic_source_watch": "names who still uses a source that was left",
}
"""DAGs that have to be there and not paused, with what each is for."""

MAY_BE_PAUSED: Final[Mapping[str, str]] = {
    "topic_retirement": "no source is deleted",
    "topic_doctor": "nobody checks the installation from Airflow",
}
"""DAGs that may be paused on purpose, with what that means."""

SETTINGS: Final[Mapping[tuple[str, str], tuple[float, str]]] = {
    ("scheduler", "scheduler_idle_sleep_time"): (
        0.2,
        "the scheduler sleeps so many seconds between two looks, and each task of a freeze waits for one",
    ),
    ("workers", "min_heartbeat_interval"): (
        1.0,
        "so many seconds late a worker notices that a task has ended; an answer in that time is asked for again",
    ),
    ("scheduler", "task_instance_heartbeat_timeout"): (
        90.0,
        "so many seconds pass until the task of a killed worker is tried again; a freeze may be over before",
    ),
    ("scheduler", "orphaned_tasks_check_interval"): (
        30.0,
        "so many seconds pass until the tasks of a killed scheduler are tried again",
    ),
}
"""Settings of Airflow that lengthen a freeze: the most that is good, in seconds, and what each costs."""


@dataclass(frozen=True)
class Row:
    """One thing that was looked at. ``do`` is empty where nothing is to be done."""

    area: str
    name: str
    verdict: Verdict
    seen: str
    do: str = ""

    def values(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def overall(rows: Iterable[Row]) -> Verdict:
    """``not_ok`` where one is, else ``unknown`` where one is; of no row at all nothing is known."""
    found = {row.verdict for row in rows}
    return "not_ok" if "not_ok" in found else "unknown" if "unknown" in found or not found else "ok"


def settings_rows(values: Mapping[tuple[str, str], str | None]) -> Iterator[Row]:
    """What Airflow's settings cost a freeze. None: the setting could not be read."""
    for (section, key), (most, why) in SETTINGS.items():
        name, text = f"[{section}] {key}", values.get((section, key))
        variable = f"AIRFLOW__{section.upper()}__{key.upper()}"
        try:
            value = float(text or "")
        except ValueError:
            yield Row("settings", name, "unknown", f"it is {text!r}", f"Set {variable}={most:g}.")
            continue
        good = value <= most
        yield Row(
            "settings",
            name,
            "ok" if good else "not_ok",
            f"{value:g} s; {why}",
            "" if good else f"Set {variable}={most:g}.",
        )


def told(rows: Iterable[Row]) -> str:
    """What is not OK, one line each with what to do; empty where all is."""
    wrong = [row for row in rows if row.verdict != "ok"]
    return "\n".join(
        f"- {row.verdict.replace('_', ' ')}: {row.area}: {row.name}: {row.seen}" + (f". Do: {row.do}" if row.do else "")
        for row in wrong
    )


def dag_rows(paused: Mapping[str, bool], errors: Mapping[str, str]) -> Iterator[Row]:
    """The DAGs as Airflow has them: id to whether it is paused; ``errors`` are of files that cannot be parsed."""
    for dag_id, what in {**DAGS, **MAY_BE_PAUSED}.items():
        if dag_id not in paused:
            do = "See that the DAG processor reads `dags`, and the import errors on Airflow's page."
            yield Row("dags", dag_id, "not_ok", "Airflow does not know it", do)
        elif paused[dag_id]:
            free = dag_id in MAY_BE_PAUSED
            do = "" if free else f"airflow dags unpause {dag_id}"
            yield Row("dags", dag_id, "ok" if free else "not_ok", f"paused ({what})", do)
        else:
            yield Row("dags", dag_id, "ok", "unpaused")
    for file, why in errors.items():
        yield Row("dags", file, "not_ok", f"cannot be parsed: {why}", "Mend the file or its imports (PYTHONPATH).")


def cluster_rows(cluster: ClusterInfo) -> Iterator[Row]:
    """The brokers, and the rights on the cluster of the principal that asked."""
    brokers = ", ".join(f"{b.id} at {b.host}:{b.port}" for b in cluster.brokers)
    yield Row("kafka", "brokers", "ok", f"cluster {cluster.cluster_id}: {brokers}")
    do = "Allow them on the cluster for this principal; docs/least-privilege.md lists all."
    if cluster.authorizer is False:
        yield Row("kafka", "rights", "ok", "no authorizer: everybody may do everything, and no DENY can hold a fence")
    elif cluster.authorized is None:
        yield Row("kafka", "rights", "unknown", "the brokers do not say what this principal may do", do)
    else:
        # CREATE may be given by the target's name, which is not known here.
        missing = [] if "ALL" in cluster.authorized else sorted(ON_CLUSTER - cluster.authorized - {"CREATE"})
        said = f"may not {', '.join(missing)} on the cluster" if missing else "DESCRIBE and ALTER on the cluster"
        yield Row("kafka", "rights", "not_ok" if missing else "ok", said, do if missing else "")


def route_rows(found: Mapping[str, TopicInfo | None], brokers: int) -> Iterator[Row]:
    """The two topics of the route; those that are not there yet are made by the first run."""
    for name in (ROUTES_TOPIC, ACKS_TOPIC):
        topic = found.get(name)
        if topic is None:
            said = "is not there yet: the first migration makes it, for which it needs CREATE"
            yield Row("kafka", name, "ok", said)
            continue
        wrong = [f"{p.setting} is {p.found}, not {p.wanted} ({p.why})" for p in topic_problems(topic, brokers)]
        do = "topicshift route init mends what can be; docs/route-protocol.md has the rest."
        yield Row("kafka", name, "not_ok" if wrong else "ok", "; ".join(wrong) or "as needed", do if wrong else "")
