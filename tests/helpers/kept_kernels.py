"""Helpers of kernels, which kernels call and nobody else, compiled once for all runs of the tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from discreet.core.compile import kernel


def kept(function: Any) -> Callable[..., Any]:
    """Return a function marked ``inlined``, cached with the kernels under the hash of their sources."""
    return kernel(getattr(function, "py_func", function))  # without compilation there is no other
