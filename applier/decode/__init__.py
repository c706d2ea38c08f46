"""Message -> events, by one decoder per protocol."""
