"""Decodes messages into events, with one decoder a protocol."""
