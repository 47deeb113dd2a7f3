"""Topicshift: move a keyed Kafka topic to a new topic with another number of partitions, and prove it."""

__version__ = "0.1.0"
