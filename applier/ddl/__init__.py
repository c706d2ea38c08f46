"""DDL statements of TiDB: their actions, and the tables before and after them."""
