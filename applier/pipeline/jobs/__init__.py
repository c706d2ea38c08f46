"""Brings parked tables back: the range of the feed that they miss is applied beside the others."""
