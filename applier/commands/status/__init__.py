"""Command `status`: what control tables and metadata tell (`command`), what was found (`report`), and how it is shown
(`render`).
"""
