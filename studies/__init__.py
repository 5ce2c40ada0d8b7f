"""Measurements that the documentation shows: ``python -m studies.NAME`` in the root of the repository."""
