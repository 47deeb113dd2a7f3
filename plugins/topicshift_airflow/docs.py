"""What Airflow shows on each DAG, task group and task. What a step does and proves comes from the engine's own table."""

from __future__ import annotations

from topicshift.core.engine.words import ORDER, STEPS, Step
from topicshift.core.spec.cutover import Cutover
from topicshift_airflow.links import start_page

_HEAD = """\
### Move a keyed topic to another number of partitions

Adding partitions in place breaks the order of every key. This DAG moves the topic instead, step by step, and proves
each step before it takes the next. Its order is `{order}`: {how}

| step | what it does | proof it waits for | way back |
|---|---|---|---|
{rows}

If anything fails while producers stand still, they resume on the source: the failed task sees to it, then
**resume_on_source**. A run that is marked or deleted by hand runs no further task; `topic_resume_on_source` watches over
it. If all of Airflow dies, the lease in the route lets producers go on by themselves at the end of the freeze budget.
"""

_HOW = {
    Cutover.DRAIN_FIRST: "producers wait until every group has drained the source. The other order is "
    "`topic_migration_producers_first`.",
    Cutover.PRODUCERS_FIRST: "producers go on with the target right after the fence, and each group follows when it has "
    "drained the source. The other order is `topic_migration`.",
}


def migration_doc(cutover: Cutover) -> str:
    """The page of a migration's DAG."""
    rows = [
        f"| **{step.value}** | {doc.what} | {doc.proof} | {doc.way_back} |"
        for step in ORDER[cutover]
        for doc in [STEPS[step]]
    ]
    return _HEAD.format(order=cutover.value, how=_HOW[cutover], rows="\n".join(rows))


def tooltip(step: Step) -> str:
    """What a task group's name is explained by."""
    what = STEPS[step].what
    return what[0].upper() + what[1:]


def task_doc(task_id: str) -> str:
    """The page of a task: what it does itself, then what its step does and proves."""
    group = task_id.partition(".")[0]
    own = TASKS[task_id]
    if group not in {step.value for step in Step} or "." not in task_id:
        return own
    doc = STEPS[Step(group)]
    return f"{own}\n\n**{group}**: {doc.what}. Proof: {doc.proof}. Way back: {doc.way_back}."


ASSESSMENT_DOC = """\
### What would a migration do? (read-only)

Takes stock of the cluster, runs every check, and works out in Spark which keys would move, which partitions would be
hot, and how many partitions to take. Nothing is changed, nobody is stopped, and it may run at any time.

Fill in the source alone, and a first spec is drafted from what the cluster shows (`draft.yaml`, as `topicshift init`
writes it) and assessed. The last task, `nothing_blocks`, is red where a migration would be refused; the report is there
all the same.
"""

WHICH_MIGRATION = (
    f"Its id, or the name of its source or target topic. On the page [Topic migrations]({start_page()}) you choose it "
    "instead, and its buttons fill this in."
)
"""Help of the form's field for a migration."""

ROLLBACK_DOC = """\
### Go back to the source

The type of rollback is computed live, shown, and accepted by a person before anything is done; if it has changed by
then, it is another question.

- `free`: nothing was written to the target. Producers go back, then groups, the fence is lifted, the retention restored, and
  the empty target deleted once each group reads the source.
- `drain_back`: the target holds records, and every group reads it. The protocol runs with source and target exchanged:
  gate, freeze, fence of the target, drain, verification, then producers and groups on the source, in the order of the
  migration. Groups resume at the offsets of their drain certificates. The target keeps its records and is not deleted. If
  the freeze budget is used up, everybody goes on with the target, and the rollback is called off.
- `forward_only`: the run ends here and says why.

At the end configs, ACLs and commits of the source are compared with what was captured before the freeze, and what is not
as it was is named.
"""

RESUME_DOC = """\
### Producers resume on the source where nobody ends a freeze any more

A migration that fails inside its freeze lets producers resume by itself. A run that is marked as failed or as success
by hand, or deleted, runs no further task. So each migration starts a run of this DAG before its freeze, which watches
over it in the triggerer, looks every two seconds, and ends with the freeze. Every 15 minutes another run looks for
freezes that nobody watches over.

Producers resume where the run has ended, or where the lease has been over for a minute and nobody was pointed to the
target yet. The migration stays with its run, which can be cleared to go on, or rolled back with `topic_rollback`.

A rehearsal whose run has ended before it did is closed every 15 minutes, and its shadow is deleted.
"""

QUESTION_DAG_DOC = """\
### One question of a migration, asked anew

Airflow keeps the first text that a task asks with. When what is asked about has changed meanwhile (another plan, another
certificate), the migration starts a run of this DAG, which shows the question as it is now. The answer to the earlier
text counts for nothing.
"""

CONTROL_DOC = """\
### A person's order to one migration

The same as the commands `topicshift pause`, `postpone`, `resume-on-source`, `abort`, `replay` and `close`. The task says first what
the order would do; where it cannot, it fails with the reason, and nothing is changed. *Only say* ends there.

| order | what it does |
|---|---|
| *pause* | Nothing new is begun until *go on*. Refused while producers stand still. |
| *postpone* | The freeze does not begin before a time, or before the next window. |
| *resume on source* | Ends a freeze; producers go on with the source. |
| *abort* | Ends the migration in the way that holds now; once records are in the target it says which ways are left. |
| *replay* | Writes records that came to the source too late to the target, once every group is released. *Only say* lists them. |
| *close* | Gives both topics free, moves nobody, and names what is left to do by hand (also in the task's return value). |
"""

