"""The simulator: whole migrations in simulated time, with faults, from one seed. See README.md."""
