"""Command `plan`: what the next step of `run` would do."""