DOCTOR_DOC = """\
### Is this installation fit for a migration?

The checks of `topicshift doctor`, made by a worker of this Airflow: one task an area. A task is red where something is not OK or
could not be told, and its log ends with each of these and what to do. It writes one probe file into the evidence store, and changes
nothing else.

What it sees is what one worker sees: its settings, its jars, its parse of the DAG files. Run `topicshift doctor` on the scheduler's
machine for what the scheduler has.
"""

RETIREMENT_DOC = f"""\
### Delete the source of a finished migration

Runs daily and by hand: {STEPS[Step.RETIRE].what}. A source is deleted only when {STEPS[Step.RETIRE].proof}. A person says
yes before it, unless the spec wants none. This cannot be undone.
"""

WATCH_DOC = """\
### Watch the sources of finished migrations

Every hour, read-only. Until a source is retired: whether somebody writes to it, a group reads it again, a commit was set back, or the
topic was deleted or made anew. Commits that the brokers forget are told and no fault: the drain certificate keeps them. For 30 days
after the deletion: whether the topic is there again, and who that may have been, as well as Kafka allows. A DENY that the migration
had lifted and that is in force again, since a request took effect late, is named with the command that lifts it; of one that was
rolled back or has failed for a day. A new finding is an event
in the audit trail, and stands in `topicshift status MIGRATION` until it is over; the task is red while somebody has to see to it.
"""

TASKS = {
    "plan.read_spec": "Reads the spec from the form or the file, checks it, and locks source and target for this run. "
    "A second run for the same topic is refused here, with the owner's name.",
    "plan.check": "Takes stock of the cluster and runs every check that needs no Spark. Errors end the run here.",
    "plan.key_rehash_impact": "Spark reads the source and works out which keys move, what will be hot and which rule "
    "put the keys where they are.",
    "plan.decide": "Writes the final plan, with the impact in it, and fixes its hash.",
    "approve.plan": "A person reads the plan and accepts exactly this one. With `approvals.plan: auto` the spec has. A "
    "plan that has changed since is made anew and asked about again.",
    "create_target.create": "Creates the target as planned. Looks first; a target of another shape is refused.",
    "verify_drain.drain_verification": "Spark, armed: started before the fence, it says ready and waits, so that no JVM "
    "has to start while producers stand still. Then it reads what every group has left, read_committed.",
    "stop_producers.transactions": "Looks for transactions on the source that stand still, while nobody is stopped yet. "
    "Waits, without a worker, up to their time-outs; one that is still open then hangs and is offered to a person to "
    "abort. Nothing is aborted without a yes.",
    "stop_producers.ready": "The gate before the freeze: waits, without a worker, until the drain would fit into the "
    "freeze budget, every participant answers, and the armed verifier says ready. It says what it waits for.",
    "stop_producers.go": "A person says go before anybody is stopped, knowing the predicted freeze, the budget, who would be "
    "denied, and until when the answer holds. With `approvals.freeze: auto` the spec has. The gate is looked at again "
    "after the answer; where what was shown has changed, the new question looks new.",
    "stop_producers.fence": "The freeze begins here. Goes on through drain, verification and switch where nothing has to "
    "be waited or asked for; the tasks after it then find their step done, and show it.",
    "drain.certificate": "Takes the drain certificate, or waits for it without a worker and says who is late.",
    "verify_drain.confirm": "Takes the answer of the armed verifier; where that has ended, this task reads by itself.",
    "switch_producers.switch": "Points every producer to the target after a last look at the source. With "
    "`approvals.certificate: required` a person accepts this certificate first, while producers stand still.",
    "switch_producers.by_hand": "Asks for the producers that a person starts. Sees that every producer is on the target, "
    "and ends the freeze.",
    "switch_consumers.switch": "One for each group: seeds its offsets on the target at the log start, releases it, and "
    "sees it read there.",
    "verify.order_proof": "Spark reads both topics: counts, order per key, one partition per key, nothing crossed.",
    "verify.report": "Takes the proof (and makes it anew where a late record came, or was replayed, after it), closes the "
    "migration, writes report.html and the audit trail.",
    "resume_on_source": "Runs only when a task of the freeze has failed: producers resume on the source, the fence is "
    "lifted. Where the target may hold records already it changes nothing and calls a person.",
    "watch": "Watches over one migration until its freeze is over, or looks for abandoned freezes; ends those on behalf "
    "of their runs. Where the target may hold records already it changes nothing, fails, and so calls a person.",
    "answer": "Asks the question, and writes the answer down for exactly what it was about.",
    "control.give_order": "Says what the order would do, or why it cannot; then gives it. Every task of the migration and "
    "every terminal obeys it, for it is a row of the journal.",
    "rollback.observe": "Says which type of rollback holds right now. `forward_only` ends the run here, unchanged.",
    "rollback.roll_back": "Asks a person for exactly this type of rollback, then puts producers and groups back on the source, lifts the fence, restores the retention and "
    "deletes the empty target; with records in it, the target is fenced and drained first.",
    "find_watched": "Lists the finished migrations whose source is watched: until 30 days after its deletion, or until "
    "another migration has the topic.",
    "look": "Looks at one source and writes down what is new. Changes nothing on the cluster.",
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
    "assess.nothing_blocks": "Red where a migration would be refused, with every finding that is in the way.",
    "doctor.airflow": "The DAGs: known, unpaused, and parsed by this worker; the plugin; settings that lengthen a freeze.",
    "doctor.connections": "The Kafka connection of the form is there; the others are, or what is done without them.",
    "doctor.kafka": "The brokers answer, with the rights that a migration needs on the cluster and the topics of the route.",
    "doctor.journal": "The journal can be read, and is none of one machine where tasks run on several.",
    "doctor.evidence": "The evidence store takes a probe file and gives it back.",
    "doctor.spark": "Jars of the Kafka connector, jobs, spark-submit and Java.",
}
"""What each task does itself, in a line or two."""
