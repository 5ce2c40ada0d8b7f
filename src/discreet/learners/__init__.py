"""Learners that see data only through releases: online, offline, and off-policy evaluation."""
