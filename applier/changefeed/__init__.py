"""The nouns: what a changefeed carries. Pure; imports nothing of ours but errors."""
