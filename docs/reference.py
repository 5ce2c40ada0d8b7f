"""The pages of the reference: public names under the headings that ``discreet/__init__.pyi`` has for them."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent


def groups() -> dict[str, list[str]]:
    """Public names under the headings that ``discreet/__init__.pyi`` has for them, in its order."""
    text = (HERE.parent / "src" / "discreet" / "__init__.pyi").read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    for heading, name in re.findall(r"^(?:# (.+)|from discreet\.\S+ import (\w+) as \w+)$", text, re.M):
        if heading:
            found[heading] = []
        else:
            found[list(found)[-1]].append(name)
    found["what parts of one's own must keep"] = re.findall(r"^from discreet import (\w+)", text, re.M)
    return found


def write(folder: Path) -> None:
    """A page of a table for each group; autosummary makes the pages of the names."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {"index.rst": _INDEX}
    for heading, names in groups().items():
        title = heading[0].upper() + heading[1:]
        slug = "-".join(re.findall(r"[a-z]+", heading.lower())[:3])
        listed = "\n".join(f"   discreet.{name}" for name in names)
        pages[f"{slug}.rst"] = (
            f"{title}\n{'=' * len(title)}\n\n.. autosummary::\n   :toctree:\n   :nosignatures:\n\n{listed}\n"
        )
        pages["index.rst"] += f"   {slug}\n"
    for name, text in pages.items():
        if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != text:
            (folder / name).write_text(text, encoding="utf-8")


_INDEX = """Reference
=========

One page for each public name: ``import discreet as dr`` is enough for all of them. Arrays have the field's
shapes: S states, A actions, H steps counted from 0, K users (one episode each), d features; rewards lie in
[0, 1] within the library, and in the units of your own file in whatever a person reads. Bad input raises
``ValueError``, which names the argument, its value, and what is allowed. The box at the end of a page has
what the module says of its source, its proof and its guarantee; under it stand the scripts of the gallery
that use the name.

.. toctree::
   :maxdepth: 1

"""
