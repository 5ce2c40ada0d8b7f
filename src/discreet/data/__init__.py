"""Files of trajectories: public schema, readers, row checks, exact counts, writers.

This package reads raw data.
"""

from discreet import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
