"""The operating system's random bytes from a seed: secure noise that is the same in every run."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from discreet.core.noise import discrete_samplers as exact

_BLOCK = 2**16  # bytes made at once


@contextmanager
def fixed_bytes(seed: int, seen: set[str] | None = None) -> Iterator[None]:
    """Every draw of the system's source, through ``os`` and ``secrets`` too, comes from this seed.

    Noise of one thread is then the same in every run; of several, its law is. seen : gets the names of the
    library's modules, less its own name, that are running when bytes are drawn.
    """
    drawn, lock = np.random.Generator(np.random.Philox(seed)), threading.Lock()
    block, at, system = drawn.bytes(_BLOCK), 0, os.urandom
    outside = sys._getframe(2)  # the test that draws; what called it is no module of the library

    def source(size: int) -> bytes:
        nonlocal block, at
        if sys._getframe(1).f_globals.get("__name__") == "uuid":
            return system(size)  # a name of a file, where code is compiled for the first time
        if seen is not None:
            frame = sys._getframe(1)
            while frame is not None and frame is not outside:
                name = frame.f_globals.get("__name__", "")
                if name.startswith("discreet."):
                    seen.add(name.removeprefix("discreet."))
                frame = frame.f_back
        with lock:
            if at + size > len(block):
                block, at = drawn.bytes(size + _BLOCK), 0
            at += size
            return block[at - size : at]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", source)
        patch.setattr(random, "_urandom", source)  # that of secrets
        for sampler in (exact.discrete_laplace, exact.discrete_gaussian, exact.round_to_grid):
            patch.setattr(sampler, "__defaults__", (source,))
        yield
