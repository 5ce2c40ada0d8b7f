"""Public names of packages, loaded at their first use (PEP 562), and the version.

All packages import this module. It imports no package of the library until a name is unknown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module

TYPE_CHECKING = False  # without ``typing``, the package loads in a third less time
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.3.0"


class PublicNameError(AttributeError):
    """Error: a package does not have the requested public name. If the name existed in version 0.2.0, the
    message states its new name.
    """

    def __init__(self, package: str, name: str) -> None:
        super().__init__(package, name, name=name, obj=sys.modules[package])

    def __str__(self) -> str:
        # The new name is looked up only when the error is printed, because imports of submodules ignore this
        # error.
        from discreet.utils.renamed import renamed

        package, name = self.args
        return renamed(f"{package}.{name}") or f"module {package!r} has no attribute {name!r}"


def public_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package whose stub lists its public names.

    The stub ``__init__.pyi`` has a line ``from MODULE import NAME as NAME`` for each public name. If MODULE
    is the package itself, NAME is a subpackage. For a name of an earlier version, ``__getattr__`` raises
    ``AttributeError`` with the new name.
    """
    module = sys.modules[package]
    spec: Any = module.__spec__
    stub = spec.loader.get_data(spec.origin.removesuffix("c") + "i").decode()
    imports = (text.replace("(", " ").split() for text in stub.split("\nfrom discreet")[1:])
    homes: dict[str, str] = {}
    # ".module import NAME as NAME", or "import NAME as NAME" for a subpackage of discreet
    for first, *words in imports:
        home = f"discreet{first}" if first.startswith(".") else "discreet"
        homes[words[words.index("as") + 1].rstrip(",")] = home

    def load(name: str) -> Any:
        if name not in homes:
            raise PublicNameError(package, name)
        home = homes[name]
        value = import_module(f"{package}.{name}") if home == package else getattr(import_module(home), name)
        setattr(module, name, value)
        return value

    return load, lambda: sorted({*homes, *vars(module)}), [*homes]


class _EarlierModules:
    """Import finder for modules that moved in version 0.3.0. An import of an old path raises an error with
    the new path.
    """

    @staticmethod
    def find_spec(fullname: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if fullname.startswith("discreet."):
            from discreet.utils.renamed import renamed

            new = renamed(fullname)
            if new is not None:
                # The error must not have the attribute `name`, because `from discreet import OLD` ignores an
                # error with a matching `name`.
                raise ModuleNotFoundError(new)


# the last finder is asked only for modules that no other finder has found
sys.meta_path.append(_EarlierModules)
