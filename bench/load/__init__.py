"""How fast an export is loaded: `applier load`, and what else reads such files into a table."""
