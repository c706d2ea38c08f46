"""Command `check`: what the registry holds (`registry_side`), what the tables are (`iceberg_side`), what a change would
make of both (`change`), what was found (`report`), and how it is shown (`render`).
"""
