"""Local privacy (trusted code): sums of randomized reports and of device noise, and their privacy loss."""
