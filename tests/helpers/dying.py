"""Calls that kill the process they run in."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path


class Dying:
    """Gives its items back; kills its process at each fifth one, the first time."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __call__(self, items: Sequence[int]) -> list[int]:
        for item in items:
            flag = Path(self.folder) / str(item)
            if item % 5 == 0 and not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return list(items)


def dividing(items: Sequence[int]) -> list[float]:
    """An error of the call's own: it is no death."""
    return [1 / item for item in items]
