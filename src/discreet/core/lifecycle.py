"""The life of an object that holds people's records: one process, one call at a time, one end.

A copy of such an object would draw the same noise again, or draw other noise for the same sums: so it cannot
be pickled or copied, and a fork of the process finds it closed. Two calls at once would draw two noises for
one sum: a call takes a lock, and a call out of a running one (from a signal's handler, or out of a
caller's array) is refused.
"""

from __future__ import annotations

import os
import threading
from contextlib import nullcontext
from typing import NoReturn, Self


class Guarded:
    """Base of everything that holds exact sums or raw records; subclasses say in ``_drop`` what that is."""

    _what = "session"  # as errors name it

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.RLock()  # knows the thread that holds it; never taken twice
        self._closed = False

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {self._what} cannot be pickled or copied: the copy would draw the same noise again"
        )

    def __copy__(self) -> NoReturn:
        self.__reduce__()

    def __repr__(self) -> str:
        """What is public of it: no record, no sum."""
        claim = getattr(self, "guarantee", None)
        words = [] if claim is None else [f"trust={claim.trust!r}", f"epsilon={claim.epsilon}"]
        if claim is not None and claim.delta:
            words.append(f"delta={claim.delta:g}")
        if self.__dict__.get("_closed", True):
            words.append("closed")
        elif hasattr(self, "users"):
            words.append(f"users={self.users}")
        return f"<{type(self).__name__} {', '.join(words)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """The end: records and noise are dropped, every later call raises."""
        if os.getpid() != self._process:  # a fork may have inherited the lock, held by a thread it lacks
            self._drop()
            return
        with nullcontext() if self._calling_here() else self._lock:
            self._drop()

    def _drop(self) -> None:
        """Forget what is private. Subclasses add their own."""
        self._closed = True

    def _calling_here(self) -> bool:
        """Is a call of this very thread running?"""
        return bool(self._lock._is_owned())  # type: ignore[attr-defined]

    def _check_open(self) -> None:
        """Raise ``RuntimeError`` where no call may begin; asked under the lock."""
        if self._closed:
            raise RuntimeError(f"this {self._what} is closed: start another one")

    def _call(self) -> threading.RLock:
        """One call at a time, in the process that started the object.

        For ``with self._call(): self._check_open()``. It is the lock itself, whose ``with`` no interrupt can
        come into. (A generator, or an ``__enter__`` in Python, ends after the lock is taken, and an interrupt
        there would leave it to nobody.)
        """
        if os.getpid() != self._process:
            raise RuntimeError(
                f"this {self._what} was started in another process: a copy would draw the same noise again"
            )
        if self._calling_here():
            raise RuntimeError(f"a call on this {self._what} is running in this thread: it must end first")
        return self._lock
