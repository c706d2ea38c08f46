"""Reads the file: where paths begin (`paths`), and what is wrong, on which line (`problems`)."""
