"""Mechanisms, sessions, and privatizers. A privatizer chooses a mechanism for a learner."""

from discreet.names import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
