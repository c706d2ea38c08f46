"""Decodes the files that TiCDC's cloud storage sink writes."""
