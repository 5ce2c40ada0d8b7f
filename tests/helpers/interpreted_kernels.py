"""A pytest plugin that runs kernels as Python code, so that coverage.py sees their lines.

``NUMBA_DISABLE_JIT=1 python -m pytest -p tests.helpers.interpreted_kernels FILES``. Three functions consist
of machine instructions only; Python code replaces them. Integers of 64 bits overflow without a warning, as in
machine code.
"""

import struct

import numpy as np
import pytest

from discreet.core.noise import random_streams_kernels as streams


def mul_high(a: np.uint64, b: np.uint64) -> np.uint64:
    return np.uint64((int(a) * int(b)) >> 64)


def float_bits(x: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", x))[0])


def bits_float(x: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", x))[0])


@pytest.fixture(scope="session", autouse=True)
def _kernels_are_python_code() -> None:
    np.seterr(over="ignore")
    for name, function in (("_mul_high", mul_high), ("_float_bits", float_bits), ("_bits_float", bits_float)):
        setattr(streams, name, function)
