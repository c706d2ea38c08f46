"""Tests of `applier init`."""
