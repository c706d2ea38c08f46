"""Command `status`: what control tables and metadata show (`command`), what was found (`report`), and how it is shown
(`render`).
"""
