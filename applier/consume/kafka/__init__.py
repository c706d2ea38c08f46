"""Kafka's own clients, in the JVM of the driver."""
