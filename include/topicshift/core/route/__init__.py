"""The route: its records, what an orchestrator may write, what a client does next."""
