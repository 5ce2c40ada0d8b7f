"""The device: what leaves it, in which form, and what a reader refuses."""

from dataclasses import replace

import numpy as np
import pytest
from simulated_coins import SimulatedCoins

from discreet.core.rng import SecureRng, Seeded
from discreet.device.message_envelope import Envelope, MessageRejected
from discreet.device.shuffle_encoder import ShuffleEncoder, SystemCoins, noise_ones
from discreet.device.shuffle_payload import COIN, Family, SessionConfig, pack, read, unpack, write
from discreet.mechanisms.seeded_rng import SeededRng

FAIR = COIN // 2
FORM = SessionConfig(
    3, 2, 4,
    (
        Family("visits", 1, COIN // 7), Family("transitions", 5, FAIR), Family("rewards", 70, FAIR),
        Family("centered_rewards", 4, COIN // 3, paired=True),
    ),
    session=99,
)  # fmt: skip
LIFE = np.array([0, 1, 2, 2, 0]), np.array([1, 0, 1, 1]), np.array([0.0, 1.0, 0.25, 0.5])


@pytest.mark.parametrize("flips", [1, 2, 3, 7, 30, 500, 100_000])
def test_packing_is_undone_by_reading(flips):
    form = replace(FORM, families=(Family("visits", flips, FAIR),))
    rng = np.random.default_rng(flips)
    ones = rng.integers(0, flips + 2, form.begins[-1])
    found, good = unpack(form, pack(form, ones)[None])
    assert good.all()
    assert np.array_equal(found[0], ones)


@pytest.mark.parametrize(
    "coins", [SystemCoins(), SimulatedCoins(3), SecureRng(), SeededRng(Seeded(4).keys.noise, 0)]
)
def test_noise_bits_have_their_law(coins):
    """z-tests of mean and variance over 4000 counters; false alarm 2e-8 each, 24 of them."""
    for family in (
        Family("visits", 1, FAIR), Family("visits", 3, FAIR), Family("visits", 100, FAIR),
        Family("visits", 3, COIN // 10), Family("centered_rewards", 6, COIN // 10, True),
        Family("centered_rewards", 2, FAIR, True),
    ):  # fmt: skip
        ones = noise_ones(family, 4000, coins)
        p = family.coin / COIN
        variance = family.flips * p * (1 - p)
        assert ones.min() >= 0
        assert ones.max() <= family.flips
        assert abs(ones.mean() - family.mean) < 5.6 * np.sqrt(variance / 4000)
        assert abs(ones.var() / variance - 1) < 5.6 * np.sqrt(10 / 4000)  # kurtosis below 11 here


def refusal(form, plan, message):
    with pytest.raises(MessageRejected) as caught:
        read(form, plan, message)
    return caught.value.reason


def test_a_message_that_is_not_of_the_form_is_refused():
    message = ShuffleEncoder(FORM, 7)(*LIFE)
    assert refusal(FORM, 7, message[:-1]) == "malformed"
    assert refusal(FORM, 7, message + b"\0") == "malformed"
    assert refusal(FORM, 7, b"dscr\x02" + message[5:]) == "malformed"
    assert refusal(FORM, 7, bytearray(message)) == "malformed"
    assert refusal(FORM, 8, message) == "late"
    assert refusal(replace(FORM, session=98), 7, message) == "foreign"
    assert refusal(replace(FORM, families=FORM.families[::-1]), 7, message) == "foreign"
    # more ones than bits, in the lowest digit that the base leaves room for, and in the filling
    whole = Envelope.from_bytes(message)
    for at in range(0, len(whole.payload), 8):
        broken = whole.payload[:at] + b"\xff" * 8 + whole.payload[at + 8 :]
        assert refusal(FORM, 7, replace(whole, payload=broken).to_bytes()) == "malformed"
    for payload in (b"", whole.payload[:-8], whole.payload + bytes(8)):
        assert refusal(FORM, 7, replace(whole, payload=payload).to_bytes()) == "malformed"
    counters = FORM.begins[-1]
    for i in range(len(FORM.families)):
        ones = np.zeros(counters, np.int64)
        ones[FORM.begins[i + 1] - 1] = FORM.families[i].messages
        assert np.array_equal(read(FORM, 7, write(FORM, 7, ones, bytes(16)))[1], ones)
