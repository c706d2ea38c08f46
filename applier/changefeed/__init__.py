"""The nouns of a changefeed. Pure; imports nothing of applier but errors."""
