"""Ask the brokers whether they would accept what a plan changes, without changing anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from topicshift.acts.retention import GATE_S
from topicshift.core.checks import Shape
from topicshift.core.checks.snapshot import DryRun, Refusal
from topicshift.core.drain.retention import Unread, retention_risk
from topicshift.core.errors import Refused
from topicshift.core.kafka.cluster import TopicInfo
from topicshift.core.spec.model import Spec
from topicshift.ports import ClusterAdmin


def dry_create(admin: ClusterAdmin, shape: Shape) -> DryRun | None:
    """Whether the target would be made; None while its count or replicas are not known."""
    count, replicas = shape.partitions, shape.replication_factor
    if count is None or replicas is None:
        return None
    return judge(dict(shape.configs), lambda configs: admin.validate_create(shape.name, count, replicas, configs))


def dry_lengthen(admin: ClusterAdmin, source: TopicInfo, spec: Spec) -> DryRun | None:
    """Whether the source's retention could be lengthened as far as the run might; None where nothing expires."""
    values = {n: e.value for n in ("cleanup.policy", "retention.ms", "retention.bytes") if (e := source.configs.get(n))}
    risk = retention_risk(
        cleanup_policy=values.get("cleanup.policy") or "delete",
        retention_ms=int(values.get("retention.ms") or -1),
        retention_bytes=int(values.get("retention.bytes") or -1),
        unread=[Unread("any group", 0, None, 1, None)],  # nothing is known of it: the most that a run would set
        now_ms=0,
        extra_s=GATE_S + spec.freeze_budget.total_seconds(),
    )
    return judge(risk.change, lambda configs: admin.validate_configs(source.name, configs)) if risk.change else None


def judge(configs: Mapping[str, str], ask: Callable[[Mapping[str, str]], None]) -> DryRun:
    """Ask for all configs, and where they are refused find out which of them is to blame.

    ``ask`` raises ``Refused`` with the brokers' reason; what else it raises goes up.
    """

    def refusal(asked: Mapping[str, str]) -> str | None:
        try:
            ask(asked)
        except Refused as err:
            return " ".join(str(err).split())
        return None

    why = refusal(configs)
    if why is None:
        return DryRun(configs)
    one = [k for k in configs if refusal({n: v for n, v in configs.items() if n != k}) is None]
    if one:
        return DryRun(configs, tuple(Refusal(k, configs[k], why) for k in one))
    several = [] if refusal({}) else [(k, v, r) for k, v in configs.items() if (r := refusal({k: v}))]
    return DryRun(configs, tuple(Refusal(*s) for s in several) or (Refusal(None, None, why),))
