"""Table of the names and modules of version 0.2.0 that version 0.3.0 renamed, moved or removed.

Using an old name raises an error that states the new name. Old names do not work as aliases. The table will
be deleted in version 0.4.0.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path


def renamed(old: str) -> str | None:
    """Return a sentence that states the new name of ``old``, or that ``old`` was removed.

    old : name ``discreet.NAME``, or a module, of version 0.2.0. The result is None for any other name.
    """
    new = _table().get(old)
    if new is None:
        return None
    return f"{old} was renamed in 0.3.0: {new}" if new else f"{old} was removed in 0.3.0"


@cache
def _table() -> dict[str, str]:
    text = Path(__file__).with_name("renamed.csv").read_text(encoding="utf-8")
    return dict(csv.reader(text.splitlines()))
