"""Reproductions of papers, and the price of privacy: one folder a study, run by ``discreet reproduce NAME``.

A folder has what is run (``runs``), what the numbers say (``pages``: claims, tables, figures) and the page of
the documentation as a template (``page.md``); its ``STUDY`` puts them together.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from discreet.reproductions.study import Study

__all__ = ["NAMES", "load"]

NAMES = ("bai-2024", "chowdhury-zhou-2021", "luyo-2021", "qiao-wang-2023-offline", "price-of-privacy")


def load(name: str) -> Study:
    """The study of this name; raises ``ValueError`` if there is none."""
    if name not in NAMES:
        raise ValueError(f"paper = {name!r}: must be one of {', '.join(NAMES)}")
    found: Study = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").STUDY
    return found
