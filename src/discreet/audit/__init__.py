"""Audits of privacy claims: black-box tests, white-box tests, replays and membership inference."""

from discreet.names import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
