"""What Airflow shows on each DAG and task: what it does, the proof it waits for, the way back."""

from __future__ import annotations

MIGRATION_DOC = """\
### Move a keyed topic to another number of partitions

Adding partitions in place breaks the order of every key. This DAG moves the topic instead, step by step, and proves
each step before it takes the next.

| step | proof it waits for | way back |
|---|---|---|
| **plan** | no finding of level error, nothing unknown | nothing to undo |
| **approve** | a person accepts exactly this plan, by its hash | reject |
| **create_target** | the topic as described equals the plan | deleted again while it is empty |
| **stop_producers** | every producer says stopped, the ends stand still, no open transaction | producers go on with the source |
| **drain** | a drain certificate for every group and partition | producers go on with the source |
| **verify_drain** | Spark finds nothing left to read; nothing was written since the fence | producers go on with the source |
| **switch_producers** | each producer runs on the target, none on the source | free until the first record in the target |
| **switch_consumers** | each group has its offsets on the target and reads there | see `topic_rollback` |
| **verify** | no record lost, no key crossed, duplicates counted | - |

With `cutover: producers_first` the groups of the same names inside **producers_first** run instead: producers go on
with the target right after the fence, and each group follows when it has drained the source.

If anything fails while producers stand still, **give_back** puts them back on the source at once; and if Airflow
itself dies, the lease in the route lets them go on by themselves at the end of the freeze budget.
"""

ASSESSMENT_DOC = """\
### What would a migration do? (read-only)

Takes stock of the cluster, runs every check, and works out in Spark which keys would move, which partitions would be
hot, and how many partitions to take. Nothing is changed, nobody is stopped, and it may run at any time.
"""

ROLLBACK_DOC = """\
### Go back to the source

Only the `free` kind: as long as nothing was written to the target, everything is put back as it was: producers and
groups on the source, write fence lifted, retention restored, the empty target deleted. If the target holds a record
already, nothing is changed and the run says what is needed instead.
"""

GIVE_BACK_DOC = """\
### End the freezes that nobody ends any more

A migration that fails inside its freeze gives producers back by its own task `give_back`. A run that is marked as
failed or as success by hand, or deleted, runs no further task. This DAG looks every minute, and does for such a run what
its `give_back` would have done: producers on the source, write fence lifted. The migration stays with its run, which can
be cleared to go on, or rolled back with `topic_rollback`.
"""

RETIREMENT_DOC = """\
### Delete the source of a finished migration

Runs daily and by hand. A source is deleted only after its retention and `retire.after` have passed, while nobody reads
or writes it, while it is still the very topic that was migrated (same topic id), after a scream test (everybody is
denied for a while, so that a forgotten client shows), and after a person said yes. This cannot be undone.
"""

TASKS = {
    "plan.read_spec": "Reads the spec from the form or the file, checks it, and locks source and target for this run. "
    "A second run for the same topic is refused here, with the owner's name.",
    "plan.check": "Takes stock of the cluster and runs every check that needs no Spark. Errors end the run here.",
    "plan.key_rehash_impact": "Spark reads the source and works out which keys move, what will be hot and which rule "
    "put the keys where they are.",
    "plan.decide": "Writes the final plan, with the impact in it, and fixes its hash.",
    "approve.plan": "A person reads the plan and accepts exactly this one. With `approvals.plan: auto` the spec has.",
    "create_target.create": "Creates the target as planned: topic, the configs that were set on the source, ACLs. "
    "Observes first; a target that exists in another shape is refused.",
    "verify_drain.drain_verification": "Spark, armed: it is started before the fence, says ready, and waits, so that "
    "no JVM has to start while producers stand still. Then it reads what every group has left, read_committed.",
    "stop_producers.transactions": "Looks for transactions on the source that stand still, while nobody is stopped yet. "
    "Waits, without a worker, up to their time-outs; one that is still open then hangs and is offered to a person to "
    "abort. Nothing is aborted without a yes.",
    "stop_producers.ready": "The gate before the freeze: waits, without a worker, until the drain would fit into the "
    "freeze budget, every participant answers, and the armed verifier says ready. It says what it waits for.",
    "stop_producers.fence": "Stops every producer, denies writes to the source, and proves by watching that nothing is "
    "written any more. The freeze begins here.",
    "drain.certificate": "Waits, without a worker, until every group has read every partition up to the fence.",
    "verify_drain.confirm": "Takes the answer of the armed verifier and compares the source with the fence once more.",
    "switch_producers.switch": "After a last look at the source, points every producer to the target and starts it. "
    "The freeze ends here.",
    "switch_producers.by_hand": "Asks for the producers that a person starts. Where there are none it sees that "
    "the switch is done, and fails where it is not, so that producers are given back.",
    "switch_consumers.switch": "One per group: seeds its offsets on the target at the log start, releases it, and "
    "sees it read there.",
    "verify.order_proof": "Spark reads both topics: counts, order per key, one partition per key, nothing crossed.",
    "verify.report": "Checks the proof, writes report.html and the audit trail, and closes the migration.",
    "give_back": "Runs only when a step failed while producers stood still: puts them back on the source, lifts the "
    "fence, and says so. If the target may hold records already, it changes nothing and calls a person.",
    "abandoned.give_back": "Skipped where no freeze is left behind. Else puts producers back on the source and lifts the "
    "fence. Where the target may hold records already, it changes nothing, fails, and so calls a person.",
    "rollback.observe": "Says which type of rollback holds right now. Anything but `free` ends the run here, unchanged.",
    "rollback.roll_back": "Puts producers and groups back on the source, lifts the fence, restores the retention and "
    "deletes the empty target. The target is looked at again while producers stand still.",
    "retire.find_due": "Lists the finished migrations whose source still exists.",
    "retire.check": "Looks for anything that speaks against deleting the source: readers, writers, another topic id, "
    "retention not passed, anything that cannot be read.",
    "retire.approve": "A person says that this very topic may be deleted. Silence is no answer.",
    "retire.scream_test": "Denies reads and writes for everybody for a while, so that a forgotten client shows.",
    "retire.delete": "Looks once more, then deletes the source. Forward only.",
    "retire.let_in_again": "Runs only when something failed: removes the DENY of the scream test, and nothing else.",
    "retire.finished": "Does nothing; makes the run red when the retirement of any migration has failed.",
    "assess.check": "Takes stock of the cluster and runs every check that needs no Spark. Changes nothing.",
    "assess.report": "The plan with the impact in it, as plan.json and impact.html, and the findings in the log.",
}
"""Docs by task, without the prefix of the other cut-over order."""
