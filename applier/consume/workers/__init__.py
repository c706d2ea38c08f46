"""Processes beside the driver that decode a share of a window."""
