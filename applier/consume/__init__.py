"""Kafka or an archive -> messages."""
