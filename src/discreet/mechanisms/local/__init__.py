"""Local privacy (trusted code): sums of randomized reports, sums of noisy vectors, and their privacy loss."""
