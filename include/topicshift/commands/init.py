"""``topicshift init``: a first spec for a topic, from what the cluster shows. Read-only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from topicshift.commands.common import (
    EXIT_NO,
    EXIT_OK,
    EXIT_UNKNOWN,
    answer,
    file_option,
    kafka_options,
    read_impact,
    say,
    tell,
)
from topicshift.core.errors import SpecError


@click.command(
    help="Write a first spec for TOPIC: the applications on its route, the groups that read it, who may write to it, "
    "and the connectors that name it, each with where it comes from; and what could not be seen. Changes nothing in "
    "Kafka. Exit code 0 where the spec is valid as it is, 3 where something has to be filled in, 4 where a part of the "
    "cluster could not be read."
)
@click.argument("topic")
@file_option("--output", "-o", help="Write the spec to this new file instead of stdout.")
@click.option(
    "--connect",
    "connections",
    multiple=True,
    metavar="NAME",
    help="A connection to a Kafka Connect worker (AIRFLOW_CONN_NAME in the environment); may be repeated.",
)
@click.option(
    "--partitions", type=click.IntRange(min=1), help="Partitions of the target; twice the source's otherwise."
)
@file_option("--impact", "impact_file", help="impact.json of the key-rehash report: its advice is the count.")
@click.option("--connection", "conn_id", default="kafka_default", show_default=True, help="kafka_conn_id of the spec.")
@kafka_options
def command(
    topic: str,
    output: Path | None,
    connections: tuple[str, ...],
    partitions: int | None,
    impact_file: Path | None,
    conn_id: str,
    kafka_config: dict[str, Any],
    as_json: bool,
) -> int:
    """Look, and write the draft. See the help text."""
    from topicshift.acts.draft import connectors_of, draft_spec
    from topicshift.adapters.controllers import ControllerEnv, controllers
    from topicshift.adapters.kafka.admin import KafkaAdmin
    from topicshift.adapters.rest import asker, endpoint_from_env
    from topicshift.core.plan.draft import Wish

    if output is not None and output.exists():
        raise SpecError(f"--output: {output} exists already, and nothing is overwritten. Name a new file.")
    impact = read_impact(impact_file) if impact_file is not None else None
    asked = [connectors_of(name, asker(endpoint_from_env(name))) for name in connections] if connections else None
    wish = Wish(conn_id, partitions, "as given" if partitions is not None else "")
    with KafkaAdmin(kafka_config) as admin, controllers(ControllerEnv(kafka_config, admin)) as movers:
        found = draft_spec(topic, admin, movers("route"), asked, wish=wish, impact=impact)
    problems = found.problems()
    if output is not None:
        output.write_text(found.yaml(), encoding="utf-8")
        say(f"{output} is written. Read its comments, then: topicshift lint {output}; topicshift plan {output}")
    if as_json:
        parts = {"spec": found.values(), "valid": not problems, "problems": problems}
        sources = {
            name: [{"name": line.values["name"], "why": line.why} for line in lines]
            for name, lines in (("producers", found.producers), ("consumers", found.consumers))
        }
        seen = {"left_out": list(found.left_out), "unseen": list(found.unseen), "never_seen": list(found.blind)}
        targets = {"exist": list(found.targets_there), "free": list(found.targets_free)}
        answer({"topic": topic, "taken_at": found.taken_at, **parts, "from": sources, "targets": targets, **seen})
    elif output is None:
        tell(found.yaml().rstrip("\n"))
    for line in (*found.unseen, *(f"not valid yet: {problem}" for problem in problems)):
        say(line)
    if not connections:
        say("--connect NAME asks a Kafka Connect worker for its connectors.")
    if problems:
        return EXIT_NO
    return EXIT_UNKNOWN if found.unread else EXIT_OK
