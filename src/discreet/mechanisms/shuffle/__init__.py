"""Shuffle privacy (trusted code): shuffler, analyzer and the privacy loss of a shuffled batch."""
