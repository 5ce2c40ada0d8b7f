"""Wait for what another thread or process does. The limit only says where a hang is."""

import time
from collections.abc import Callable

LIMIT = 300.0  # seconds


def wait_until(happened: Callable[[], object], otherwise: Callable[[], object] = lambda: "") -> None:
    """Return as soon as ``happened()`` is true; fail with the words of ``otherwise()`` after 300 seconds."""
    end = time.monotonic() + LIMIT
    while not happened():
        assert time.monotonic() < end, otherwise()
        time.sleep(0.005)
