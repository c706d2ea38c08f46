"""The Simple protocol, as JSON and as Avro."""
