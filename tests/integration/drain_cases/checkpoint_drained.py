"""A checkpoint whose last finished batch ends at the end has read everything."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    import json

    topic = kit.topic(2)
    kit.transaction(topic, 4, partition=0)
    folder = kit.folder / "checkpoint"
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    ends = json.dumps({topic: {"0": 4, "1": 0}})
    (folder / "offsets" / "7").write_text(f'v1\n{{"batchWatermarkMs":0}}\n{ends}')
    (folder / "commits" / "7").write_text('v1\n{"nextBatchWatermarkMs":0}')
    return Scenario(topic, checkpoints={"enrich": str(folder)})


CASE = Case(build, "drained", 0, rows={("enrich", 0): ("nothing_readable", 0), ("enrich", 1): ("at_end", 0)})
