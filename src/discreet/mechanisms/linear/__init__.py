"""Trusted: sums of features, and questions that are asked of stored people, with what they cost."""
