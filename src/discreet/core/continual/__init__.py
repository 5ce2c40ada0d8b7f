"""Continual release: one stream of noisy sums while people keep coming."""
