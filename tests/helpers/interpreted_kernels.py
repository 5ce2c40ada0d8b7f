"""A pytest plugin that runs kernels as Python code, so that coverage.py sees their lines.

``NUMBA_DISABLE_JIT=1 python -m pytest -p tests.helpers.interpreted_kernels FILES``. Three functions consist
of machine instructions only; Python code replaces them. Integers of 64 bits overflow without a warning, as in
machine code. Samples of binomial variables and of Laplace sums are a twentieth of what a test requests.
"""

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from discreet.utils import random_streams_kernels as streams


def mul_high(a: np.uint64, b: np.uint64) -> np.uint64:
    return np.uint64((int(a) * int(b)) >> 64)


def float_bits(x: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", x))[0])


def bits_float(x: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", x))[0])


def fewer(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the sampler with a twentieth of the requested draws, but at least one."""
    return lambda state, n, value, draws: function(state, n, value, max(1, draws // 20))


@pytest.fixture(scope="session", autouse=True)
def _kernels_are_python_code() -> None:
    np.seterr(over="ignore")
    for name, function in (("_mul_high", mul_high), ("_float_bits", float_bits), ("_bits_float", bits_float)):
        setattr(streams, name, function)
    for name in ("draw_binomials", "draw_laplace_sums"):
        setattr(streams, name, fewer(getattr(streams, name)))
