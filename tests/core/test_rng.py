"""Sources of randomness: what each asks of the samplers below it, and which streams are apart."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from discreet.core import rng
from discreet.core.noise import discrete_samplers as exact
from discreet.core.rng import Secure, SecureRng, Seeded

COINS = SecureRng()


@pytest.mark.parametrize(
    ("draw", "sampler"), [(COINS.laplace, "discrete_laplace"), (COINS.normal, "discrete_gaussian")]
)
def test_secure_noise_is_drawn_in_units_of_the_grid(
    draw: Any, sampler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scale b on multiples of 1 / g: the integer sampler at g b, exactly, then divided by g."""
    seen = []

    def drawn(scale: Fraction, size: int) -> np.ndarray:
        seen.append((scale, size))
        return np.arange(-1, size - 1)

    monkeypatch.setattr(exact, sampler, drawn)
    assert draw(0.1, 3, 8).tolist() == [-0.125, 0.0, 0.125]
    assert draw(2.5, 2, 1).tolist() == [-1.0, 0.0]
    assert seen == [(Fraction(0.1) * 8, 3), (Fraction(5, 2), 2)]
    with pytest.raises(ValueError, match="grid = None: exact noise needs one"):
        draw(1.0, 3)
    with pytest.raises(ValueError, match="grid = None: exact noise needs one"):
        COINS.rounded(np.zeros(2), None)


def test_a_batch_has_noise_of_its_own_and_the_rest_in_common() -> None:
    """So have two runs, and two seeds, but for nothing: all three keys differ."""
    run = Seeded(3, 1)
    batch, other = run.of_batch(0), run.of_batch(1)
    assert (batch, other) == (Seeded(3, 1, 0), Seeded(3, 1, 1))
    noises = {tuple(one.keys.noise.tolist()) for one in (run, batch, other)}
    assert len(noises) == 3
    for one in (batch, other):
        for door in ("environment", "ties"):
            assert (getattr(one.keys, door) == getattr(run.keys, door)).all()
    for one in (Seeded(3), Seeded(1, 3), Seeded(31), Seeded(3, 2)):
        for door in ("environment", "noise", "ties"):
            assert (getattr(one.keys, door) != getattr(run.keys, door)).any()
    keys = [tuple(getattr(run.keys, door).tolist()) for door in ("environment", "noise", "ties")]
    assert len(set(keys)) == 3
    assert {len(key) for key in keys} == {2}
    source = Secure(64)
    assert source.of_batch(5) is source


@pytest.mark.parametrize(("source", "kind"), [(Seeded, "seeded"), (Secure, "secure")])
def test_no_source_says_that_it_is_another(source: Any, kind: str) -> None:
    assert source().kind == kind
    for options in ({"kind": "secure"}, {"kind": "seeded"}):
        with pytest.raises(TypeError, match="kind"):
            source(**options)


def test_words_flips_and_integers_are_those_of_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rng.secrets, "randbelow", lambda n: n - 1)
    monkeypatch.setattr(rng.secrets, "randbits", lambda bits: 2 ** (bits - 1))
    monkeypatch.setattr(rng.secrets, "token_bytes", lambda size: bytes(range(size)))
    assert COINS.below(7) == 6
    assert [COINS.flip(n) for n in (2**52, 2**52 + 1)] == [False, True]
    assert COINS.words(2).tobytes() == bytes(range(16))
