"""FlinkDeployments at a real API server: the service of a JobManager, and real jobs for an operator that is played."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.integration.flink_world import Jobs
from tests.integration.kubernetes_world import Namespace

from topicshift.adapters.rest import Ask
from topicshift.core.errors import NotFound, Refused, TopicshiftError
from topicshift.core.flink.ids import trigger_id
from topicshift.core.flink.job import Job, jobs_of, read_checkpoints, read_stop


def _own_address() -> str:
    """An address of this machine that is not its loopback: the API server leads to no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("198.51.100.1", 9))
        return str(probe.getsockname()[0])


@contextmanager
def served(ask: Ask) -> Iterator[tuple[str, int]]:
    """A JobManager behind HTTP, at an address that an API server leads to: that and its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                code, answer = 200, ask("GET", self.path, None)
            except TopicshiftError as error:
                code, answer = {NotFound: 404, Refused: 400}.get(type(error), 503), {"errors": []}
            body = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer((_own_address(), 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield str(server.server_address[0]), server.server_port
        server.shutdown()
        thread.join(10)


def service(shop: Namespace, name: str, address: str, port: int) -> None:
    """The service of a deployment's JobManager: an API server leads to addresses of pods alone, and this is one."""
    ports = [{"name": "rest", "port": port, "protocol": "TCP"}]
    app = {"name": "app", "image": "none", "command": [sys.executable, "-S", "-c", "import time; time.sleep(3600)"]}
    pod = shop.create("v1/pods", {"metadata": {"name": "jobmanager"}, "spec": {"containers": [app]}})
    shop.until(lambda: shop.get(pod)["status"].get("phase") == "Running", "its pod runs")
    seen = shop.get(pod)
    at = {"podIP": address, "podIPs": [{"ip": address}]}
    shop.admin("PUT", f"{pod}/status", {**seen, "status": {**seen["status"], **at}})
    of = {"targetRef": {"kind": "Pod", "name": "jobmanager", "namespace": shop.namespace}}
    spec = {"ports": [{"name": "rest", "port": 8081, "targetPort": port}]}
    shop.create("v1/services", {"metadata": {"name": f"{name}-rest"}, "spec": spec})
    subsets = [{"addresses": [{"ip": address, **of}], "ports": ports}]
    shop.create("v1/endpoints", {"metadata": {"name": f"{name}-rest"}, "subsets": subsets})
    labels = {"kubernetes.io/service-name": f"{name}-rest"}
    piece = {"addressType": "IPv4", "endpoints": [{"addresses": [address], **of}], "ports": ports}
    shop.create("discovery.k8s.io/v1/endpointslices", {"metadata": {"name": f"{name}-rest", "labels": labels}, **piece})


class LiveJob:
    """A job of a real JobManager, as the operator that is played looks at one."""

    def __init__(self, jobs: Jobs, job: Job) -> None:
        self._jobs = jobs
        self.jid, self.name, self.began, self.state = job.jid, job.name, job.began, job.state

    @property
    def stops(self) -> dict[str, Any]:
        """The answer about each stop, by its trigger."""
        found: dict[str, Any] = {}
        while True:
            trigger = trigger_id(self.jid, len(found))
            try:
                found[trigger] = self._jobs.ask("GET", f"/jobs/{self.jid}/savepoints/{trigger}", None)
            except NotFound:
                return found

    @property
    def completed(self) -> int:
        """Checkpoints that it has completed."""
        return read_checkpoints(self._jobs.ask("GET", f"/jobs/{self.jid}/checkpoints", None)).completed

    @property
    def savepoint(self) -> str:
        """The one with which it was stopped."""
        good = [stop.location for stop in map(read_stop, self.stops.values()) if stop.good]
        return good[-1] if good else ""


class LiveJobs:
    """The jobs of a real JobManager, run from our jar, for the operator that is played. A stop is over at once."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    @property
    def jobs(self) -> dict[str, LiveJob]:
        """By their ids."""
        return {j.jid: LiveJob(self._jobs, j) for j in jobs_of(self._jobs.ask("GET", "/jobs/overview", None))}

    def submit(self, jid: str, args: Sequence[str], parallelism: int, **more: Any) -> LiveJob:
        """A job that runs."""
        self._jobs.submit(args, parallelism, jobId=jid, **more)
        return self.jobs[jid]

    def go_on(self, jid: str, args: Sequence[str], parallelism: int, savepoint: str, leaves: bool) -> LiveJob:
        """A job that goes on from a savepoint."""
        return self.submit(jid, args, parallelism, savepointPath=savepoint, allowNonRestoredState=leaves)

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        """Ask it; a stop is waited for."""
        answer = self._jobs.ask(method, path, body)
        if path.endswith("/stop"):
            jid = path.split("/")[2]
            said = f"/jobs/{jid}/savepoints/{body['triggerId']}"
            self._jobs.cluster.until(lambda: read_stop(self._jobs.ask("GET", said, None)).over, "the stop is over")
            self._jobs.cluster.until(lambda: self.jobs[jid].state in ("FINISHED", "FAILED"), "the job has ended")
        return answer
