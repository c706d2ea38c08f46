"""Row passes in Spark's tasks, whose rows stay there."""
