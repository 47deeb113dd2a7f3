"""Kafka's own facts and rules: what a cluster shows, and what its names mean."""
