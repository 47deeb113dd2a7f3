"""Show that the tests can fail: break one thing at a time in a copy of the tree, and see tests go red.

Usage: ``python tests/mutations.py [--with-broker] [NAME ...]``. The work tree itself is never touched. Exit code 0 only
if every mutation made a test fail (and the unbroken copy passes). Not a test itself: it runs the tests.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Mutation:
    """Replace ``old`` by ``new`` once in ``file``; ``tests`` must then fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    broker: bool = False


CORE = "include/topicshift/core/"
SPARK = "spark_jobs/topicshift_spark/"
MUTATIONS = (
    Mutation(
        "close does not look for records after the fence",
        "include/topicshift/acts/close.py",
        "    if not way.in_effect(Row.SWITCH_PRODUCERS):\n        return []\n    try:",
        "    if way.in_effect(Row.SWITCH_PRODUCERS):\n        return []\n    try:",
        ("tests/unit/test_close_everywhere.py",),
    ),
    Mutation(
        "an answer on a way back is waited for no longer than the go of the way forward",
        "include/topicshift/acts/questions.py",
        "go = {} if record.mirrored else shown_of(record, Ask.FREEZE)",
        "go = shown_of(record, Ask.FREEZE)",
        ("tests/unit/test_go.py",),
    ),
    Mutation(
        "fence: one look is enough",
        CORE + "fence/decision.py",
        "if len(tail) >= settings.samples and span >= settings.settle_s:",
        "if tail:",
        ("tests/unit/test_fence.py",),
    ),
    Mutation(
        "several kinds: the first one that fails keeps all others from going on",
        "include/topicshift/acts/telling.py",
        "        others = [late for p in members if p not in named for late in _kind(ctx, controller, [p], act)]",
        "        others = list[Late]()",
        ("tests/unit/test_acts_several_kinds.py",),
    ),
    Mutation(
        "several kinds: one kind is told after the other",
        "include/topicshift/acts/telling.py",
        "    answers = ctx.ports.executor.gather(calls)",
        "    answers = {kind: call() for kind, call in calls.items()}",
        ("tests/unit/test_side_by_side.py",),
    ),
    Mutation(
        "several kinds: who was pointed stays there where one refuses",
        "include/topicshift/acts/switch.py",
        "        if refused:",
        "        if False:",
        ("tests/unit/test_acts_several_kinds.py",),
    ),
    Mutation(
        "http: a refused point keeps one from going back that shows the source",
        "include/topicshift/adapters/controllers/http.py",
        "            if any(seen.topic != topic for seen in after.values()):",
        "            if after:",
        ("tests/unit/test_acts_http.py",),
    ),
    Mutation(
        "changes: the first broker that shows one speaks for all",
        "include/topicshift/adapters/kafka/propagation.py",
        "            if fresh and not missing:",
        "            if shown:",
        ("tests/unit/test_propagation.py",),
    ),
    Mutation(
        "changes: nobody is waited for",
        "include/topicshift/adapters/kafka/propagation.py",
        "    Watch(\n        lambda node: _live(",
        "    return\n    Watch(\n        lambda node: _live(",
        ("tests/integration/test_propagation_real.py",),
        broker=True,
    ),
    Mutation(
        "status: what is not understood is no reason for exit code 4",
        "include/topicshift/commands/status.py",
        "        code = EXIT_UNKNOWN",
        "        code = EXIT_OK",
        ("tests/unit/cli/test_cli_unclear.py",),
    ),
    Mutation(
        "status: nothing is claimed of a freeze that is not understood",
        "include/topicshift/commands/status_view.py",
        '"none so far" if one["unclear"] is None else "not known"',
        '"none so far"',
        ("tests/unit/cli/test_cli_unclear.py",),
    ),
    Mutation(
        "status: what an ending left to do by hand is not named",
        "include/topicshift/commands/status_view.py",
        'for text in one["left"]]',
        "for text in ()]",
        ("tests/unit/test_page_model.py",),
    ),
    Mutation(
        "page: a close says nothing of what it leaves to be done by hand",
        "include/topicshift/acts/close.py",
        "*put_back_lines(held, record), *left)",
        "*put_back_lines(held, record))",
        ("tests/unit/test_page.py", "tests/unit/test_close_everywhere.py"),
    ),
    Mutation(
        "page: a migration is closed while producers may stand still",
        "plugins/topicshift_airflow/page/orders.py",
        "    cannot = not_closed(record)\n    if cannot",
        '    cannot = ""\n    if cannot',
        ("tests/unit/test_page.py",),
    ),
    Mutation(
        "page: late records are replayed before every group is released",
        "plugins/topicshift_airflow/page/orders.py",
        "    cannot = not_replayed(record)",
        '    cannot = ""',
        ("tests/unit/test_page.py",),
    ),
    Mutation(
        "mirror: offsets of an earlier topic of the target's name are gone on from",
        CORE + "kafka/mirror.py",
        "if (own.get(partition, 0) != at) if begins else (partition not in own):",
        "if partition not in own:",
        ("tests/unit/test_mirror.py", "tests/unit/test_acts_mirror.py"),
    ),
    Mutation(
        "mirror: what is gone before it was copied is passed over",
        "include/topicshift/adapters/controllers/connect_mirror.py",
        "    if not gone:\n",
        "    if True:\n",
        ("tests/unit/test_connect_mirror.py",),
    ),
    Mutation(
        "fence: growth afterwards goes unseen",
        CORE + "fence/record.py",
        "elif entry.end > fence:",
        "elif entry.end > fence + 1_000_000_000:",
        ("tests/unit/test_fence.py", "tests/unit/test_acts_fence.py"),
    ),
    Mutation(
        "fence: route producers are denied as well, so that a lease ends nothing",
        CORE + "fence/acls.py",
        "exempt = sorted(exempt_of(producers))",
        "exempt = []",
        ("tests/unit/test_fence_acl.py",),
    ),
    Mutation(
        "retire: commits that move go unseen",
        CORE + "drain/discovery.py",
        "return frozenset(p for p in seen if before.offsets[p] != after.offsets[p])",
        "return frozenset()",
        ("tests/unit/test_acts_retire.py",),
    ),
    Mutation(
        "retire: another topic of the same name is deleted as well",
        CORE + "proof/retirement.py",
        "if info.topic_id != expected_topic_id:",
        "if False:",
        ("tests/unit/test_acts_retire.py",),
    ),
    Mutation(
        "drain: records that can still be read do not count",
        CORE + "drain/decision.py",
        "if readable in (_Readable.SOME, _Readable.NOT_READ):",
        "if readable in ():",
        ("tests/unit/test_drain_property.py", "tests/unit/test_drain_decision.py"),
    ),
    Mutation(
        "drain: an open transaction is no obstacle",
        CORE + "drain/decision.py",
        "    if log.stable < log.goal:\n        return Reason.OPEN_TRANSACTION, left",
        "    if False:\n        return Reason.OPEN_TRANSACTION, left",
        ("tests/unit/test_drain_property.py", "tests/unit/test_drain_decision.py"),
    ),
    Mutation(
        "drain: nothing at all counts as drained",
        CORE + "drain/certificate.py",
        "if not verdicts or Verdict.UNKNOWN in verdicts:",
        "if Verdict.UNKNOWN in verdicts:",
        ("tests/unit/test_certificate.py",),
    ),
    Mutation(
        "seeding: the route client relies on auto.offset.reset",
        "include/topicshift/core/route/client.py",
        "        return entry is not None and entry.came_from is not None and entry.topic == topic",
        "        return False",
        ("tests/integration/test_route_groups_real.py",),
        broker=True,
    ),
    Mutation(
        "order proof: crossing is not looked at",
        CORE + "proof/order.py",
        'return _check(facts, "crossing", _counted(count), count, seen, why)',
        'return _check(facts, "crossing", _counted(0), 0, seen, why)',
        ("tests/unit/test_order.py",),
    ),
    Mutation(
        "resume: a run that has ended is taken for one that is alive",
        CORE + "engine/freeze.py",
        "if owner_alive is False:",
        "if False:",
        ("tests/unit/test_abandoned.py",),
    ),
    Mutation(
        "resume: a timer ends a freeze after the intent to point",
        CORE + "engine/freeze.py",
        "if rolling_back or pointing or late",
        "if rolling_back or late",
        ("tests/unit/test_abandoned.py",),
    ),
    Mutation(
        "tasks: a task that is cleared after the end acts once more",
        "plugins/topicshift_airflow/operators/advance.py",
        'if done.decision.rule == "ended" and not self.again:',
        "if False:",
        ("tests/unit/test_cleared_tasks.py",),
    ),
    Mutation(
        "tasks: a run whose migration was aborted ends green",
        "plugins/topicshift_airflow/operators/advance.py",
        '        if self.wanted == "forward" and (otherwise := ended_otherwise(ctx)):',
        "        if False:",
        ("tests/unit/test_cleared_tasks.py",),
    ),
    Mutation(
        "impact: the sign bit is not masked, one key at a time",
        CORE + "impact/partitioning.py",
        "return (hash_value & 0x7FFFFFFF) % partitions",
        "return hash_value % partitions",
        ("tests/unit/test_partitioning.py",),
    ),
    Mutation(
        "impact: the sign bit is not masked, on the executors",
        SPARK + "impact_scan.py",
        'positive = hashes.values["murmur2"] & np.uint32(0x7FFFFFFF)',
        'positive = hashes.values["murmur2"]',
        ("tests/unit/test_impact_scan.py",),
    ),
    Mutation(
        "impact: records without a key can be overtaken",
        SPARK + "impact_groups.py",
        "records * (keyed & (hashes.place(RULE[rule], m) != now))",
        "records * (hashes.place(RULE[rule], m) != now)",
        ("tests/unit/test_impact_groups.py",),
    ),
    Mutation(
        "impact: a group is charged with what it has read",
        SPARK + "impact_figures.py",
        "if cuts[partition][piece] >= begins[partition]:",
        "if True:",
        ("tests/unit/test_impact_groups.py",),
    ),
    Mutation(
        "impact: parents are counted by the new partitions",
        CORE + "impact/partitioning.py",
        "return source // math.gcd(source, target)",
        "return target // math.gcd(source, target)",
        ("tests/unit/test_partitioning.py",),
    ),
    Mutation(
        "impact: intervals of a sample are made for 80 %",
        CORE + "impact/sampling.py",
        "_NOMINAL = 0.99",
        "_NOMINAL = 0.80",
        ("tests/unit/test_impact_sampling.py",),
    ),
    Mutation(
        "impact: intervals of bytes count single bytes",
        SPARK + "impact_figures.py",
        "burst=burst or self.burst)",
        "burst=1.0)",
        ("tests/integration/test_impact_sampling_real.py",),
        broker=True,
    ),
    Mutation(
        "impact: an earlier in-place increase is a mixture",
        CORE + "impact/fingerprint.py",
        "if bit == one or (larger and _came_first(seen, bit, larger)):",
        "if bit == one:",
        ("tests/unit/test_impact_fingerprint.py",),
    ),
    Mutation(
        "impact: earlier counts are looked for from too far up",
        CORE + "impact/fingerprint.py",
        "range(max(2, int(where.min()) + 1), partitions)",
        "range(max(2, int(where.max()) + 2), partitions)",
        ("tests/unit/test_impact_fingerprint.py",),
    ),
    Mutation(
        "impact: an empty key is no key",
        SPARK + "impact_scan.py",
        "present = key.is_valid().to_numpy(zero_copy_only=False)",
        "present = key.is_valid().to_numpy(zero_copy_only=False) & (lengths > 0)",
        ("tests/unit/test_impact_scan.py",),
    ),
    Mutation(
        "impact: empty keys are not counted apart",
        SPARK + "impact_scan.py",
        "empty = lengths == 0",
        "empty = lengths < 0",
        ("tests/unit/test_impact_scan.py",),
    ),
    Mutation(
        "impact: empty keys that are spread are predicted",
        SPARK + "impact_figures.py",
        "without_empty_key(sums, plan) if spread_out else sums",
        "sums",
        ("tests/unit/test_impact_empty_keys.py",),
    ),
    Mutation(
        "impact: a rule is judged by empty keys",
        SPARK + "impact_scan.py",
        "signature[rows.empty] = -1",
        "signature[:0] = -1",
        ("tests/unit/test_impact_empty_keys.py",),
    ),
    Mutation(
        "impact: two counts at the same time are an earlier increase",
        CORE + "impact/fingerprint.py",
        "if bit == one or (larger and _came_first(seen, bit, larger)):",
        "if bit == one or larger:",
        ("tests/unit/test_impact_fingerprint.py",),
    ),
    Mutation(
        "plan: a principal that no ALLOW names passes for a producer's",
        CORE + "fence/acls.py",
        "if not each.claimed or any(grant(acls, topic, p) is not Grant.BY_NAME for p in each.claimed)",
        "if not each.claimed",
        ("tests/unit/test_fence_acl.py",),
    ),
    Mutation(
        "plan: a name that the brokers do not know is waved through",
        CORE + "checks/route_principals.py",
        "if granted in (Grant.NONE, Grant.DENIED):",
        "if granted is Grant.DENIED:",
        ("tests/unit/test_plan_checks.py",),
    ),
    Mutation(
        "plan: names are compared without regard to case",
        CORE + "fence/acls.py",
        "    if principal in allowed:\n        return Grant.BY_NAME",
        "    if principal.casefold() in {p.casefold() for p in allowed}:\n        return Grant.BY_NAME",
        ("tests/unit/test_fence_acl.py", "tests/unit/test_plan_checks.py"),
    ),
    Mutation(
        "fence: another name of a producer on the route is denied",
        CORE + "fence/acls.py",
        "denied = [p for p in allowed if p != ANYBODY and p not in exempt and p not in unclear]",
        "denied = [p for p in allowed if p != ANYBODY and p not in exempt]",
        ("tests/unit/test_fence_acl.py",),
    ),
    Mutation(
        "fence: a topic without ACLs gets its first one after the switch",
        CORE + "fence/acls.py",
        'if not any(a.permission == "ALLOW" for a in concerning(acls, source)):',
        "if not acls:",
        ("tests/unit/test_fence_acl.py",),
    ),
    Mutation(
        "plan: an application on the route that nobody declared is passed over",
        CORE + "checks/followers.py",
        'if kind == "route" and follower.logical == ours:',
        'if kind in ("route", None) and follower.logical == ours:',
        ("tests/unit/test_plan_checks.py", "tests/unit/test_steps_plan.py"),
    ),
    Mutation(
        "plan: nobody looked who follows the route, and that is fine",
        CORE + "checks/followers.py",
        "if facts.on_the_route and asked:",
        "if False:",
        ("tests/unit/test_steps_plan.py",),
    ),
    Mutation(
        "plan: whom the fence denies is not what is approved",
        CORE + "plan/model.py",
        '            "deny",\n            "deny_after_switch",\n            "actions",\n',
        "",
        ("tests/unit/test_plan.py",),
    ),
    Mutation(
        "plan: every config is blamed for the refusal of one",
        "include/topicshift/acts/dry_run.py",
        "one = [k for k in configs if refusal({n: v for n, v in configs.items() if n != k}) is None]",
        "one = list(configs)",
        ("tests/unit/test_steps_plan.py",),
    ),
    Mutation(
        "plan: the brokers' refusal is not heard",
        "include/topicshift/acts/dry_run.py",
        "    if why is None:\n        return DryRun(configs)",
        "    if True:\n        return DryRun(configs)",
        ("tests/unit/test_steps_plan.py",),
    ),
    Mutation(
        "plan: the brokers are asked to do it instead of to judge it",
        "include/topicshift/adapters/kafka/topics.py",
        "        self._create(name, partitions, replication_factor, configs, validate_only=True)",
        "        self._create(name, partitions, replication_factor, configs, validate_only=False)",
        ("tests/integration/test_cluster_admin_contract.py",),
        broker=True,
    ),
    Mutation(
        "rehearsal: what blocks the migration does not block its rehearsal",
        "include/topicshift/acts/rehearse.py",
        "    if not plan.ok:\n        blocking = plan.blocking()",
        "    if False:\n        blocking = plan.blocking()",
        ("tests/unit/test_rehearsal.py",),
    ),
    Mutation(
        "rehearsal: a name that is not its own is taken",
        "include/topicshift/acts/rehearse.py",
        "        _nobody_has_the_names(ctx)\n    ctx.intend",
        "        pass\n    ctx.intend",
        ("tests/unit/test_rehearsal.py",),
    ),
    Mutation(
        "rehearsal: its topics stay",
        "include/topicshift/acts/rehearse.py",
        '        *((f"topic {name}", partial(_delete_topic, ctx, name)) for name in topics),',
        "        *(),",
        ("tests/unit/test_rehearsal.py",),
    ),
    Mutation(
        "rehearsal: an error at its clean-up is passed over",
        "include/topicshift/acts/rehearse.py",
        "            if not anyway:\n                raise",
        "            pass",
        ("tests/unit/test_rehearsal.py",),
    ),
    Mutation(
        "http: what an application answers to a point is taken for the act",
        "include/topicshift/adapters/controllers/http.py",
        "            if seen.topic != topic:",
        "            if False:",
        ("tests/unit/test_acts_http.py",),
    ),
    Mutation(
        "http: a request that may not be sent twice is sent",
        CORE + "spec/http.py",
        'if self.method in ("POST", "PATCH") and not self.repeatable:',
        "if False:",
        ("tests/unit/test_http_controller.py",),
    ),
    Mutation(
        "spark_streaming: where a query began is not looked at",
        "include/topicshift/adapters/controllers/spark_streaming.py",
        "if not began <= first <= reached:",
        "if False:",
        ("tests/unit/test_spark_streaming.py",),
    ),
    Mutation(
        "spark_streaming: a query is certified without its checkpoint",
        CORE + "spec/model.py",
        "return [*self.readers, *own]",
        "return [*self.readers]",
        ("tests/unit/test_acts_spark.py",),
    ),
    Mutation(
        "gate: a group that is ignored keeps it shut",
        CORE + "drain/gate.py",
        "for code in certificate.reasons if _is_an_obstacle(code)]",
        "for code in certificate.reasons]",
        ("tests/unit/test_gate.py",),
    ),
    Mutation(
        "kubernetes: a pod that ends is taken for one that has ended",
        CORE + "kubernetes/workload.py",
        'if (p.get("status") or {}).get("phase") not in _ENDED)',
        'if not p["metadata"].get("deletionTimestamp"))',
        ("tests/unit/test_kubernetes_controller.py",),
    ),
    Mutation(
        "kubernetes: what was there is written down after it was changed",
        "include/topicshift/adapters/controllers/kubernetes.py",
        "        if remembered != before:",
        "        if False:",
        ("tests/unit/test_kubernetes_controller.py",),
    ),
    Mutation(
        "kubernetes: an autoscaler is put back with another state than it had",
        CORE + "kubernetes/scalers.py",
        '        made["spec"]["behavior"] = deepcopy(before["behavior"])',
        "        pass",
        ("tests/unit/test_kubernetes_controller.py",),
    ),
    Mutation(
        "streams: a name alone makes one of a live group",
        CORE + "kafka/streams.py",
        'if info.kind != "classic" or info.assignor is not None:',
        "if False:",
        ("tests/unit/test_plan_checks.py",),
    ),
    Mutation(
        "coupled: what two members hold counts as joined",
        CORE + "kafka/several.py",
        'if info.state != "STABLE":',
        "if True:",
        ("tests/unit/test_plan_checks.py",),
    ),
    Mutation(
        "coupled: a topic that cannot be counted is passed over",
        CORE + "checks/coupled.py",
        "n in (None, source.partitions)",
        "n == source.partitions",
        ("tests/unit/test_plan_checks.py",),
    ),
    Mutation(
        "two roles: one setting for both topics is let through",
        CORE + "checks/two_roles.py",
        "if len(set(pointers)) < len(pointers):",
        "if False:",
        ("tests/unit/test_acts_two_roles.py",),
    ),
    Mutation(
        "order: groups are switched as they come",
        CORE + "engine/forward.py",
        "return [g for g in consumer.after if not record.done(Row.SWITCH_GROUP, g)]",
        "return []",
        ("tests/unit/test_acts_cutover.py",),
    ),
    Mutation(
        "flink: the savepoint of an earlier stop is taken for the one of this",
        CORE + "flink/deployment.py",
        "(kept is not None and first in kept.references)",
        "False",
        ("tests/unit/test_flink_deployments.py",),
    ),
    Mutation(
        "flink: a deployment that is about to be suspended is taken for one that runs",
        "include/topicshift/adapters/controllers/flink_deployments.py",
        'return self._state("unknown", on, f"its operator has not suspended it yet',
        'return self._state("running", on, f"its operator has not suspended it yet',
        ("tests/unit/test_flink_deployments.py",),
    ),
    Mutation(
        "flink: a job from SQL takes up its positions on the other topic",
        "include/topicshift/adapters/controllers/flink_sql.py",
        "told[LEAVES] = str(self.leaves(topic, snapshot)).lower()",
        'told[LEAVES] = "false"',
        ("tests/unit/test_flink_sql.py",),
    ),
    Mutation(
        "flink: a job from SQL is moved without a plan for the target",
        "include/topicshift/adapters/flink_gateway.py",
        "if _NOBODY_RUNS_IT not in said:",
        "if False:",
        ("tests/unit/test_flink_sql.py",),
    ),
    Mutation(
        "plan: a sink connector passes for any consumer",
        CORE + "checks/stored_offsets.py",
        'return group.removeprefix("connect-") if group.startswith("connect-") else None',
        "return None",
        ("tests/unit/test_plan_checks.py",),
    ),
    Mutation(
        "drain: an offset log of an unknown format is read as a known one",
        CORE + "drain/evidence.py",
        'if version not in ("v1", "v2") and re.fullmatch(r"v\\d+", version):',
        "if False:",
        ("tests/unit/test_drain_discovery.py",),
    ),
    Mutation(
        "plan: keys that nobody measured are no obstacle",
        CORE + "checks/keys.py",
        "        unknown=not excuse,\n",
        "        unknown=False,\n",
        ("tests/unit/cli/test_cli_plan.py",),
    ),
    Mutation(
        "abandoned: a freeze whose run has ended is left alone",
        "include/topicshift/core/engine/freeze.py",
        "if owner_alive is False:",
        "if False:",
        ("tests/unit/test_abandoned.py",),
    ),
    Mutation(
        "engine: acts are allowed after the budget",
        CORE + "engine/forward.py",
        "    if freeze is None or view.now < freeze.act_until:",
        "    if True:",
        ("tests/unit/test_engine_model.py", "tests/unit/test_acts_cutover.py"),
    ),
    Mutation(
        "engine: a target that cannot be read counts as empty",
        CORE + "engine/where.py",
        "view.target.used != 0 or isinstance(view.producers, Unknown)",
        "view.target.used or isinstance(view.producers, Unknown)",
        ("tests/unit/test_freeze.py",),
    ),
    Mutation(
        "engine: a resume does not shut out who acted before",
        "include/topicshift/acts/resume.py",
        "ctx.claim = ctx.journal.renew(ctx.claim,",
        "_ = (ctx.claim,",
        ("tests/unit/test_acts_cutover.py",),
    ),
    Mutation(
        "engine: the seat is not looked at before an effect",
        "include/topicshift/acts/context.py",
        "if self.seat is not None and self.clock.now() >=",
        "if False and self.clock.now() >=",
        ("tests/unit/test_acts_cutover.py",),
    ),
    Mutation(
        "engine: a group without offsets everywhere counts as switched",
        CORE + "engine/forward.py",
        'if fact.where.runs_on("target") and fact.unseeded == 0:',
        'if fact.where.runs_on("target"):',
        ("tests/unit/test_acts_cutover.py",),
    ),
    Mutation(
        "engine: a source that grew after its fence is no obstacle",
        CORE + "engine/frozen.py",
        "    if not fence.broken or finishing(view):",
        "    if True:",
        ("tests/unit/test_engine_model.py", "tests/unit/test_acts_cutover.py"),
    ),
    Mutation(
        "engine: an answer for something else counts",
        "include/topicshift/acts/questions.py",
        "if shown != about and shown != _plain(about):",
        "if False:",
        ("tests/unit/test_acts_people.py",),
    ),
    Mutation(
        "engine: a rollback ends without its groups",
        CORE + "engine/back.py",
        "        if not record.in_effect(Row.SWITCH_GROUP, consumer.group) and _reads_source(fact):",
        "        if True:",
        ("tests/unit/test_acts_back_free.py",),
    ),
    Mutation(
        "engine: a rollback waits for its groups without an end",
        CORE + "engine/back.py",
        "    if view.now - since < FOLLOWS:",
        "    if True:",
        ("tests/unit/test_acts_back_free.py",),
    ),
    Mutation(
        "engine: producers go back to a source that is shut for everybody",
        CORE + "engine/back.py",
        "    if _returned(view):\n        return None\n    until, source",
        "    if True:\n        return None\n    until, source",
        ("tests/unit/test_acts_back_free.py",),
    ),
    Mutation(
        "engine: a late broker holds producers up for ever",
        CORE + "engine/back.py",
        "    if until is not None and view.now >= until - lease_margin(",
        "    if False and until is not None and view.now >= until - lease_margin(",
        ("tests/unit/test_acts_back_free.py",),
    ),
    Mutation(
        "rollback: a group goes back without the offsets that expired",
        "include/topicshift/acts/groups.py",
        "    gone = _gone_on_source(ctx, group)",
        "    gone: dict[int, int] = {}",
        ("tests/unit/test_acts_back_free.py",),
    ),
    Mutation(
        "restored: nobody looks where groups are",
        "include/topicshift/acts/before.py",
        "    for state in _groups(ctx):\n        who",
        "    for state in ():\n        who",
        ("tests/unit/test_acts_back_free.py",),
    ),
    Mutation(
        "journal: the chain is not checked",
        CORE + "proof/audit.py",
        "if wanted != row.hash:",
        "if False:",
        ("tests/unit/test_audit.py",),
    ),
    Mutation(
        "bundle: a file that was added is no matter",
        CORE + "proof/bundle.py",
        "for name in sorted(found.keys() - listed.keys())]",
        "for name in ()]",
        ("tests/unit/cli/test_cli_bundle.py",),
    ),
    Mutation(
        "bundle: any signature will do",
        "include/topicshift/adapters/bundle.py",
        "    except InvalidSignature:\n        return False",
        "    except InvalidSignature:\n        return True",
        ("tests/unit/cli/test_cli_bundle.py",),
    ),
    Mutation(
        "bundle: evidence that is missing is a yes",
        "include/topicshift/commands/audit.py",
        "EXIT_UNKNOWN if missing else EXIT_OK",
        "EXIT_OK",
        ("tests/unit/cli/test_cli_bundle.py",),
    ),
    Mutation(
        "names: a terminal gets what a group is called",
        CORE + "text.py",
        "    return _UNSEEN.sub(lambda found: found[0].encode",
        "    return text or _UNSEEN.sub(lambda found: found[0].encode",
        ("tests/unit/test_names_fuzzed.py",),
    ),
    Mutation(
        "watch: what cannot be read ends a finding",
        CORE + "proof/watch.py",
        "ended = [] if blind else",
        "ended = [] if False else",
        ("tests/unit/test_watch.py",),
    ),
    Mutation(
        "watch: the deleted source is not looked for",
        "include/topicshift/acts/watch.py",
        "return [] if info is None else [risen",
        "return [] if True else [risen",
        ("tests/unit/test_watch.py",),
    ),
    Mutation(
        "watch: a DENY that still holds counts as lifted",
        "include/topicshift/acts/fence.py",
        "return lifted - held",
        "return lifted",
        ("tests/unit/test_watch.py",),
    ),
    Mutation(
        "watch: a DENY of a later migration counts as late",
        "include/topicshift/acts/watch.py",
        "if a.name not in theirs",
        "if True",
        ("tests/unit/test_watch.py",),
    ),
    Mutation(
        "retirement: a record that came since the decision is deleted with the source",
        "include/topicshift/acts/retire.py",
        "    if grown:\n",
        "    if False:\n",
        ("tests/unit/test_acts_retire.py",),
    ),
    Mutation(
        "retirement: the source is deleted by its name",
        "include/topicshift/acts/retire.py",
        "delete_topic(source, info.topic_id)",
        "delete_topic(source)",
        ("tests/unit/test_acts_retire.py",),
    ),
    Mutation(
        "rollback: the target is deleted by its name",
        "include/topicshift/acts/target.py",
        "delete_topic(seen.name, seen.topic_id)",
        "delete_topic(seen.name)",
        ("tests/unit/test_acts_target.py",),
    ),
    Mutation(
        "retirement: nothing is kept of the source",
        "include/topicshift/acts/retire.py",
        "ends = keep_last_look(ctx, info)",
        "ends: dict[int, int] = {}",
        ("tests/unit/test_watch.py",),
    ),
    Mutation(
        "status: a failure is said for ever",
        CORE + "engine/need.py",
        'return _last(events, "step_failed", _MOVED | {"step_finished"})',
        'return _last(events, "step_failed", frozenset())',
        ("tests/unit/test_need.py",),
    ),
    Mutation(
        "status: the end of a run is not told",
        CORE + "engine/need.py",
        "    return _last(events, RUN_ENDED, _MOVED)",
        "    return None",
        ("tests/unit/test_need.py",),
    ),
    Mutation(
        "status: what waits for a person is somewhere in the list",
        CORE + "engine/need.py",
        '{"person": 0, "itself": 1, "nobody": 2}[found["waits_on"]]',
        '{"person": 1, "itself": 0, "nobody": 2}[found["waits_on"]]',
        ("tests/unit/test_need.py",),
    ),
    Mutation(
        "rollback: a healthy run is to be failed first",
        "plugins/topicshift_airflow/operators/end.py",
        "            if decision.kind is Kind.STOP:\n",
        "            require_ended(row, context)\n            if decision.kind is Kind.STOP:\n",
        ("tests/unit/test_need.py",),
    ),
    Mutation(
        "impact: one of a topic that has grown is taken over",
        "include/topicshift/acts/measured.py",
        "return moved <= GROWN * sum(end - start for start, end in ranges.values())",
        "return True",
        ("tests/unit/test_measured.py",),
    ),
    Mutation(
        "report: an ending leaves none",
        "include/topicshift/acts/advance.py",
        "if other is None and decision.act in ENDINGS:",
        "if False:",
        ("tests/unit/test_run_report_endings.py",),
    ),
    Mutation(
        "report: the mark is not of what was shown",
        "include/topicshift/reporting/run_people.py",
        '"mark": mark_of(about) if about else "",',
        '"mark": mark_of(data) if about else "",',
        ("tests/unit/test_run_report_endings.py",),
    ),
    Mutation(
        "metrics: a lag that cannot be told is zero",
        CORE + "metrics.py",
        "        if known and group.lag is not None:\n            yield Sample(LAG, group.lag, labels)",
        "        if True:\n            yield Sample(LAG, group.lag or 0, labels)",
        ("tests/unit/test_metrics.py",),
    ),
    Mutation(
        "before and after: what cannot be read ends the migration",
        "include/topicshift/acts/health.py",
        '    except TopicshiftError as error:\n        ctx.log(f"{topic} was not looked at',
        '    except ZeroDivisionError as error:\n        ctx.log(f"{topic} was not looked at',
        ("tests/unit/test_health.py",),
    ),
    Mutation(
        "asset: a connection that cannot be read fails the switch",
        "plugins/topicshift_airflow/operators/switched.py",
        "except Exception as error:",
        "except ZeroDivisionError as error:",
        ("tests/unit/test_switched.py",),
    ),
    Mutation(
        "init: whoever may write is passed over in silence",
        CORE + "plan/draft.py",
        "        if principal in on_route:\n            continue",
        "        if principal in on_route or lines:\n            continue",
        ("tests/unit/test_draft.py",),
    ),
    Mutation(
        "init: what could not be read is not said",
        CORE + "plan/draft.py",
        '        yield f"{PARTS[part]}: {why}"',
        "        pass",
        ("tests/unit/test_draft.py",),
    ),
    Mutation(
        "health: a Flink job whose checkpoints fail now is told as before",
        CORE + "health.py",
        'worse if now.failing == then.failing else "worse" if now.failing else "better"',
        "worse",
        ("tests/unit/test_health.py",),
    ),
    Mutation(
        "lineage: a connection that cannot be read fails the switch",
        "plugins/topicshift_airflow/lineage.py",
        "except Exception as error:",
        "except ValueError as error:",
        ("tests/unit/test_lineage.py",),
    ),
    Mutation(
        "doctor: unknown is OK",
        CORE + "doctor.py",
        'else "unknown" if "unknown" in found or not found else "ok"',
        'else "ok"',
        ("tests/unit/test_doctor.py",),
    ),
    Mutation(
        "topic_doctor: green whatever it found",
        "plugins/topicshift_airflow/operators/doctor.py",
        'if overall(rows) != "ok":',
        'if overall(rows) == "not_ok":',
        ("tests/unit/test_doctor_dag.py",),
    ),
    Mutation(
        "assessment: green whatever it found",
        "plugins/topicshift_airflow/operators/assess.py",
        'if found and found.get("ok") is True:',
        "if found:",
        ("tests/unit/test_assessment.py",),
    ),
)


