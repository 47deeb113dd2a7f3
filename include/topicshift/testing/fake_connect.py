"""A Kafka Connect worker in memory, asked as :class:`topicshift.adapters.rest.Ask` asks a real one.

Held against the real one by the contract that ``tests/integration/test_connect_real.py`` runs on both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from topicshift.core.errors import NotFound, Refused, Transient
from topicshift.core.kafka import mirror
from topicshift.core.kafka.connect import topics_of

Log = Mapping[int, tuple[int, int]]
"""Log start and end of each partition of a topic."""


@dataclass
class FakeConnector:
    """One connector. ``lingers``: its tasks stay listed after a stop; ``fails``: its tasks fail when they start."""

    name: str
    config: dict[str, str]
    state: str = "RUNNING"
    tasks: dict[int, str] = field(default_factory=dict)
    lingers: bool = False
    fails: bool = False

    @property
    def sink(self) -> bool:
        """Whether it is a sink, whose group reads topics."""
        return "topics" in self.config and not self.mirrors

    @property
    def mirrors(self) -> bool:
        """Whether it is MirrorMaker 2's source connector."""
        return mirror.kind_of(self.config) == "source"

    @property
    def reads(self) -> list[str]:
        """The topics that its running tasks read."""
        running = "RUNNING" in self.tasks.values()
        return [t.strip() for t in self.config.get("topics", "").split(",")] if running else []


class FakeConnectWorker:
    """Connectors by name. ``on_call`` hears of each request before it is answered, and of each effect after it.

    ``on_change`` hears of each connector whose tasks may have changed. ``busy``: so many requests that change something
    or read settings are answered as by workers that rebalance (HTTP 409, and 500 to who reads).

    A connector of MirrorMaker 2 copies to the end of the topics that it names whenever the worker is asked, but while
    ``held``; ``logs`` gives these logs. ``offsets``: connector to the last offset copied, by alias, topic and
    partition. ``copied``: the ranges of each connector, topic and partition that it copied, in their order.
    """

    def __init__(self, on_change: Callable[[FakeConnector], None] = lambda _: None, cluster_id: str = "") -> None:
        self.connectors: dict[str, FakeConnector] = {}
        self.on_change, self.cluster_id = on_change, cluster_id
        self.on_call: Callable[[str], None] = lambda _: None
        self.busy = 0
        self.version = "4.3.1"
        self.logs: Callable[[str], Log] = lambda _: {}
        self.offsets: dict[str, dict[tuple[str, str, int], int]] = defaultdict(dict)
        self.copied: dict[tuple[str, str, int], list[tuple[int, int]]] = defaultdict(list)
        self.held = False

    def create(self, name: str, config: Mapping[str, str]) -> FakeConnector:
        """A connector that runs."""
        made = self.connectors[name] = FakeConnector(name, {**config, "name": name})
        self.run(made)
        return made

    def run(self, one: FakeConnector) -> None:
        """Its tasks start."""
        count = int(one.config.get("tasks.max", "1"))
        one.state, one.tasks = "RUNNING", dict.fromkeys(range(count), "FAILED" if one.fails else "RUNNING")
        self.on_change(one)

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        """Answer one request. Raises the errors that a real worker's answers become."""
        self.on_call(f"{method} {path}")
        if self.busy and (method != "GET" or path.endswith("/config")):
            self.busy -= 1
            code = 500 if method == "GET" else 409
            raise Transient(f"{method} {path} cannot be done now (HTTP {code}). It is asked again.")
        parts = [unquote(p) for p in urlsplit(path).path.strip("/").split("/") if p]
        if not parts:
            return {"version": self.version, "commit": "0", "kafka_cluster_id": self.cluster_id}
        self.work()
        if parts[0] == "connector-plugins":
            return self._validated(body)
        if len(parts) == 1:
            return {name: {"info": {"name": name, "config": dict(c.config)}} for name, c in self.connectors.items()}
        one = self.connectors.get(parts[1])
        if one is None:
            raise NotFound(f"{method} {path}: there is no such thing (HTTP 404).")
        answer = getattr(self, f"_{method.lower()}_{parts[2] if len(parts) > 2 else 'connector'}")(one, body)
        if method != "GET":
            self.on_change(one)
            self.on_call(f"{method} {path} answered")
        return answer

    def work(self) -> None:
        """Mirrors copy what is there; one whose offset is not in the log begins at its start, as the real ones do."""
        for one in self.connectors.values():
            if not one.mirrors or self.held or "RUNNING" not in one.tasks.values():
                continue
            at, alias = self.offsets[one.name], one.config["source.cluster.alias"]
            for topic in topics_of(one.config["topics"]):
                for partition, (start, end) in self.logs(topic).items():
                    first = at.get((alias, topic, partition), -1) + 1
                    if not start <= first <= end:
                        first = start
                    if first < end:
                        self.copied[one.name, topic, partition].append((first, end))
                        at[alias, topic, partition] = end - 1

    def _validated(self, config: Any) -> Any:
        errors = [] if str(config.get("tasks.max", "1")).isdigit() else ["no number"]
        return {
            "error_count": len(errors),
            "configs": [{"value": {"name": "tasks.max", "errors": errors}}],
        }

    def _get_status(self, one: FakeConnector, body: Any) -> Any:
        def part(state: str) -> dict[str, str]:
            return {"state": state, "worker_id": "w"} | ({"trace": "a.B: hush\n\tat"} if state == "FAILED" else {})

        return {
            "name": one.name,
            "connector": part(one.state),
            "tasks": [{"id": i, **part(state)} for i, state in one.tasks.items()],
            "type": "sink" if one.sink else "source",
        }

    def _get_config(self, one: FakeConnector, body: Any) -> Any:
        return dict(one.config)

    def _put_config(self, one: FakeConnector, body: Any) -> Any:
        if not str(body.get("tasks.max", "1")).isdigit():
            raise Refused("PUT config was refused (HTTP 400).")
        one.config = {**body, "name": one.name}
        if one.state == "RUNNING":
            self.run(one)
        return {"name": one.name, "config": dict(one.config), "tasks": []}

    def _put_stop(self, one: FakeConnector, body: Any) -> None:
        one.state = "STOPPED"
        if not one.lingers:
            one.tasks = {}

    def _put_pause(self, one: FakeConnector, body: Any) -> None:
        one.state, one.tasks = "PAUSED", dict.fromkeys(one.tasks, "PAUSED")

    def _put_resume(self, one: FakeConnector, body: Any) -> None:
        self.run(one)

    def _post_restart(self, one: FakeConnector, body: Any) -> None:
        if one.state == "FAILED" or "FAILED" in one.tasks.values():
            self.run(one)

    def _get_offsets(self, one: FakeConnector, body: Any) -> Any:
        return {
            "offsets": [
                {"partition": {"cluster": alias, "topic": topic, "partition": p}, "offset": {"offset": at}}
                for (alias, topic, p), at in self.offsets[one.name].items()
            ]
        }

    def _patch_offsets(self, one: FakeConnector, body: Any) -> Any:
        if one.state != "STOPPED" or one.tasks:
            raise Refused("PATCH offsets was refused (HTTP 400).")
        for entry in body["offsets"] if one.mirrors else ():
            where, at = entry["partition"], entry["offset"]
            key = where["cluster"], where["topic"], where["partition"]
            self.offsets[one.name].pop(key, None)
            if at is not None:
                self.offsets[one.name][key] = at["offset"]
        return {"message": "The offsets for this connector have been altered successfully"}
