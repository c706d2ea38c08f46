"""Work that runs in Spark's tasks."""
