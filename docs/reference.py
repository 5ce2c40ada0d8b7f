"""Pages of the reference: public names under the headings of ``discreet/__init__.pyi``, then by package."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "src" / "discreet"


def homes() -> dict[str, str]:
    """Map each public name, such as ``discreet.learners.UCBVI``, to the module that defines it.

    A name at top level is not repeated under its package.
    """
    found: dict[str, str] = {}
    for stub in sorted(PACKAGE.rglob("__init__.pyi"), key=lambda path: len(path.parts)):
        package = ".".join(("discreet", *stub.parent.relative_to(PACKAGE).parts))
        text = re.sub(r"[()\s]+", " ", stub.read_text(encoding="utf-8"))
        for module, name in re.findall(r"from (discreet[\w.]*) import (\w+) as \2", text):
            known = module == package or (module, name) in {(m, n.split(".")[-1]) for n, m in found.items()}
            if not known:
                found[f"{package}.{name}"] = module
    return found


def groups() -> dict[str, list[str]]:
    """Return public names under the headings of the stub of the whole, then under the packages' names."""
    text = (PACKAGE / "__init__.pyi").read_text(encoding="utf-8")
    known = homes()
    found: dict[str, list[str]] = {}
    for heading, name in re.findall(r"^(?:# (.+)|from discreet\.\S+ import (\w+) as \w+)$", text, re.M):
        if heading:
            found[heading] = []
        else:
            found[list(found)[-1]].append(f"discreet.{name}")
    del found["packages"]
    for name in known:
        package = name.rpartition(".")[0]
        if package != "discreet":
            found.setdefault(package.removeprefix("discreet."), []).append(name)
    return found


def write(folder: Path) -> None:
    """Write a page with a table for each group; autosummary makes the pages of the names."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {"index.rst": _INDEX}
    for heading, names in groups().items():
        title = heading[0].upper() + heading[1:] if " " in heading or heading == "environments" else heading
        slug = "-".join(re.findall(r"[a-z]+", heading.lower())[:3])
        listed = "\n".join(f"   {name}" for name in names)
        pages[f"{slug}.rst"] = (
            f"{title}\n{'=' * len(title)}\n\n.. autosummary::\n   :toctree:\n   :nosignatures:\n\n{listed}\n"
        )
        pages["index.rst"] += f"   {slug}\n"
    for name, text in pages.items():
        if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != text:
            (folder / name).write_text(text, encoding="utf-8")


_INDEX = """Reference
=========

One page for each public name. ``import discreet as dr`` gives all of them: what most programs need as
``dr.NAME``, the rest as ``dr.PACKAGE.NAME``. Arrays have the field's shapes: S states, A actions, H steps
counted from 0, K users (one trajectory each), d features. Rewards lie in [0, 1] within the library, and
have the units of your file in whatever a person reads. Bad input raises ``ValueError``, which names the
argument, its value, and what is allowed. The box at the end of a page has what the module says of its
source, its proof and its guarantee. Under it stand the scripts of the gallery that use the name.

.. toctree::
   :maxdepth: 1

"""
