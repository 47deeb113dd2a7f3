"""The shipped Python client of the route protocol (``docs/route-protocol.md``).

Example:
    >>> from topicshift.client import RoutedConsumer, RoutedProducer
    >>> producer = RoutedProducer(config, "payments", "checkout")  # doctest: +SKIP
    >>> producer.produce("order-1", b"...", {"seq": "1"})  # doctest: +SKIP
"""

from topicshift.client.consumer import RoutedConsumer
from topicshift.client.follower import RouteError, RouteFollower, RoutePaused, RouteUnavailable
from topicshift.client.producer import RoutedProducer

__all__ = ["RouteError", "RouteFollower", "RoutePaused", "RouteUnavailable", "RoutedConsumer", "RoutedProducer"]
