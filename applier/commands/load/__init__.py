"""Command `load`: begin on a database that has rows already, or load single tables again, from a Dumpling export."""
