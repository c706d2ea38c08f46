"""Leaves at most one change of each key, at or below the watermark."""
