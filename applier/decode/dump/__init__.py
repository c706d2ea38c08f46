"""Reads the rows of a Dumpling export."""
