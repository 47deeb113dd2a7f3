"""Operators: templating and order around the steps; they never decide."""
