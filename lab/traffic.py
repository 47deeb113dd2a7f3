"""Live traffic on a cluster until it is stopped: ``python -m lab.traffic --clients DIR --folder DIR``.

The producers and consumers of the demo, without a migration: for a person who wants to start one from the form.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from lab.load_life import Life, LoadFailed
from lab.rights import consumer_rights, grant, orchestrator_rights, producer_rights
from lab.signals import ended_on_signal
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.adapters.kafka.client_config import load_client_properties
from topicshift.adapters.route_store import RouteStore
from topicshift.core.errors import TopicshiftError
from topicshift.core.route.records import Status

SOURCE = "payments"
PARTITIONS = 6
BACKLOG = 20_000


def start_traffic(
    config: Mapping[str, str], life: Life, progress: Callable[[str], None], *, backlog: int = BACKLOG
) -> None:
    """Make the topic where it is missing, with a backlog, grant the applications their rights and start them.

    The topics of the route are made first: an application that follows the route reports there, also before the first
    migration writes a route. Without them a draft would take every application for one that a person stops.

    Args:
        config: librdkafka properties of a superuser.
        life: the traffic; its topic and applications are used.
        progress: called with one line whenever something is done.
        backlog: records written before the traffic starts, where the topic is new.

    Raises:
        LoadFailed: a process of the load did not start.
        TopicshiftError: the cluster refused or could not be reached.
    """
    rights = [acl for app in life.producers for acl in producer_rights(app.name, life.topic)]
    rights += [acl for app in life.consumers for acl in consumer_rights(app.name, life.topic, app.name)]
    grant(config, rights)
    with RouteStore(config) as route:
        route.ensure_topics()
        moved = route.read(life.topic) is not None
        # Instances of an earlier start that was killed have said no good-bye, and a freeze would wait for them.
        ours = {app.name for app in (*life.producers, *life.consumers)}
        for ack in route.all_acks()[0]:
            if ack.logical == life.topic and ack.participant in ours and ack.status is not Status.GONE:
                route.dismiss(ack.logical, ack.instance)
    admin = KafkaAdmin(dict(config))
    try:
        # Where a route leads to another topic the source may have been retired: it must not come back.
        new = not moved and admin.topic(life.topic) is None
        if new:
            admin.create_topic(life.topic, PARTITIONS, 1, {"retention.ms": str(7 * 24 * 3600 * 1000)})
    finally:
        admin.close()
    if new:
        life.backlog(backlog)
        progress(f"{life.topic}: {PARTITIONS} partitions, a backlog of {backlog:,} keyed records")
    else:
        life.take_up()
    life.start()
    apps = ", ".join(app.name for app in (*life.producers, *life.consumers))
    progress(f"live traffic on {life.topic}: {apps}")


def main(argv: list[str] | None = None) -> int:
    """Run the traffic until SIGTERM or Ctrl-C. 0 after a signal, 1 where a part failed."""
    parser = argparse.ArgumentParser(prog="python -m lab.traffic", description=__doc__)
    parser.add_argument("--clients", type=Path, required=True, help="folder of client properties, NAME.properties")
    parser.add_argument("--folder", type=Path, required=True, help="where the processes keep their logs")
    args = parser.parse_args(argv)
    ended = ended_on_signal()
    args.folder.mkdir(parents=True, exist_ok=True)
    life = Life(args.folder, lambda user: args.clients / f"{user}.properties", topic=SOURCE)
    try:
        config = load_client_properties(args.clients / "admin.properties")
        grant(config, orchestrator_rights("topicshift"))
        start_traffic(config, life, lambda line: print(line, flush=True))
        while not ended.wait(0.5):
            life.check_alive()
        return 0
    except (LoadFailed, TopicshiftError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    finally:
        life.stop()


if __name__ == "__main__":
    sys.exit(main())
