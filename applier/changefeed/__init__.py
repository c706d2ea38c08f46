"""The nouns: what a changefeed carries. Pure; imports nothing of applier but errors."""
