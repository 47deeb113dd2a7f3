"""A real SQL Gateway in front of a Flink session cluster on this machine."""

from __future__ import annotations

import os

from lab.flink import FlinkCluster, flink_command, until_it_holds
from lab.ports_free import claim, release
from lab.process import GuardedProcess
from topicshift.adapters.rest import Ask, Endpoint, asker

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
        command = flink_command("org.apache.flink.table.gateway.SqlGateway")
        at = {"address": "127.0.0.1", "bind-address": "127.0.0.1", "port": self.port, "bind-port": self.port}
        command += [f"-Dsql-gateway.endpoint.rest.{key}={value}" for key, value in at.items()]
        command += ["-Dexecution.target=remote"]
        env, folder = {**os.environ, "FLINK_CONF_DIR": str(cluster.folder)}, cluster.folder
        self._process = GuardedProcess("gateway", command, log=folder / "gateway.log", cwd=folder, env=env)

    def __enter__(self) -> SqlGateway:
        try:
            self._process.start()
            until_it_holds([self._process], lambda: self.ask("GET", "/v1/info", None), "it answers", _STARTS_S)
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
