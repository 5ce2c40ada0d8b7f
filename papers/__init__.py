"""Reproductions of papers, and the price of privacy: ``python -m papers reproduce NAME``.

Each study is a folder. It has what is run (``runs``), what the numbers say (``pages``: claims, tables,
figures) and a template (``page.md``) of its page (``README.md``, with its figures in ``figures/``); its
``STUDY`` puts them together. Nothing here is part of the distribution: run it in a checkout.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from papers.study import Study

__all__ = ["NAMES", "load"]

NAMES = (
    "bai-2024", "chowdhury-zhou-2021", "luyo-2021", "qiao-wang-2023-offline", "shariff-sheffet-2018",
    "price-of-privacy",
)  # fmt: skip


def load(name: str) -> Study:
    """The study of this name; raises ``ValueError`` if there is none."""
    if name not in NAMES:
        raise ValueError(f"paper = {name!r}: must be one of {', '.join(NAMES)}")
    found: Study = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").STUDY
    return found
