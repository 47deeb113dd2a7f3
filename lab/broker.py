"""A real Kafka cluster (KRaft) for tests and demos: its own folder, its own free ports, its own processes.

``kafka.tools.StorageTool`` formats the folder and ``kafka.Kafka`` runs the nodes, from the jars that set-up fetched.

Example:
    >>> with EmbeddedBroker(authorizer=True, users={"app": "s3cret"}) as broker:  # doctest: +SKIP
    ...     admin = AdminClient(broker.config())              # the superuser
    ...     producer = Producer(broker.config("app"))         # may do nothing until an ACL allows it
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from lab import ports_free
from lab.java import find_java
from lab.process import GuardedProcess
from lab.runfolder import ROOT, RunFolder, write_private
from lab.signals import ended_on_signal
from lab.upkeep import Upkeep

SUPERUSER = "admin"
LOOPBACK = ("127.0.0.1", "localhost")
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_LOG4J = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = {level}
rootLogger.appenderRef.out.ref = out
logger.start.name = kafka.server.KafkaRaftServer
logger.start.level = info
"""


class BrokerFailed(RuntimeError):
    """The broker could not be started or did not get ready. The message holds the last lines of its log."""


def kafka_jars() -> Path:
    """The folder of Kafka's jars: TOPICSHIFT_KAFKA_JARS, else ``build/jars/kafka`` of the project.

    Raises:
        BrokerFailed: they are not there.
    """
    folder = Path(os.environ.get("TOPICSHIFT_KAFKA_JARS") or ROOT / "build" / "jars" / "kafka")
    if not list(folder.glob("kafka_2.13-*.jar")):
        raise BrokerFailed(f"Kafka's jars are not in {folder}. Run make setup, which fetches them.")
    return folder


QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""C1 alone compiles: a JVM is up in half the time, and no test or demo runs long enough to miss C2."""

AS_SHIPPED = (
    "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
)  # fmt: skip
"""What Kafka's own ``kafka-run-class.sh`` starts its tools with."""


def kafka_command(main_class: str, *args: str, heap: str = "256m", jvm: tuple[str, ...] = QUICK) -> list[str]:
    """The command that runs a class of Kafka's jars, such as ``org.apache.kafka.tools.TopicCommand``."""
    java = find_java(for_spark=False)
    return [
        str(java.binary),
        f"-Xmx{heap}",
        *jvm,
        "-cp",
        f"{kafka_jars()}/*",
        main_class,
        *args,
    ]


def new_password() -> str:
    """A password made at run time, without characters that need escaping anywhere."""
    return secrets.token_hex(16)


