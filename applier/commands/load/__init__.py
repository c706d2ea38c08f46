"""Command `load`: begin on a database that has rows already, or load single tables again."""
