"""Off-policy evaluation from releases: values and gains of policies, tests of assumptions, and verdicts."""

from discreet.names import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
