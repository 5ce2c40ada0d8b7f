"""Life cycle of objects that hold user data: one process, one call at a time, and one end, closed or saved.

A copy of such an object would draw the same noise again, or draw other noise for the same sums. It therefore
cannot be pickled or copied, and a fork of the process finds it closed. Two simultaneous calls would draw two
noises for one sum. Each call therefore takes a lock, and a call made from inside a running one (by a signal
handler, or by code of a caller's array) is rejected.

A session that continues elsewhere is saved to a file, which can be restored once
(:mod:`discreet.mechanisms.saved_state.state_file`). After a crash or interrupt there is either the object or
the file, never both and never neither.
"""

from __future__ import annotations

import os
import secrets
import threading
from typing import ClassVar, NoReturn, Self

from discreet.core import lazy as parts


class Guarded:
    """Base class of objects that hold exact sums or raw records; subclasses drop them in ``_drop``."""

    _what = "session"  # name in errors

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
        """Return the public facts only: no record, no sum."""
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
        """Close the session: records and noise are dropped, and every later call raises.

        If called from inside a running call (by a signal handler), they are dropped when that call has ended,
        because compiled code is still writing to them.
        """
        if self._calling_here():
            self._closed = True
            threading.Thread(target=self._end, daemon=True).start()
        elif os.getpid() != self._process:  # a fork may inherit a held lock
            self._drop()
        else:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        """Drop what is private. Subclasses extend it."""
        self._closed = True

    def _calling_here(self) -> bool:
        """Return whether this thread is inside a call."""
        return bool(self._lock._is_owned())  # type: ignore[attr-defined]

    def _check_open(self) -> None:
        """Raise ``RuntimeError`` if no call may begin; the lock must be held."""
        if self._closed:
            raise RuntimeError(f"this {self._what} is closed: start another one")

    def _call(self) -> threading.RLock:
        """Return the lock that allows one call at a time, in the process that created the object.

        Use it as ``with self._call(): self._check_open()``. It returns the lock itself, because no interrupt
        can come between taking it and entering ``with``. (A generator, or an ``__enter__`` in Python, ends
        after the lock is taken; an interrupt at that point would keep it locked permanently.)
        """
        if os.getpid() != self._process:
            raise RuntimeError(
                f"this {self._what} was started in another process: a copy would draw the same noise again"
            )
        if self._calling_here():
            raise RuntimeError(f"a call on this {self._what} is running in this thread: it must end first")
        return self._lock


class Saveable(Guarded):
    """Base class of objects that can be saved to a file and restored from it.

    Each class lists every attribute in one of three tables (tests compare them with ``vars``).
    :mod:`discreet.mechanisms.saved_state.save` reads the tables and defines which types a file may contain.
    """

    _kind: ClassVar[str]  # name in files
    # Arguments of the constructor:
    _BOUND: ClassVar[tuple[str, ...]]
    # State that a run has computed from them, saved unchanged:
    _STATE: ClassVar[tuple[str, ...]]
    # Values derived by the constructor, or bound to one process:
    _DERIVED: ClassVar[tuple[str, ...]] = ("_process", "_lock", "_closed", "_saving", "_identity")

    def __init__(self) -> None:
        super().__init__()
        self._saving = False  # True if a save was interrupted before its file was visible or withdrawn
        self._identity = secrets.token_hex(16)  # of the file that the object is saved to

    def _check_open(self) -> None:
        super()._check_open()
        if self._saving:
            raise RuntimeError(f"a save of this {self._what} was interrupted: save it again, or close it")

    def save(self, path: str | os.PathLike[str]) -> None:
        """End the session and write its state to a new file.

        :func:`~discreet.mechanisms.restore_session.restore` continues it. The file has mode 0600.

        The file contains exact sums of user data and the noise added to them, and raw records if the session
        stores users: keep it only where the raw data may be kept. A plan may be open: after the restore its
        users continue with the encoders that they have (or ``open_encoder``). The state of a learner is not
        included.

        If an error or interrupt comes before the file is visible, no file is left and the session continues.
        Raises ``ValueError`` if ``path`` exists or its folder does not.
        """
        with self._call():
            super()._check_open()  # also after an interrupted save
            parts.module("saving").write(self, path)
