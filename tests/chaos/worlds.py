"""On what, and by whom, a migration is driven; and which faults may strike it there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.airflow import AIRFLOW_CLASSES, AirflowCluster, AirflowPart
from tests.chaos.faults import CLASSES, Class
from tests.chaos.part import Part
from tests.chaos.parts import Cluster

ORDERS = ("drain_first", "producers_first")

ALL_CLASSES = {**CLASSES, **AIRFLOW_CLASSES}
"""Every class of faults by its name."""


@dataclass(frozen=True)
class World:
    """``text``: what it is, for the report."""

    name: str
    text: str
    cluster: Callable[[Path], Cluster]
    part: type[Part]

    def classes(self) -> dict[str, Class]:
        """The classes of faults that may strike in it."""
        return {name: c for name, c in ALL_CLASSES.items() if not c.worlds or self.name in c.worlds}


WORLDS = {
    w.name: w
    for w in (
        World("one", "two processes of `topicshift advance`, one broker", Cluster, Part),
        World(
            "three",
            "two processes of `topicshift advance`, three brokers",
            lambda folder: Cluster(folder, brokers=3),
            Part,
        ),
        World(
            "executors",
            "two processes of `topicshift advance`, one broker, Spark's executor apart from its driver",
            lambda folder: Cluster(folder, executors=True),
            Part,
        ),
        World("airflow", "a DAG run, one broker", AirflowCluster, AirflowPart),
    )
}

_TURNS = ("one", "three", "executors", "airflow", "one")
"""As many as no order of the cut-over divides, so that each world has both."""


def weighed(counts: Mapping[str, int]) -> dict[str, float]:
    """How often each class has struck, less by as much as it may strike in few migrations only."""
    worlds = {name: c.worlds or tuple(WORLDS) for name, c in ALL_CLASSES.items()}
    return {name: n * sum(turn in worlds[name] for turn in _TURNS) / len(_TURNS) for name, n in counts.items()}


def world_of(number: int) -> World:
    """The world of the part of this number."""
    return WORLDS[_TURNS[number % len(_TURNS)]]


def order_of(number: int) -> str:
    """The order of the cut-over of the part of this number."""
    return ORDERS[number % 2]
