"""Reads messages from Kafka or from an archive."""
