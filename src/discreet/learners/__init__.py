"""Online learners, offline learners and off-policy evaluation.

All of them read data only through releases.
"""

from discreet.names import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
