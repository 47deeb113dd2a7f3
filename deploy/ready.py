"""Health checks of docker-compose.yml: ``python -m deploy.ready kafka|airflow|port WHERE``, 0 if ready."""

from __future__ import annotations

import contextlib
import socket
import sys

TIMEOUT = 15.0


def kafka(properties: str) -> bool:
    """Whether the cluster of a client properties file answers to that user."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    from topicshift.adapters.kafka.client_config import load_client_properties
    from topicshift.core.errors import TopicshiftError

    with contextlib.suppress(KafkaException, TopicshiftError):
        config: dict[str, str | int | float | bool] = {**load_client_properties(properties), "log_level": "0"}
        return bool(AdminClient(config).list_topics(timeout=TIMEOUT).brokers)
    return False


def airflow(url: str) -> bool:
    """Whether the API server answers, its execution API too (the first request to that builds it)."""
    import httpx

    with contextlib.suppress(httpx.HTTPError):
        pages = ("/api/v2/monitor/health", "/execution/health")
        return all(httpx.get(url + page, timeout=4 * TIMEOUT, trust_env=False).is_success for page in pages)
    return False


def port(address: str) -> bool:
    """Whether something listens at host:port."""
    host, _, number = address.rpartition(":")
    with contextlib.suppress(OSError, ValueError), socket.create_connection((host, int(number)), timeout=TIMEOUT):
        return True
    return False


def main(argv: list[str]) -> int:
    """Run one check: 0 ready, 1 not, 2 wrong use."""
    checks = {"kafka": kafka, "airflow": airflow, "port": port}
    if len(argv) != 2 or argv[0] not in checks:
        print(f"usage: python -m deploy.ready {'|'.join(checks)} WHERE", file=sys.stderr)
        return 2
    return 0 if checks[argv[0]](argv[1]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
