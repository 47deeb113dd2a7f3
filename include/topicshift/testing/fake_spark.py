"""A Structured Streaming query in memory, with a real checkpoint folder, moved as its hook moves a real one.

Held against a real query by the contract that ``tests/integration/test_spark_streaming_real.py`` runs on both.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from topicshift.adapters.controllers.command import NOT_NOW
from topicshift.adapters.controllers.hooks import Answer

Ends = Callable[[str], Mapping[int, int]]
"""The end offset of every partition of a topic."""


class FakeQuery:
    """One query. It reads to the end whenever it is looked at.

    ``read``: the ranges of each topic and partition that it has processed, in their order. ``deaf``: moments that are
    answered with 0 and do nothing; ``failing``: moments that fail; ``slow``: looks that pass before a stop takes
    effect. ``on_call`` hears of each moment before it, and of each effect after it.
    """

    def __init__(self, ends: Ends, topic: str, checkpoint: str, starting_offsets: str = "", log: str = "v1") -> None:
        self.ends, self.log = ends, log
        self.topic, self.checkpoint, self.starting_offsets = topic, checkpoint, starting_offsets
        self.running = False
        self.read: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        self.deaf: set[str] = set()
        self.failing: dict[str, str] = {}
        self.slow, self._left = 0, -1
        self.on_call: Callable[[str], None] = lambda _: None

    def fields(self) -> dict[str, Any]:
        """Everything that a migration may have changed of it."""
        return {"topic": self.topic, "checkpoint": self.checkpoint, "running": self.running}

    def __call__(self, name: str, moment: str, told: Mapping[str, str], timeout_s: float) -> Answer:
        """Its hook."""
        self.on_call(moment)
        if moment in self.failing:
            return Answer(1, err=self.failing[moment])
        if moment in self.deaf:
            return Answer(0)
        answer = self._do(moment, told)
        if moment in ("stop", "point", "start"):
            self.on_call(f"{moment} done")
        return answer

    def _do(self, moment: str, told: Mapping[str, str]) -> Answer:
        if moment == "observe":
            return self._observe()
        if moment == "stop" and self.running and self._left < 0:
            self._left = self.slow
            self._settle()
        elif moment == "point":
            if self.running:
                return Answer(NOT_NOW)
            self.topic, self.checkpoint = told["TOPICSHIFT_TOPIC"], told["TOPICSHIFT_CHECKPOINT"]
            self.starting_offsets = told["TOPICSHIFT_STARTING_OFFSETS"]
        elif moment == "start":
            self.running, self._left = True, -1
            self.work()
        return Answer(0)

    def _observe(self) -> Answer:
        self._settle()
        if self.running:
            self.work()
            return Answer(0, out=json.dumps({"status": "running", "topic": self.topic}))
        return Answer(0, out='{"status": "stopped"}')

    def _settle(self) -> None:
        if self._left > 0:
            self._left -= 1
        elif self._left == 0:
            self.running, self._left = False, -1

    # --------------------------------------------------------------------------------------------- checkpoint

    def work(self) -> None:
        """Process what is there, as one batch; the first one is made even of nothing."""
        if not self.running:
            return
        at = self._at()
        ends = dict(self.ends(self.topic))
        first = at is None
        begin = self._begin(ends) if at is None else at
        if not first and begin == ends:
            return
        for partition, end in ends.items():
            if end > begin.get(partition, 0):
                self.read[self.topic, partition].append((begin.get(partition, 0), end))
        number = max(self._batches(), default=-1) + 1
        for folder, text in (("offsets", self._offsets(ends)), ("commits", 'v1\n{"nextBatchWatermarkMs":0}')):
            self._write(f"{folder}/{number}", text)

    def _begin(self, ends: Mapping[int, int]) -> dict[int, int]:
        begin = dict(ends)  # without anything said, a query begins at the latest
        if self.starting_offsets:
            begin = {int(p): int(o) for p, o in json.loads(self.starting_offsets)[self.topic].items()}
        self._write("sources/0/0", f"\0v1\n{json.dumps({self.topic: {str(p): o for p, o in begin.items()}})}")
        return begin

    def _offsets(self, ends: Mapping[int, int]) -> str:
        body = json.dumps({self.topic: {str(p): o for p, o in ends.items()}})
        return f'{self.log}\n{{"batchWatermarkMs":0}}\n{"0:" if self.log == "v2" else ""}{body}'

    def _at(self) -> dict[int, int] | None:
        numbers = self._batches()
        if not numbers:
            return None
        line = (Path(self.checkpoint) / f"offsets/{max(numbers)}").read_text().splitlines()[2]
        found = json.loads(line.removeprefix("0:"))
        return {int(p): int(o) for p, o in found[self.topic].items()}

    def _batches(self) -> set[int]:
        folder = Path(self.checkpoint) / "commits"
        return {int(p.name) for p in folder.iterdir()} if folder.exists() else set()

    def _write(self, name: str, text: str) -> None:
        file = Path(self.checkpoint) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
