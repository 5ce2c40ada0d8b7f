"""Off-policy evaluation from releases: values, gains, tests of the assumptions, and verdicts."""

from discreet import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
