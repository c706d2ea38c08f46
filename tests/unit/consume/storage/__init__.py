"""Tests of applier.consume.storage."""
