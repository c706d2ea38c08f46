"""Reads the file: the lines of its keys (`places`), where paths begin (`paths`), and what is wrong (`problems`)."""
