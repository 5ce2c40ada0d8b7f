"""Names and modules of version 0.2.0 that have a new name or location since 0.3.0 (``renamed.csv``).

An old name raises an error that states the new name. Old names are not aliases. The table will be deleted in
version 0.4.0.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

__all__ = ["renamed"]


def renamed(old: str) -> str | None:
    """Return the new name of ``discreet.NAME`` or of a module of version 0.2.0; None if it was not
    renamed.
    """
    return _table().get(old)


@cache
def _table() -> dict[str, str]:
    text = Path(__file__).with_name("renamed.csv").read_text(encoding="utf-8")
    return dict(csv.reader(text.splitlines()))
