"""Tests of applier.decode.storage."""
