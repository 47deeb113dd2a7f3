"""The one world of :mod:`tests.unit.world` over a real broker: applications are fakes, Kafka is not."""

from __future__ import annotations

import time
from typing import Any

from tests.unit.world import AUTO, Applications, Fuse, World, WorldJournal, said

from lab.broker import EmbeddedBroker
from topicshift.adapters.clock import SystemClock
from topicshift.adapters.executor import ThreadExecutor
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.adapters.kafka.reader import KafkaDrainReader
from topicshift.adapters.kafka.rehearse import KafkaRehearser
from topicshift.adapters.kafka.replay import KafkaReplayer
from topicshift.core.kafka.cluster import Acl
from topicshift.core.spec.io import spec_from_params
from topicshift.ports import DrainReader
from topicshift.testing.fake_journal import FakeEvidence
from topicshift.testing.fake_ports import FakeVerifier


class RealWorld(World):
    """A migration of ``source``, which is there already, to ``SOURCE-v2``. Close it."""

    def __init__(
        self,
        broker: EmbeddedBroker,
        admin: KafkaAdmin,
        source: str,
        *,
        user: str | None = None,
        journal: WorldJournal | None = None,
        **changes: Any,
    ) -> None:
        self.user = user
        self.broker, self.source, self.target = broker, source, f"{source}-v2"
        self.fuse, self.clock = Fuse(), SystemClock()  # type: ignore[assignment]
        self.journal = journal or WorldJournal(self.clock, self.fuse)
        self.evidence, self.verifier, self.executor = FakeEvidence(), FakeVerifier(), ThreadExecutor()
        self.cluster: Any = admin
        self.controllers = {"route": Applications(self), "manual": Applications(self, "manual", needs_person=True)}
        self.proof, self.said, self.processes = "proven", [], 0
        self.group = f"g-{source}"
        spec = {
            "source": source,
            "target": self.target,
            "partitions": 6,
            "approvals": AUTO,
            "producers": [{"name": "checkout", "principal": "User:checkout"}],
            "consumers": [{"name": "ledger", "group": self.group}],
        }
        self.spec = spec_from_params(said(spec | changes))
        self.target, self.group = str(self.spec.target), self.spec.consumers[0].group
        self.readers: list[KafkaDrainReader] = []
        self.replayer: Any = KafkaReplayer.from_config(broker.config(user))
        self.rehearser: Any = KafkaRehearser.from_config(broker.config(user))
        self.claim = self.open()

    def close(self) -> None:
        """Let clients go."""
        self.executor.close()  # type: ignore[attr-defined]
        for reader in self.readers:
            reader.connection.close()
        self.replayer.close()
        self.rehearser.close()

    def tick(self) -> None:
        """Time goes by itself."""

    def reader(self) -> DrainReader:
        """A real one."""
        self.readers.append(KafkaDrainReader.from_config(self.broker.config(self.user)))
        return self.readers[-1]

    def drain(self, group: str = "", topic: str = "") -> None:
        """The group has read everything."""
        topic = topic or self.source
        ends = {p: o.end or 0 for p, o in self.cluster.offsets(topic).items()}
        self.cluster.alter_commits(group or self.group, topic, ends)

    def join(self, group: str, topic: str) -> None:
        """Nobody joins: offsets alone are looked at."""

    def seed(self, group: str) -> None:
        """The group commits the log start of the target."""
        starts = {p: o.log_start or 0 for p, o in self.cluster.offsets(self.target).items()}
        self.cluster.alter_commits(group, self.target, starts)

    def acls(self, topic: str = "") -> set[Acl]:
        """ACLs of a topic."""
        return {a for a in self.cluster.acls() if a.name == (topic or self.source)}

    def until(self, holds: Any, what: str, seconds: float = 15.0) -> None:
        """Wait for something on the broker."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"not in {seconds:g} s: {what}"
            time.sleep(0.02)
