"""Measurements: ``python -m benchmarks.studies.NAME`` in the root of the repository."""
