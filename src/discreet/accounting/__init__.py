"""Numerical privacy losses, conversions between privacy notions, and privacy filters.

No code in this package reads data.
"""

from discreet.names import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
