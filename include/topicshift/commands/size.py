"""``topicshift size``: how many partitions a topic should have, from given numbers or measured rates, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topicshift.commands.common import (
    EXIT_NO,
    EXIT_OK,
    EXIT_UNKNOWN,
    NO_CLUSTER,
    answer,
    console,
    duration_option,
    escape,
    file_option,
    kafka_options_if_wanted,
    read_impact,
    say,
)
from topicshift.core.errors import NotFound, SpecError

if TYPE_CHECKING:
    from topicshift.core.sizing.sizing import CountFacts, MeasuredRates, SizingInput, SizingResult

_POSITIVE = click.FloatRange(min=0, min_open=True)
_COUNT = click.IntRange(min=1)


@click.command("size", help="How many partitions a topic should have, and why. Read-only.")
@click.option("--throughput", type=_POSITIVE, metavar="N", help="T: wanted records/s at the peak.")
@click.option("--per-consumer", type=_POSITIVE, metavar="N", help="Cp: records/s that one consumer works through.")
@click.option("--per-partition", type=_POSITIVE, metavar="N", help="Pp: records/s that one producer writes to one.")
@click.option("--headroom", type=click.FloatRange(0, 5), metavar="SHARE", help="Added on top; 0.25 by default.")
@click.option("--factor", type=click.FloatRange(1, 6), metavar="F", help="Safety factor instead: 2 or 3 for bursts.")
@click.option("--multiple-of", type=_COUNT, metavar="N", help="Round up to a multiple of this number.")
@click.option("--source-partitions", type=_COUNT, metavar="N", help="The topic's count now; --topic tells it.")
@click.option("--brokers", type=_COUNT, metavar="N", help="Number of brokers; --topic tells it.")
@click.option("--cores", type=_COUNT, metavar="N", help="Processor cores of one broker.")
@click.option("--replication-factor", type=_COUNT, metavar="N", help="Replicas of each partition; --topic tells it.")
@click.option("--flink-parallelism", type=_COUNT, metavar="N", help="Parallelism of a Flink source that reads it.")
@file_option("--impact", "impact_file", help="impact.json of the topic: the skew of each count.")
@click.option("--topic", metavar="T", help="Ask the cluster about this topic.")
@click.option("--group", metavar="G", help="Measure this group too: what one consumer does, if it is saturated.")
@click.option("--measure", metavar="DURATION", help="Measure the rates for so long, for instance 30s.")
@kafka_options_if_wanted
def command(
    *,
    headroom: float | None,
    factor: float | None,
    impact_file: Path | None,
    topic: str | None,
    group: str | None,
    measure: str | None,
    kafka_config: dict[str, Any] | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Exit code 0 with a recommendation, 3 when every count speaks against a bound, 4 if something was unreadable.

    Partitions that could not be read are missing from the measured rates, so that these are too low: that is 4 too.
    """
    from topicshift.core.sizing.sizing import SizingInput, recommend, record_bytes_from_impact, skew_from_impact

    if headroom is not None and factor is not None:
        raise SpecError("--headroom and --factor say the same in two ways. Give one of them.")
    if (measure or group) and not topic:
        raise SpecError("--measure and --group need --topic: rates are read from a topic's offsets.")
    if group and not measure:
        raise SpecError("--group needs --measure: a group's rate shows only over time. Add for instance --measure 30s.")
    values: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
    _require_finite({**values, "headroom": headroom, "factor": factor})
    cores = values.pop("cores", None)
    rates: MeasuredRates | None = None
    topic_id = None
    if topic:
        topic_id, facts, rates = _ask(topic, group, measure, kafka_config)
        values = facts | values
    if cores is not None:
        values["cores_per_broker"] = cores
    if headroom is not None or factor is not None:
        values["headroom"] = headroom if headroom is not None else (factor or 1) - 1
    _from_rates(values, rates, group)
    if impact_file is not None:
        impact = _impact(impact_file, topic, topic_id)
        values["skew"], values["hottest_key_share"] = skew_from_impact(impact)
        values["record_bytes"] = record_bytes_from_impact(impact)
        values.setdefault("source_partitions", impact.get("source", {}).get("partitions"))
    asked = SizingInput(**values)
    try:
        result = recommend(asked)
    except ValueError as err:
        raise SpecError(f"{err}.") from None
    result = result.model_copy(update={"unchecked": [_with_option(bound) for bound in result.unchecked]})
    if as_json:
        answer({"input": asked, "measured": rates, "result": result})
    else:
        _show(asked, rates, result)
    best = next(c for c in result.counts if c.partitions == result.recommended)
    if rates is not None and rates.unread:
        return EXIT_UNKNOWN
    return EXIT_NO if best.problems else EXIT_OK


