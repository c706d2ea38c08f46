"""Command `check`, in the order of its imports: what the registry holds (`registry`), what the tables are (`tables`),
what a change would make of both (`change`), what was found (`report`), and how it is shown (`render`).
"""
