"""The client of a Confluent Schema Registry."""
