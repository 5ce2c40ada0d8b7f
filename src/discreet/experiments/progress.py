"""Progress bar for runs, on standard error in terminals and notebooks."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

Progress = Callable[[int, int], None]
_CELLS = 40  # width of the text bar, in characters


@contextmanager
def shown(progress: bool | Progress, title: str, total: int) -> Iterator[Progress | None]:
    """Yield the callback of a progress bar, the function ``progress``, or None if ``progress`` is False.

    Parameters
    ----------
    title : text beside the bar.
    total : number of users in all runs together.
    """
    if progress is False:
        yield None
        return
    if progress is not True:
        yield progress
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    done: dict[int, int] = {}
    console = Console(stderr=True)
    if console.is_jupyter and find_spec("ipywidgets") is None:
        plain = _Plain(title, total)

        def write(run: int, users: int) -> None:
            done[run] = users
            plain(sum(list(done.values())))

        yield write
        plain.end()
        return
    with Bar(console=console) as bar:
        task = bar.add_task(title, total=total)

        def update(run: int, users: int) -> None:
            done[run] = users
            bar.update(task, completed=sum(list(done.values())))

        yield update


class _Plain:
    """Progress bar as one line of text on standard error, rewritten after each percent."""

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total, self.percent = title, total, -1
        self.lock = threading.Lock()

    def __call__(self, users: int) -> None:
        percent = 100 * users // max(1, self.total)
        with self.lock:
            if percent != self.percent:
                self.percent = percent
                full = _CELLS * percent // 100
                bar = "█" * full + "░" * (_CELLS - full)
                sys.stderr.write(f"\r{self.title} {bar} {percent:3d} %")
                sys.stderr.flush()

    def end(self) -> None:
        """Write a newline after the bar."""
        sys.stderr.write("\n")
        sys.stderr.flush()
