"""Pipeline that reads data, writes a policy, a report and a privacy statement, and verifies them."""

from discreet.names import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
