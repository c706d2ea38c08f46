"""Real counterparts for tests: a Kafka broker, a schema registry and an S3 server, started on this machine."""
