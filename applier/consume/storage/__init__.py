"""Reads folders that TiCDC's cloud storage sink writes."""