def _require_finite(values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise SpecError(f"--{name.replace('_', '-')} {value} is no number to work with. Give a finite one.")


def _from_rates(values: dict[str, Any], rates: MeasuredRates | None, group: str | None) -> None:
    """Fill in what was measured and not given. Raises ``SpecError`` for what is still missing."""
    if rates is not None:
        if "throughput" not in values:
            if rates.throughput <= 0:
                raise SpecError(
                    f"Nothing was written to the topic in {rates.seconds:.0f} s, so its rate cannot be measured. "
                    "Measure while it is busy, or give --throughput."
                )
            values["throughput"] = rates.throughput
            say(
                f"measured {rates.throughput:,.0f} records/s (peak {rates.peak_throughput:,.0f}); for a busier hour "
                "give --throughput, or a --factor"
            )
        if "per_consumer" not in values and group is not None:
            if not rates.saturated or not rates.per_consumer:
                seen = f"{rates.per_consumer:,.0f}" if rates.per_consumer is not None else "no"
                raise SpecError(
                    f"Group {group} kept up while it was measured ({seen} records/s on its busiest partition), so that "
                    "shows what came in and not what a consumer can do. Measure while it has a backlog, or give "
                    "--per-consumer."
                )
            values["per_consumer"] = rates.per_consumer
    missing = [f"--{k.replace('_', '-')}" for k in ("throughput", "per_consumer") if k not in values]
    if missing:
        raise SpecError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not known. The count is "
            "max(T / Cp, T / Pp): give the rates, or measure them with --topic T --group G --measure 30s."
        )


def _ask(
    topic: str, group: str | None, measure: str | None, config: dict[str, Any] | None
) -> tuple[str, dict[str, Any], MeasuredRates | None]:
    from topicshift.acts.measure import sample_offsets
    from topicshift.adapters.clock import SystemClock
    from topicshift.adapters.kafka.admin import KafkaAdmin
    from topicshift.core.sizing.sizing import rates_from_samples

    if config is None:
        raise SpecError(NO_CLUSTER)
    span = timedelta(seconds=duration_option("--measure", measure)) if measure is not None else None
    if span is not None and not timedelta(seconds=1) <= span <= timedelta(hours=6):
        raise SpecError("--measure: between 1s and 6h, please; 30s to 5m shows the rates of the moment.")
    with KafkaAdmin(config) as admin:
        cluster = admin.cluster()
        info = admin.topic(topic)
        if info is None:
            raise NotFound(f"Topic {topic} does not exist, or this client may not see it. Correct --topic.")
        facts = {
            "source_partitions": info.partitions,
            "brokers": len(cluster.brokers),
            "replication_factor": info.replication_factor,
        }
        if span is None:
            return info.topic_id, facts, None
        samples = sample_offsets(
            admin, topic, group=group, span=span, every=max(timedelta(seconds=1), span / 10), clock=SystemClock()
        )
    return info.topic_id, facts, rates_from_samples(samples)


def _impact(file: Path, topic: str | None, topic_id: str | None) -> dict[str, Any]:
    found = read_impact(file)
    if "candidates" not in found:
        raise SpecError(f"--impact: {file} is no impact report. Give the impact.json of a report.")
    if topic is not None and found.get("topic") != topic:
        raise SpecError(f"--impact: {file} is of topic {found.get('topic')}, not of {topic}. Give the one of {topic}.")
    if topic_id is not None and found.get("topic_id") not in (None, topic_id):
        raise SpecError(
            f"--impact: {file} is of a topic {topic} with the id {found['topic_id']}; the id is {topic_id} now, so "
            "it is of other records. Assess the topic again."
        )
    return found


def _share(count: CountFacts) -> str:
    if count.max_partition_share is None:
        return "-"
    return f"{'' if count.share_measured else '~'}{count.max_partition_share:.1%}"


_OPTIONS = {
    "the number of brokers is not known": "--brokers or --topic",
    "the cores of a broker are not known": "--cores",
    "the replication factor is not known": "--replication-factor or --topic",
    "the keys were not measured": "--impact",
}


def _with_option(bound: str) -> str:
    """The bound with the option that would let it be checked."""
    return f"{bound} Give {next(option for words, option in _OPTIONS.items() if words in bound)}."


def _show(asked: SizingInput, rates: MeasuredRates | None, result: SizingResult) -> None:
    from rich.table import Table

    out = console()
    runner = f" (runner-up: {result.runner_up})" if result.runner_up else ""
    out.print(f"[bold]{result.recommended}[/] partitions{runner}")
    out.print()
    for reason in result.reasons:
        out.print(f"  {escape(reason)}")
    for warning in result.warnings:
        out.print(f"  [yellow]warning:[/] {escape(warning)}")
    if rates is not None and rates.unread:
        out.print(
            f"  [yellow]warning:[/] partitions {rates.unread} could not be read and are not in the rates, "
            "so the count may be too small; measure again when they answer"
        )
    for bound in result.unchecked:
        out.print(f"  [yellow]not checked:[/] {escape(bound)}")
    out.print()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("count", "spare", "parents", "same index", "even", "replicas/broker", "hottest", "against it"):
        table.add_column(title, justify="left" if title == "against it" else "right")
    for c in result.counts:
        table.add_row(
            f"[bold]{c.partitions}[/]" if c.partitions == result.recommended else str(c.partitions),
            f"{c.spare:.0%}",
            str(c.parents_max or "-"),
            f"{c.same_index_share:.0%}" if c.same_index_share is not None else "-",
            {True: "yes", False: "no", None: "-"}[c.even_over_brokers],
            str(c.replicas_per_broker or "-"),
            _share(c),
            escape("; ".join(c.problems)),
        )
    out.print(table)
    out.print()
    for a in result.advice:
        out.print(f"  [cyan]{a.client}[/] {escape(a.setting)} = {escape(a.value)}: {escape(a.why)}")
