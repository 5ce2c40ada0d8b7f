"""Message that kernels are being compiled, printed once per run."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

from numba.core.event import Listener, register


class _Announcer(Listener):
    """Listener that announces the first compilation of a run."""

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
    """Register ``say``, which is called when the first kernel is compiled in this process or in a worker.

    Parameters
    ----------
    say : a function of a module, so that it can be sent to workers.
    said : flag that all processes share, set after the announcement. None for a process that is not a worker.
    """
    global _announcer
    if _announcer is not None:
        return
    _announcer = _Announcer(say, said)
    register("numba:compile", _announcer)


def in_workers() -> dict[str, Any]:
    """Return the arguments of a process pool that make its workers announce compilations."""
    if _announcer is None:
        return {}
    if _announcer.said is None:
        _announcer.said = get_context("spawn").Value("b", int(_announcer.here))
    return {"initializer": announce, "initargs": (_announcer.say, _announcer.said)}
