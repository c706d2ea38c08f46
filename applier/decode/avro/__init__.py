"""The Avro protocol with a schema registry."""
