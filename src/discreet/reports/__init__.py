"""Documents about a release: policy report, privacy statement, report for a data protection officer."""

from discreet.names import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
