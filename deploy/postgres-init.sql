-- The journal has a database of its own, beside the one of Airflow.
CREATE DATABASE journal OWNER topicshift;
