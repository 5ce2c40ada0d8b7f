"""Pipeline from a data file to policy, report and privacy statement, and its verification (``verify``)."""

from discreet.names import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
