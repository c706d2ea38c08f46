"""The Open protocol."""
