"""How many partitions the target gets, and why."""
