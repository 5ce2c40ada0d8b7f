"""Simulations, run configurations, results on disk, sweeps, statistics and figures."""

from discreet.names import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