class EmbeddedBroker:
    """One to three nodes, each broker and (the first, or all of three) controller. A context manager.

    Args:
        folder: where data, configs and logs go; a temporary folder, removed at ``stop``, by default.
        authorizer: run the StandardAuthorizer; what no ACL allows is denied. Clients then log in by SASL/PLAIN.
        users: password by user name, for ``authorizer``. The superuser ``admin`` is added with a password made here.
        brokers: how many nodes, 1 to 3. Of two, node 1 alone is a controller and must stay; of three any may go.
        server_properties: settings that win over those made here.
        heap: heap of each node.
        log_level: log4j level of the nodes' logs.
        host: the name under which clients reach it. Any other than a loopback address is served on every interface.
        port: the client port of node 1; a free one by default.
    """

    def __init__(  # noqa: PLR0913 - what one may start it with, by keyword
        self,
        folder: str | Path | None = None,
        *,
        authorizer: bool = False,
        users: Mapping[str, str] | None = None,
        brokers: int = 1,
        server_properties: Mapping[str, object] | None = None,
        heap: str = "384m",
        log_level: str = "warn",
        host: str = "127.0.0.1",
        port: int | None = None,
    ) -> None:
        if not 1 <= brokers <= 3:
            raise ValueError(f"brokers must be 1 to 3, not {brokers}")
        if users and not authorizer:
            raise ValueError("users log in only where authorizer=True")
        self._temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="topicshift-kafka-") if folder is None else folder).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        self.authorizer = authorizer
        self.users = dict(users or {})
        if authorizer:
            self.users.setdefault(SUPERUSER, new_password())
        self.nodes = tuple(range(1, brokers + 1))
        self._controllers = self.nodes if brokers == 3 else (1,)
        self._overrides = dict(server_properties or {})
        self._heap = heap
        self._log_level = log_level
        self._host = host
        ports = ports_free.claim(2 * brokers)
        self._ports = {node: (ports[2 * i], ports[2 * i + 1]) for i, node in enumerate(self.nodes)}
        if port is not None:
            self._ports[1] = (port, self._ports[1][1])
        self._processes: dict[int, GuardedProcess] = {}

    # ------------------------------------------------------------------------------------------------ for clients

    @property
    def bootstrap(self) -> str:
        """``host:port`` of every node, separated by commas."""
        return ",".join(f"{self._host}:{client}" for client, _ in self._ports.values())

    def config(self, user: str | None = None) -> dict[str, str]:
        """Connection properties in librdkafka's names.

        Args:
            user: who logs in; the superuser by default. Only with ``authorizer``.

        Raises:
            KeyError: no such user.
        """
        if not self.authorizer:
            if user is not None:
                raise KeyError(f"no user {user}: this broker has no authorizer, so nobody logs in")
            return {"bootstrap.servers": self.bootstrap}
        name = user or SUPERUSER
        if name not in self.users:
            raise KeyError(f"no user {name}; there are {', '.join(sorted(self.users))}")
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": name,
            "sasl.password": self.users[name],
        }

    def superuser_config(self) -> dict[str, str]:
        """Connection properties of the superuser (anybody's, without ``authorizer``)."""
        return self.config()

    def client_properties(self, user: str | None = None) -> str:
        """The text of a ``client.properties`` file as Kafka's own tools and Spark read it."""
        config = self.config(user)
        lines = [f"bootstrap.servers={config['bootstrap.servers']}"]
        if self.authorizer:
            lines += ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN"]
            lines += [f"sasl.jaas.config={_jaas(config['sasl.username'], config['sasl.password'])}"]
        return "\n".join(lines) + "\n"

    def write_client_properties(self, user: str | None, path: str | Path) -> Path:
        """Write that text to a file of mode 0600 and return its path."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        return write_private(target, self.client_properties(user))

    # ------------------------------------------------------------------------------------------------ life

    def start(self, timeout: float = 240.0) -> EmbeddedBroker:
        """Format the folders (once), start every node and wait until clients and groups are served.

        Raises:
            BrokerFailed: a node ended, or was not ready in ``timeout`` seconds.
        """
        try:
            self._format()
            for node in self.nodes:
                self._run(node)
            self.wait_ready(timeout)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, timeout: float = 20.0) -> None:
        """End the nodes, and remove the folder where it was a temporary one."""
        for process in self._processes.values():
            process.ask_to_stop()
        for process in self._processes.values():
            process.stop(timeout)
        self._processes.clear()
        ports_free.release([port for pair in self._ports.values() for port in pair])
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self, node: int = 1) -> None:
        """SIGKILL for one node, as a crash would. Its data stays."""
        self._processes[node].kill()

    def restart(self, node: int | None = None, timeout: float = 240.0) -> None:
        """Start one node (all by default) again on the same ports and data, ending it first where it still runs."""
        for each in self.nodes if node is None else (node,):
            self._processes[each].stop()
            self._run(each)
        self.wait_ready(timeout)

    def alive(self, node: int = 1) -> bool:
        """Whether the node's process runs."""
        return node in self._processes and self._processes[node].alive

    def pid(self, node: int = 1) -> int:
        """Process id of the node."""
        return self._processes[node].pid

    def log(self, node: int = 1) -> Path:
        """Log file of the node."""
        return self.folder / f"node-{node}.log"

    def __enter__(self) -> EmbeddedBroker:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # ------------------------------------------------------------------------------------------------ inner part

    def _properties(self, node: int) -> dict[str, object]:
        client, controller = self._ports[node]
        copies = min(len(self.nodes), 3)
        roles = "broker,controller" if node in self._controllers else "broker"
        voters = ",".join(f"{each}@127.0.0.1:{self._ports[each][1]}" for each in self._controllers)
        bind = self._host if self._host in LOOPBACK else "0.0.0.0"  # noqa: S104 - asked for by naming another host
        protocol = "SASL_PLAINTEXT" if self.authorizer else "PLAINTEXT"
        properties: dict[str, object] = {
            "process.roles": roles,
            "node.id": node,
            "controller.quorum.voters": voters,
            "listeners": f"CLIENT://{bind}:{client}"
            + (f",CONTROLLER://127.0.0.1:{controller}" if node in self._controllers else ""),
            "advertised.listeners": f"CLIENT://{self._host}:{client}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "CLIENT",
            "listener.security.protocol.map": f"CLIENT:{protocol},CONTROLLER:{protocol}",
            "log.dirs": self.folder / f"node-{node}",
            "auto.create.topics.enable": "false",
            "num.partitions": 1,
            "default.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.num.partitions": 4,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 2,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "group.coordinator.threads": 1,
            "num.network.threads": 2,
            "num.io.threads": 4,
            "background.threads": 2,
            "num.recovery.threads.per.data.dir": 1,
            "log.cleaner.dedupe.buffer.size": 8 * 1024 * 1024,
            "log.cleaner.threads": 1,
            # A node that was killed may come back only when its old session is over, so keep that short.
            "broker.session.timeout.ms": 4_000,
            "broker.heartbeat.interval.ms": 500,
            "controlled.shutdown.enable": str(len(self.nodes) > 1).lower(),
            "metadata.log.max.record.bytes.between.snapshots": 20 * 1024 * 1024,
        }
        if self.authorizer:
            superuser = self.users[SUPERUSER]
            users = " ".join(f'user_{name}="{word}"' for name, word in sorted(self.users.items()))
            jaas = f'{_PLAIN} required username="{SUPERUSER}" password="{superuser}" {users};'
            properties |= {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "allow.everyone.if.no.acl.found": "false",
                "super.users": f"User:{SUPERUSER}",
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "sasl.mechanism.controller.protocol": "PLAIN",
                "listener.name.client.plain.sasl.jaas.config": jaas,
                "listener.name.controller.plain.sasl.jaas.config": jaas,
            }
        return properties | self._overrides

    def _config_file(self, node: int) -> Path:
        return self.folder / f"node-{node}.properties"

    def _format(self) -> None:
        cluster_file = self.folder / "cluster.id"
        if not cluster_file.exists():
            cluster_file.write_text(urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode().replace("-", "A"))
        write_private(self.folder / "log4j2.properties", _LOG4J.format(level=self._log_level))
        formatting: list[tuple[int, subprocess.Popen[str]]] = []
        for node in self.nodes:
            text = "".join(f"{key}={value}\n" for key, value in self._properties(node).items())
            write_private(self._config_file(node), text)
            if (self.folder / f"node-{node}" / "meta.properties").exists():
                continue
            command = kafka_command(
                "kafka.tools.StorageTool",
                "format",
                *("--cluster-id", cluster_file.read_text(), "--config", str(self._config_file(node))),
                heap="128m",
            )
            formatting.append(
                (node, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
            )
        for node, child in formatting:
            said, _ = child.communicate(timeout=120)
            if child.returncode != 0:
                raise BrokerFailed(f"node {node}: its folder could not be formatted: {said.strip()[-1000:]}")

    def _run(self, node: int) -> None:
        command = kafka_command("kafka.Kafka", str(self._config_file(node)), heap=self._heap)
        command.insert(1, f"-Dlog4j2.configurationFile=file:{self.folder / 'log4j2.properties'}")
        process = GuardedProcess(f"kafka node {node}", command, log=self.log(node), cwd=self.folder)
        self._processes[node] = process.start()

    def check_alive(self) -> None:
        """Raises BrokerFailed where a node has ended by itself (a node that was killed by ``kill`` has not)."""
        for node, process in self._processes.items():
            if process.exit_code is not None and process.exit_code >= 0:
                raise BrokerFailed(f"node {node} ended with code {process.exit_code}:\n{process.tail()}")

    def keep_up(self, upkeep: Upkeep) -> None:
        """Start nodes again that have ended, on the same ports and data. Raises EndedTooOften, BrokerFailed."""
        for node, process in list(self._processes.items()):
            if not process.alive:
                upkeep.again(process.name, process.exit_code, process.tail(), partial(self.restart, node))

    def _wait(self, what: str, ready: Callable[[], bool], deadline: float) -> None:
        while True:
            self.check_alive()
            if ready():
                return
            if time.monotonic() > deadline:
                tail = "\n".join(process.tail() for process in self._processes.values())
                raise BrokerFailed(f"the broker was not ready in time ({what}):\n{tail}")
            time.sleep(0.05)

    def wait_ready(self, timeout: float = 240.0) -> None:
        """Wait until every running node is in the metadata and a first group operation has been answered.

        The second part matters: the first group operation on a fresh broker creates ``__consumer_offsets`` and can
        time out.

        Raises:
            BrokerFailed: a node ended by itself, or it took longer than ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        running = [node for node, process in self._processes.items() if process.alive]
        for node in running:
            self._wait(f"port of node {node}", lambda node=node: _listens(self._ports[node][0]), deadline)  # type: ignore[misc]
        from confluent_kafka import Consumer, KafkaException, TopicPartition
        from confluent_kafka.admin import AdminClient

        quiet: dict[str, str | int | float | bool] = {**self.config(), "socket.timeout.ms": "5000", "log_level": "0"}
        admin = AdminClient(quiet)

        def all_nodes() -> bool:
            with contextlib.suppress(KafkaException):
                return set(admin.list_topics(timeout=2).brokers) >= set(running)
            return False

        # A Consumer and not the AdminClient: librdkafka 2.16.1 can crash in an admin request for a group whose
        # coordinator is not there yet.
        consumer = Consumer({**quiet, "group.id": "topicshift-ready"})

        def groups_served() -> bool:
            with contextlib.suppress(KafkaException):
                consumer.committed([TopicPartition("topicshift-ready", 0)], timeout=3)
                return True
            return False

        self._wait("metadata", all_nodes, deadline)
        try:
            self._wait("groups", groups_served, deadline)
        finally:
            consumer.close()


def _jaas(user: str, password: str) -> str:
    return f'{_PLAIN} required username="{user}" password="{password}";'


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def main(argv: list[str] | None = None) -> int:
    """Run one by hand until Ctrl-C or SIGTERM: ``python -m lab.broker --run-folder DIR``."""
    import argparse

    parser = argparse.ArgumentParser(prog="python -m lab.broker", description=main.__doc__)
    parser.add_argument("--run-folder", required=True, type=Path, help="where data, configs and logs go")
    parser.add_argument("--authorizer", action="store_true", help="run the authorizer; clients log in by SASL/PLAIN")
    parser.add_argument("--user", action="append", default=[], help="a user besides admin (may be repeated)")
    parser.add_argument("--brokers", type=int, default=1, help="how many nodes, 1 to 3")
    parser.add_argument("--host", default="127.0.0.1", help="the name under which clients reach it")
    parser.add_argument("--port", type=int, help="the client port; a free one by default")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a broker setting")
    args = parser.parse_args(argv)
    ended = ended_on_signal()
    folder = RunFolder(args.run_folder)
    names = (SUPERUSER, *args.user) if args.authorizer else ()
    users = {name: folder.secret(f"kafka-{name}", 32) for name in names}
    try:
        overrides: dict[str, object] = dict(pair.split("=", 1) for pair in args.set)
        broker = EmbeddedBroker(
            folder / "kafka",
            authorizer=args.authorizer,
            users=users,
            brokers=args.brokers,
            server_properties=overrides,
            host=args.host,
            port=args.port,
        )
    except ValueError as problem:
        parser.error(str(problem))
    try:
        with broker:
            print(f"bootstrap.servers={broker.bootstrap}", flush=True)
            for user in broker.users or ("client",):
                path = folder.folder("clients") / f"{user}.properties"
                broker.write_client_properties(user if broker.users else None, path)
                print(f"{user}: {path}", flush=True)
            while not ended.wait(0.5):
                if not any(broker.alive(node) for node in broker.nodes):
                    print("every node has ended by itself", file=sys.stderr)
                    return 1
    except BrokerFailed as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
