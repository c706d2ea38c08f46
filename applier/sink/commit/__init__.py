"""Fenced commits and the stamps that they carry."""
