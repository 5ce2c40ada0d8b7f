"""Attacks for audits: black box, white box, replays, membership. No lower package imports them."""

from discreet import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
