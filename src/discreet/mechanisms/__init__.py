"""Mechanisms, their sessions, and privatizers that choose a mechanism for a learner."""
