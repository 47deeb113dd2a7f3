"""Airflow side: operators, triggers, notifiers, links, pages."""
