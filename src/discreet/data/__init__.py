"""Tools for trajectory files: public schema, readers, row checks, exact counts and writers.

This package reads raw user data.
"""

from discreet.names import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
