"""What the Spark jobs share: the session, the frozen Kafka source, the one JSON result."""
