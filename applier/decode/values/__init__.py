"""Wire values of all protocols, and the columns of the table's own types."""
