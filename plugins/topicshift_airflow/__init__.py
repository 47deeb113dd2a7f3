"""Airflow side: hooks, operators, triggers, timetables."""
