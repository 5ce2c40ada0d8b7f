"""Compiled rounding: exact for every byte, the law of rational rounding, and its range."""

import numpy as np
import pytest

from discreet.core.noise import discrete_samplers as exact


def test_compiled_rounding_is_exact_for_every_byte() -> None:
    """x = (k + 3/8)/1024 needs three bits: of the 256 values of a byte, 96 round up; and digits go on."""
    x = np.full(256, (700 + 3 / 8) / 1024)

    def all_bytes(n: int) -> bytes:
        return (bytes(range(256)) * (n // 256 + 1))[:n]

    up = exact.round_to_grid(x, 1024, all_bytes) * 1024
    assert sorted(set(up)) == [700, 701]
    assert (up - 700).sum() == 96
    deep = (5 + 2.0**-8 + 2.0**-16) / 1024  # 01 01 in base 256
    for bytes_, expected in ((b"\0", 6), (b"\2", 5), (b"\1\0", 6), (b"\1\1", 5), (b"\1\2", 5)):
        rounded = exact.round_to_grid([deep], 1024, lambda n, b=bytes_: b + bytes(n - len(b)))
        assert rounded[0] * 1024 == expected


def test_compiled_rounding_agrees_in_law_with_the_rational_one() -> None:
    """P(up) is the fraction: chi-square over 64 values, false alarm 1e-7."""
    from scipy import stats

    rng = np.random.default_rng(4)
    x = np.repeat(rng.uniform(size=64) ** 4, 4000).reshape(64, -1)
    scaled = x[:, 0] * 16
    p = scaled - np.floor(scaled)
    up = (exact.round_to_grid(x, 16, rng.bytes) * 16 - np.floor(scaled)[:, None]).sum(axis=1)
    square = ((up - 4000 * p) ** 2 / (4000 * p * (1 - p))).sum()
    assert stats.chi2(64).sf(square) > 1e-7
    assert stats.chi2(64).cdf(square) > 1e-7


def test_compiled_rounding_refuses_what_is_outside() -> None:
    for bad in (np.nan, -0.1, 1.0001, np.inf):
        with pytest.raises(ValueError, match=r"x holds .*must be in \[0, 1\]"):
            exact.round_to_grid([0.5, bad, 0.5], 4)
    with pytest.raises(ValueError, match="must be a power of two"):
        exact.round_to_grid([0.5], 3)
    assert exact.round_to_grid([0.0, 1.0, 5e-324], 4, lambda n: b"\1" * n).tolist() == [0.0, 1.0, 0.0]
