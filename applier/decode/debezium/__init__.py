"""Debezium, as JSON and as Avro."""
