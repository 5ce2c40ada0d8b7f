"""Life cycle of objects that contain user data: one process, one call at a time, closed or saved once.

A copy of such an object would draw the same noise a second time, or other noise for the same sums. The object
therefore cannot be pickled or copied, and it is closed in a fork of the process. Two simultaneous calls would
draw two noises for one sum. Each call therefore takes a lock. A call from inside a running call (by a signal
handler, or by code of a caller's array) is rejected.

A session that continues elsewhere is saved to a file, which can be restored once
(:mod:`discreet.mechanisms.saved_state.state_file`). After a crash or interrupt, either the object or the file
exists, never both.
"""

from __future__ import annotations

import os
import secrets
import threading
from typing import ClassVar, NoReturn, Self

from discreet.core.registry import parts


class Guarded:
    """Base class of objects with exact sums or raw records. Subclasses delete these data in ``_drop``."""

    _what = "session"  # name of the object in error messages

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.RLock()  # a reentrant lock records its thread, but it is never acquired twice
        self._closed = False

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {self._what} cannot be pickled or copied: the copy would draw the same noise again"
        )

    def __copy__(self) -> NoReturn:
        self.__reduce__()

    def __repr__(self) -> str:
        """Return text that contains only public facts and no record or sum."""
        return parts().shown.of_session(self, self.__dict__.get("_closed", True))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the session and delete its records and noise. Every later call raises an error.

        If a signal handler calls this method from inside a running call, the data are deleted at the end of
        the running call, because compiled code is still writing to them.
        """
        if self._calling_here():
            self._closed = True
            threading.Thread(target=self._end, daemon=True).start()
        # a fork may inherit a lock that is held by a thread of the parent process
        elif os.getpid() != self._process:
            self._drop()
        else:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        """Delete private data. Subclasses extend this method."""
        self._closed = True

    def _calling_here(self) -> bool:
        """Return True if this thread is inside a call of this object."""
        return bool(self._lock._is_owned())  # type: ignore[attr-defined]

    def _check_open(self) -> None:
        """Raise ``RuntimeError`` if calls are not allowed now. The caller must hold the lock."""
        if self._closed:
            raise RuntimeError(f"this {self._what} is closed: start another one")

    def _call(self) -> threading.RLock:
        """Return the lock that allows one call at a time, in the process that created the object.

        Use it as ``with self._call(): self._check_open()``. The method returns the lock itself, because no
        interrupt can occur between acquiring that lock and entering ``with``. (A generator, or an
        ``__enter__`` in Python, returns after it has acquired the lock. An interrupt at that point would
        leave the lock held permanently.)
        """
        if os.getpid() != self._process:
            raise RuntimeError(
                f"this {self._what} was started in another process: a copy would draw the same noise again"
            )
        if self._calling_here():
            raise RuntimeError(f"a call on this {self._what} is running in this thread: it must end first")
        return self._lock


class Saveable(Guarded):
    """Base class of objects that can be saved to a file and restored from the file.

    Each class lists every attribute in one of three tables (tests compare them with ``vars``).
    :mod:`discreet.mechanisms.saved_state.save` reads these tables and defines which types a file may contain.
    """

    _kind: ClassVar[str]  # name of the class in files
    # Arguments of the constructor:
    _BOUND: ClassVar[tuple[str, ...]]
    # State that the object computes during a run; saved unchanged:
    _STATE: ClassVar[tuple[str, ...]]
    # Values derived by the constructor, or bound to one process:
    _DERIVED: ClassVar[tuple[str, ...]] = ("_process", "_lock", "_closed", "_saving", "_identity")

    def __init__(self) -> None:
        super().__init__()
        self._saving = False  # True if a save was interrupted and its file may exist
        self._identity = secrets.token_hex(16)  # identity of the file that the object is saved to

    def _check_open(self) -> None:
        super()._check_open()
        if self._saving:
            raise RuntimeError(f"a save of this {self._what} was interrupted: save it again, or close it")

    def save(self, path: str | os.PathLike[str]) -> None:
        """End the session and write its state to a new file.

        :func:`~discreet.mechanisms.restore_session.restore` continues the session. The file has mode 0600.

        The file contains exact sums of user data and the noise added to them, and raw records if the session
        stores users. Store it only where raw data are allowed. The session may have an open plan. After the
        restore, its users continue with their encoders or with ``open_encoder``. The state of a learner is
        not included.

        If an error or interrupt occurs before the file is visible, the file is removed and the session
        continues. Raises ``ValueError`` if ``path`` exists or its folder does not.
        """
        with self._call():
            super()._check_open()  # the base class allows the call after an interrupted save
            parts().saving.write(self, path)
