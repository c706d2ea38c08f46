"""Real counterparts for tests, started on this machine: Kafka, a schema registry, an S3 server, a Spark cluster."""
