"""Hooks: from an Airflow connection to a client."""
