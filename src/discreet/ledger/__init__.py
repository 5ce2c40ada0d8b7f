"""Ledger of the releases of a data set, signatures, and rules of data owners."""

from discreet.names import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
