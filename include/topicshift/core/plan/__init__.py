"""The plan of a migration: what it would do, the target it makes, who owns both topics."""
