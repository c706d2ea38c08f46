"""DDL of a step, applied to the target tables."""
