"""Kafka behind the ports: connection facts, and :class:`~topicshift.adapters.kafka.admin.KafkaAdmin`."""
