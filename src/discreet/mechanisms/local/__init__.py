"""Local privacy (trusted code): sums of randomized reports and of noisy vectors, and their privacy loss."""
