"""Registry of optional extensions of the kernel, which are imported on first use.

A simple release of counts does not need these parts: numerical privacy losses, records of the shuffle model,
sentences, saved state. :mod:`discreet.core.part_protocols` states the interface of each part. When the
package is imported, the module :mod:`discreet.wiring` sets all parts. After that the parts cannot change.

Type checkers read ``registry.pyi``, which names these interfaces. This file does not name them, because the
interfaces use classes of files that import this file.
"""

from __future__ import annotations

import sys
from types import ModuleType

__all__ = ["is_record", "parts", "record_class", "set_parts"]

_parts: object = None


def set_parts(given: object) -> None:
    """Set the optional parts, once. Raises ``ValueError`` if they are set already.

    given : object with all parts; see :class:`~discreet.core.part_protocols.Parts`.
    """
    global _parts
    if _parts is not None:
        raise ValueError(f"given = {given!r}: must not replace the parts, which discreet.wiring has set")
    _parts = given


def parts() -> object:
    """Return the optional parts. Each attribute imports its module and returns it."""
    assert _parts is not None
    return _parts


def record_class(kind: object) -> type:
    """Return the class of privacy records that has the name ``kind`` in files.

    Raises ``ValueError`` if the name is unknown.
    """
    from discreet.core import checks

    records = parts().records
    _, _, load = records[checks.choice("record: kind", kind, records)]
    return load()


def is_record(value: object) -> bool:
    """Return True if ``value`` is a privacy record of this library. This function imports no module.

    The result is False for subclasses, because a subclass could state another loss.
    """
    home = type(value).__module__, type(value).__qualname__
    return any(
        home == (module, name) and module in sys.modules and type(value) is load()
        for module, name, load in parts().records.values()
    )


class _Fixed(ModuleType):
    def __setattr__(self, name: str, value: object = None) -> None:
        raise AttributeError(f"{self.__name__}.{name} is fixed")

    __delattr__ = __setattr__


sys.modules[__name__].__class__ = _Fixed
