"""Ctrl-C at every line of the trusted core, for tests."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

SESSION = tuple(
    f"privacy/{name}.py" for name in ("session", "stream_session", "mechanism", "encoders", "lifecycle")
)


def interrupted(
    call: Callable[[], object],
    at: int,
    *,
    files: tuple[str, ...] = SESSION,
    besides: tuple[str, ...] = ("_call",),
) -> bool:
    """Raise KeyboardInterrupt at the ``at``-th line of ``files`` (ends of their names) in ``call``.

    Returns False where there are not so many lines. Python handles signals at calls and backward jumps, and
    ``_call`` has none between its lock and its flag: functions named in ``besides`` are left alone.
    """
    left = at

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(files):
            return None
        if event == "line" and frame.f_code.co_name not in besides:
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
