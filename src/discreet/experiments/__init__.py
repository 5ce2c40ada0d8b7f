"""Simulations, run configurations, results on disk, sweeps, statistics and figures."""
