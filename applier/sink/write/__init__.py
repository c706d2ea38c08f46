"""Data files and deletion vectors of one batch."""
