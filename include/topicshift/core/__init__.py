"""Pure decisions: no clock, no network, no Airflow, no Kafka, no Spark."""
