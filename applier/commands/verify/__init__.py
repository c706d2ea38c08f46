"""Command `verify`: compare tables with their upstream, cell by cell, as of one resolved ts."""
