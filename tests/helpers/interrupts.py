"""Ctrl-C, or another call, at every line of the trusted core, for tests."""

import linecache
import sys
import threading
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType
from typing import Any

_FILES = {
    "core": "session count_channels fresh_noise_channel clipped_returns count_mechanism"
    " raw_encoder lifecycle",
    "mechanisms/local": "noisy_vector_session randomized_response_session message_inbox",
}
SESSION = tuple(f"{room}/{name}.py" for room, names in _FILES.items() for name in names.split())


def _no_signal_comes(frame: FrameType) -> bool:
    """Is this a line event without a call: ``try``, or leaving ``with self._call()``, whose lock is held?"""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    if line not in ("try:", "with self._call():"):
        return False
    lock = getattr(frame.f_locals.get("self"), "_lock", None)
    return isinstance(lock, type(threading.RLock())) and lock._is_owned()  # type: ignore[attr-defined]


class _Within(dict[CodeType, bool]):
    """Whether code is in one of the files. Found once for all calls."""

    def __init__(self, files: tuple[str, ...]) -> None:
        self._files = files

    def __missing__(self, code: CodeType) -> bool:
        self[code] = code.co_filename.endswith(self._files)
        return self[code]


@cache
def _within(files: tuple[str, ...]) -> _Within:
    return _Within(files)


def interrupted(
    call: Callable[[], object],
    at: int,
    *,
    files: tuple[str, ...] = SESSION,
    besides: tuple[str, ...] = ("_call",),
) -> bool:
    """Raise KeyboardInterrupt at the ``at``-th line of ``files`` (ends of their names) in ``call``.

    Returns False where there are not so many lines. Python handles signals at calls and backward jumps: there
    is none between the last line of a ``with`` and the call that gives back its lock, and none at ``try``,
    though these are lines. They are left alone, and so are functions named in ``besides``.
    """
    left, within = at, _within(files)

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if not within[frame.f_code]:
            return None
        if event == "line" and frame.f_code.co_name not in besides and not _no_signal_comes(frame):
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def called_within(
    call: Callable[[], object], at: int, visit: Callable[[], object], *, files: tuple[str, ...] = SESSION
) -> int:
    """Call ``visit`` at the ``at``-th line of ``files`` in ``call``. Return how many lines there were."""
    seen, within = 0, _within(files)

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal seen
        if not within[frame.f_code]:
            return None
        if event == "line":
            seen += 1
            if seen == at + 1:
                visit()  # Python traces nothing within a trace function
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return seen


def interrupted_at_a_return(
    call: Callable[[], object], at: int, *, files: tuple[str, ...] = (*SESSION, "contextlib.py")
) -> KeyboardInterrupt | None:
    """Raise KeyboardInterrupt as the ``at``-th built-in function returns to ``files``: there Python looks.

    Returns it with its traceback, so that all frames of the call stay alive, as a notebook keeps them; None
    where not so many return.
    """
    left = at

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal left
        if event == "c_return" and frame.f_code.co_filename.endswith(files):
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    except KeyboardInterrupt as stop:
        return stop
    finally:
        sys.setprofile(before)
    return None
