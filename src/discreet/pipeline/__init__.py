"""Pipeline that reads a data file and writes a policy, a report and a privacy statement; it also verifies
them.
"""

from discreet.names import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
