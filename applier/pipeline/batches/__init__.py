"""The rows of one table that one commit takes, whether they are here or in tasks."""
