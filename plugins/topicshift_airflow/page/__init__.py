"""The page "Topic migrations": what the journal shows, under Airflow's permissions. It never asks Kafka."""
