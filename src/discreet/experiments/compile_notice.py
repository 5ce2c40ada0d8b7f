"""Print a notice when kernels are being compiled, only once for all processes of a run."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

from numba.core.event import Listener, register

__all__ = ["announce", "in_workers"]


class _Announcer(Listener):
    """Listener that announces the first compilation, only once for all processes of a run.

    A kernel that is loaded from the cache raises no event.
    """

    def __init__(self, say: Callable[[], None], said: Any) -> None:
        self.say, self.said, self.here = say, said, False

    def on_start(self, event: Any) -> None:
        if self.said is None:
            if not self.here:
                self.here = True
                self.say()
            return
        with self.said.get_lock():
            if not self.said.value:
                self.said.value = 1
                self.say()

    def on_end(self, event: Any) -> None:
        pass


_announcer: _Announcer | None = None


def announce(say: Callable[[], None], said: Any = None) -> None:
    """Call ``say`` (a function of a module) when the first kernel is compiled, in this process or in a
    worker.

    said : flag that all processes share; the process that starts the workers creates it.
    """
    global _announcer
    if _announcer is not None:
        return
    _announcer = _Announcer(say, said)
    register("numba:compile", _announcer)


def in_workers() -> dict[str, Any]:
    """Return the arguments of a process pool whose workers announce compilations in the same way as this
    process.
    """
    if _announcer is None:
        return {}
    if _announcer.said is None:
        _announcer.said = get_context("spawn").Value("b", int(_announcer.here))
    return {"initializer": announce, "initargs": (_announcer.say, _announcer.said)}
