"""The commands of `applier`, each a module or a folder."""
