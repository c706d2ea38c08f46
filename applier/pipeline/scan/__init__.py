"""The window of a step, decoded and reduced."""
