"""The life of an object that holds people's records: one process, one call at a time, one end, or one file.

A copy of such an object would draw the same noise again, or draw other noise for the same sums: so it cannot
be pickled or copied, and a fork of the process finds it closed. Two calls at once would draw two noises for
one sum: a call takes a lock, and a call out of a running one (from a signal's handler, or out of a
caller's array) is refused.

What can go on elsewhere ends in a file, which is continued once
(:mod:`discreet.mechanisms.saved_state.state_file`). Crash and interrupt leave the object or the file, never
both and never neither.
"""

from __future__ import annotations

import os
import secrets
import threading
from typing import ClassVar, NoReturn, Self

from discreet.core import lazy as parts


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
        """The end: records and noise are dropped, every later call raises.

        Out of a running call (from a signal's handler) they are dropped when that call has ended: compiled
        code is writing to them.
        """
        if self._calling_here():
            self._closed = True
            threading.Thread(target=self._end, daemon=True).start()
        elif os.getpid() != self._process:  # a fork may have inherited the lock, held by a thread it lacks
            self._drop()
        else:
            self._end()

    def _end(self) -> None:
        with self._lock:
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


class Saveable(Guarded):
    """What can end in a file, from which another one like it goes on.

    Each kind names every attribute in one of three tables (tests compare them with ``vars``);
    :mod:`discreet.mechanisms.saved_state.save` reads the tables, and lists what may stand in a file.
    """

    _kind: ClassVar[str]  # as files name it
    # The arguments of the constructor:
    _BOUND: ClassVar[tuple[str, ...]]
    # What a run has made of them, saved as it is:
    _STATE: ClassVar[tuple[str, ...]]
    # What the constructor derives from its arguments, or what belongs to one process:
    _DERIVED: ClassVar[tuple[str, ...]] = ("_process", "_lock", "_closed", "_saving", "_identity")

    def __init__(self) -> None:
        super().__init__()
        self._saving = False  # a save was interrupted before its file was visible or withdrawn
        self._identity = secrets.token_hex(16)  # of the file that it is saved to

    def _check_open(self) -> None:
        super()._check_open()
        if self._saving:
            raise RuntimeError(f"a save of this {self._what} was interrupted: save it again, or close it")

    def save(self, path: str | os.PathLike[str]) -> None:
        """End the session and write all it knows to a new file, from which
        :func:`~discreet.mechanisms.restore_session.restore` continues it.

        The file holds exact sums of people's data and the noise that hides them, and their records where the
        session stores users: mode 0600, to be kept where the raw data may be. A plan may be open: its users
        go on after the restore, with the encoders that they have (or ``open_encoder``). A learner's own state
        is not in it.

        If an error or interrupt comes before the file is visible, nothing is left of it and the session
        goes on. Raises ``ValueError`` if ``path`` exists or its folder does not.
        """
        with self._call():
            super()._check_open()  # also after a save that was interrupted
            parts.module("saving").write(self, path)
