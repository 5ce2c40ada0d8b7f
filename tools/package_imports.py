"""Print the packages of the library, their layers, the imports between them, and cycles.

All import statements count: also those for type checkers only, and those in functions. A package is a folder
or a single file directly under ``src/discreet``. The layer of a package is 1 plus the highest layer that it
imports; packages of a cycle share a layer. ``make imports`` runs this file.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping

import grimp

__all__ = ["cycles", "imports_between", "layers"]


def _package(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def imports_between(name: str = "discreet") -> Counter[tuple[str, str]]:
    """Return the number of imports from one package to another, by (importer, imported)."""
    graph = grimp.build_graph(name, exclude_type_checking_imports=False, cache_dir=None)
    found: Counter[tuple[str, str]] = Counter()
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            pair = _package(importer), _package(imported)
            # the root module and ``names`` only find public names
            if pair[0] != pair[1] and not {name, "names"} & set(pair):
                found[pair] += 1
    return found


def _reach(pairs: Mapping[tuple[str, str], int]) -> dict[str, set[str]]:
    """Return what each package imports, directly or not."""
    reach = {name: {there for here, there in pairs if here == name} for pair in pairs for name in pair}
    while True:
        more = {name: found.union(*(reach[one] for one in found)) for name, found in reach.items()}
        if more == reach:
            return reach
        reach = more


def cycles(pairs: Mapping[tuple[str, str], int]) -> list[tuple[str, ...]]:
    """Return the groups of packages that import each other, directly or not."""
    reach = _reach(pairs)
    groups = {
        tuple(sorted(other for other in found if name in reach[other]))
        for name, found in reach.items()
        if name in found
    }
    return sorted(groups)


def layers(pairs: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """Return the layer of each package, from 1."""
    reach = _reach(pairs)
    below = {name: {one for one in found if name not in reach[one]} for name, found in reach.items()}
    layer: dict[str, int] = {}
    for name in sorted(below, key=lambda one: len(below[one])):
        layer[name] = 1 + max((layer[one] for one in below[name]), default=0)
    return layer


def main() -> int:
    """Print the table. Returns 0: limits are in ``tests/contracts/test_imports.py``."""
    pairs = imports_between()
    layer = layers(pairs)
    width = max(map(len, layer))
    for name in sorted(layer, key=lambda one: (layer[one], one)):
        there = sorted(other for here, other in pairs if here == name)
        print(f"{layer[name]:>2}  {name:<{width}}  {' '.join(there)}")
    print(f"{len(layer)} packages, {max(layer.values())} layers, {len(pairs)} imports between packages")
    for group in cycles(pairs):
        print(f"cycle: {', '.join(group)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
