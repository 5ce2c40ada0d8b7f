"""Learners that see data only through releases: online, offline, and off-policy evaluation."""

from discreet import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
