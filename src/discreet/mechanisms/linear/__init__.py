"""Trusted core: sums of features, and adaptive queries of offline data, with their privacy loss."""
