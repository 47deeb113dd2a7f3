"""A real SQL Gateway in front of a Flink session cluster on this machine."""

from __future__ import annotations

import os
import time

from lab.flink import FlinkCluster, flink_jars
from lab.java import find_java
from lab.ports_free import claim, release
from lab.process import GuardedProcess
from topicshift.adapters.rest import Ask, Endpoint, asker
from topicshift.core.errors import TopicshiftError

_STARTS_S = 60.0


class SqlGateway:
    """A SQL Gateway that submits to a cluster. A context manager.

    Args:
        cluster: the cluster, running; the gateway's log is in its folder.
    """

    def __init__(self, cluster: FlinkCluster) -> None:
        (self.port,) = claim()
        self.url = f"http://127.0.0.1:{self.port}"
        self.ask: Ask = asker(Endpoint(self.url))
        command = [str(find_java().binary), "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += ["-Dlog4j2.level=WARN", "-cp", f"{flink_jars()}/*", "org.apache.flink.table.gateway.SqlGateway"]
        at = {"address": "127.0.0.1", "bind-address": "127.0.0.1", "port": self.port, "bind-port": self.port}
        command += [f"-Dsql-gateway.endpoint.rest.{key}={value}" for key, value in at.items()]
        command += ["-Dexecution.target=remote"]
        env, folder = {**os.environ, "FLINK_CONF_DIR": str(cluster.folder)}, cluster.folder
        self._process = GuardedProcess("gateway", command, log=folder / "gateway.log", cwd=folder, env=env)

    def __enter__(self) -> SqlGateway:
        try:
            self._process.start()
            self._until_it_answers()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        release([self.port])

    def _until_it_answers(self) -> None:
        deadline = time.monotonic() + _STARTS_S
        while True:
            try:
                self.ask("GET", "/v1/info", None)
                return
            except TopicshiftError:
                if not self._process.alive or time.monotonic() > deadline:
                    raise RuntimeError(f"the SQL Gateway does not answer:\n{self._process.tail(40)}") from None
            time.sleep(0.1)
