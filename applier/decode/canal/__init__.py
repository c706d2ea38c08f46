"""Canal-JSON, with and without the TiDB extension."""
