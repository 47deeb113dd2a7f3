"""A batch that is planned but not committed in the checkpoint has not been read."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    import json

    topic = kit.topic(2)
    kit.produce(topic, 4, 0)
    folder = kit.folder / "checkpoint"
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    for batch, offset in enumerate((2, 4)):
        ends = json.dumps({topic: {"0": offset, "1": 0}})
        (folder / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{ends}')
    (folder / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    return Scenario(topic, checkpoints={"enrich": str(folder)})


CASE = Case(
    build,
    "not_drained",
    3,
    rows={("enrich", 0): ("unread", 2), ("enrich", 1): ("at_end", 0)},
    kind={"enrich": "spark_checkpoint"},
)
