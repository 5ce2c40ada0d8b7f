"""Mechanisms, their sessions, and privatizers, which choose a mechanism for a learner."""
