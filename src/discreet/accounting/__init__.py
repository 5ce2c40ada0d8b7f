"""Privacy losses beyond closed forms: numerical losses, conversions, filters. No code here reads data."""

from discreet import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
