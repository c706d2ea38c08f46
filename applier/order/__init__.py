"""Events -> at most one change per key, at or below the watermark."""
