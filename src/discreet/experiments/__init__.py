"""Experiments: simulation, configurations, results on disk, sweeps, statistics, figures."""
