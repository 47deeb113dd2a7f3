"""What a Flink job is, from the answers of its JobManager. Pure."""
