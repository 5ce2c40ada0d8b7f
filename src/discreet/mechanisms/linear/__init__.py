"""Trusted core for sums of features and adaptive queries of offline data, with their privacy loss."""
