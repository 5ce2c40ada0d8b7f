"""Stored state: saved sessions, each of which is continued once, and the ledger of a data set."""

from discreet import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
