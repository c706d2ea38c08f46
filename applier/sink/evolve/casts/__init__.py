"""Values of a column in another type, by TiDB's rules."""
