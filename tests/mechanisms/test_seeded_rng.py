"""Seeded coins: no grid, addressed by user, as many bits as they say."""

from __future__ import annotations

import secrets

import numpy as np
import pytest

from discreet.core.rng import SecureRng, Seeded
from discreet.mechanisms.seeded_rng import SeededRng

COINS = SecureRng()


def test_secure_coins_and_words_are_of_as_many_bits_as_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def bits(n: int) -> int:
        asked.append(n)
        return 700

    monkeypatch.setattr(secrets, "randbits", bits)
    assert [COINS.flip(numerator) for numerator in (0, 700, 701, 2**53)] == [False, False, True, True]
    assert asked == [53] * 4
    monkeypatch.setattr(secrets, "token_bytes", lambda n: bytes(range(n)))
    words = COINS.words(2)
    assert words.dtype == np.uint64
    assert words.tobytes() == bytes(range(16))
    monkeypatch.setattr(secrets, "randbelow", lambda n: n - 1)
    assert COINS.below(6) == 5
    assert COINS.exact
    assert not SeededRng.exact


def test_seeded_coins_take_no_grid_and_are_addressed_by_user() -> None:
    key = Seeded(5).keys.noise
    first, again, other = SeededRng(key, 0), SeededRng(key, 0), SeededRng(key, 1)
    for draw in ("laplace", "normal"):
        ours = getattr(first, draw)(2.0, 50)
        assert (ours == getattr(again, draw)(2.0, 50)).all()
        assert (ours != getattr(other, draw)(2.0, 50)).all()
        with pytest.raises(ValueError, match="grid = 4: seeded coins have none"):
            getattr(first, draw)(2.0, 50, 4)
    with pytest.raises(ValueError, match="grid = 4: seeded coins have none"):
        first.rounded(np.zeros(2), 4)
    word = int(again.words(1)[0])
    first.words(1)
    word = int(again.words(1)[0])
    assert first.below(1000) == (word * 1000) >> 64
    word = int(again.words(1)[0]) >> 11  # 53 bits
    twin = SeededRng(key, 0)
    for coins in (twin,):
        coins.laplace(2.0, 50)
        coins.normal(2.0, 50)
        coins.words(2)
    assert not first.flip(word)
    assert twin.flip(word + 1)


def test_seeded_rewards_are_not_rounded() -> None:
    rewards = np.array([0.3, 0.7])
    coins = SeededRng(Seeded(5).keys.noise, 0)
    assert coins.rounded(rewards, None) is rewards
    with pytest.raises(ValueError, match="grid = 4: seeded coins have none"):
        coins.rounded(rewards, 4)
