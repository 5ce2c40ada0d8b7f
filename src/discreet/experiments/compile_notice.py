"""Notice that kernels are being compiled. It is printed once, even if a run has several processes."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

from numba.core.event import Listener, register


class _Announcer(Listener):
    """Listener that announces the first compilation once, even if a run has several processes.

    Loading a kernel from the cache is not announced.
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
    """Register ``say``, which is called when the first kernel is compiled in this process or in a worker.

    Parameters
    ----------
    say : a function of a module, so that it can be sent to workers.
    said : flag that all processes share. It is set after the announcement. The process that starts the
        workers creates this flag. It is None for a process that is not a worker.

    Only the first call in a process has an effect.
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
