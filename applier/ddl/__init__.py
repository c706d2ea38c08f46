"""DDL statements of TiDB: what they say, and the tables before and after them."""