def copy_tree(into: Path) -> None:
    """The tracked files as they are in the work tree; what set-up made is linked."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in done.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, into / name)
    for made in (".venv", "build"):
        (into / made).symlink_to(ROOT / made)


def run(tree: Path, tests: tuple[str, ...]) -> tuple[bool, str]:
    """Whether the tests pass in this tree, and their last line."""
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(tree / folder) for folder in ("include", "plugins", "spark_jobs", ".")),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, timeout=900, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return done.returncode == 0, lines[0] if lines else (done.stdout.splitlines() or [done.stderr[-200:]])[-1]


def main() -> int:
    """Run the mutations and print what each turned red."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only mutations whose name holds one of these words")
    parser.add_argument("--with-broker", action="store_true", help="also those that need a real broker")
    args = parser.parse_args()
    chosen = [
        m
        for m in MUTATIONS
        if (args.with_broker or not m.broker) and (not args.names or any(n in m.name for n in args.names))
    ]
    survived = []
    with tempfile.TemporaryDirectory(prefix="topicshift-mutations-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        sound, last = run(tree, tuple(sorted({t for m in chosen for t in m.tests})))
        print(f"unbroken: {last}")
        if not sound:
            return 1
        for mutation in chosen:
            path = tree / mutation.file
            text = path.read_text()
            if mutation.old not in text:
                print(f"GONE     {mutation.name}: {mutation.file} no longer holds the text to break")
                survived.append(mutation)
                continue
            path.write_text(text.replace(mutation.old, mutation.new, 1))
            passed, last = run(tree, mutation.tests)
            path.write_text(text)
            print(f"{'SURVIVED' if passed else 'red     '} {mutation.name}: {last}")
            if passed:
                survived.append(mutation)
    print(f"{len(chosen) - len(survived)} of {len(chosen)} mutations turned a test red")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
