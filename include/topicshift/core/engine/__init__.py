"""The engine: the states of a migration, and how a freeze ends."""
