"""The two topics of the route: looked at, made and mended."""

from __future__ import annotations

import logging

from confluent_kafka import TopicCollection

from topicshift.adapters.kafka.connection import Connection
from topicshift.adapters.kafka.topics import TopicsAdmin
from topicshift.core.errors import NotFound, Refused
from topicshift.core.route.records import ACKS_TOPIC, ROUTES_TOPIC
from topicshift.core.route.topics import CONFIGS, TopicProblem, replicas_for, topic_problems

log = logging.getLogger(__name__)


class RouteTopics:
    """Both topics of one cluster over a :class:`Connection`. Raises the errors of :mod:`topicshift.core.errors`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._admin = TopicsAdmin(connection)

    def exists(self, topic: str) -> bool:
        """Whether the brokers know this topic; never creates one."""
        asked = self._connection.native.describe_topics(
            TopicCollection([topic]), request_timeout=self._connection.timeout_s
        )[topic]
        try:
            self._connection.result(asked, operation="DESCRIBE", resource=f"topic {topic}")
        except NotFound:
            return False
        return True

    def check(self) -> list[TopicProblem]:
        """What is wrong with those that exist. Raises ``Unreadable``, also without DESCRIBE_CONFIGS."""
        brokers = len(self._admin.cluster().brokers)
        seen = [self._admin.topic(name) for name in (ROUTES_TOPIC, ACKS_TOPIC)]
        return [p for topic in seen if topic is not None for p in topic_problems(topic, brokers)]

    def missing(self) -> list[str]:
        """Those of the two topics that are not there. Raises ``Unreadable``."""
        return [name for name in (ROUTES_TOPIC, ACKS_TOPIC) if not self.exists(name)]

    def ensure(self) -> list[str]:
        """Make what is missing and mend what is wrong; what was done, in words.

        One partition, replication min(3, brokers), min.insync.replicas one less than that (at least 1). Raises
        ``Refused`` for what no config mends, before anything is changed.
        """
        done = []
        problems = self.check()
        hopeless = [p.text for p in problems if p.mend is None]
        if hopeless:
            raise Refused(" ".join(hopeless))
        replicas = replicas_for(len(self._admin.cluster().brokers))
        for name in (ROUTES_TOPIC, ACKS_TOPIC):
            if not self.exists(name):
                insync = {"min.insync.replicas": str(max(1, replicas - 1))}
                try:
                    self._admin.create_topic(name, 1, replicas, {**CONFIGS[name], **insync})
                except Refused:
                    if not self.exists(name):  # else somebody was quicker
                        raise
                done.append(f"made {name} with {replicas} replicas")
            changes = dict(p.mend for p in problems if p.topic == name and p.mend is not None)
            if changes:
                self._admin.alter_topic_configs(name, set_=changes)
                done.append(f"{name}: set {', '.join(f'{k}={v}' for k, v in sorted(changes.items()))}")
        for line in done:
            log.info("%s", line)
        return done
