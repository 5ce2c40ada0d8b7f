"""The device: what leaves it, in which form, and what a reader refuses."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from discreet.core.noise.seeded_rng import SeededRng
from discreet.core.rng import SecureRng, Seeded
from discreet.device.message_envelope import HEADER, TAIL, Envelope, MessageRejected
from discreet.device.shuffle_encoder import ShuffleEncoder, SimulatedCoins, SystemCoins, noise_ones
from discreet.device.shuffle_payload import COIN, Family, SessionConfig, pack, read, unpack, write

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


class NoCoins:
    """All words are 0: every biased noise bit is 1, every fair one 0, and a reward above 0 rounds to 1."""

    def words(self, size):
        return np.zeros(size, np.uint64)


def test_the_device_loads_nothing_else_of_the_package():
    code = (
        "import pkgutil, sys, discreet.device\n"
        "names = ['discreet.device.' + m.name for m in pkgutil.iter_modules(discreet.device.__path__)]\n"
        "for name in names:\n"
        "    __import__(name)\n"
        "mine = {m for m in sys.modules if m.startswith('discreet')}\n"
        "assert mine == {'discreet', 'discreet.device', *names}, mine\n"
        "assert len(names) >= 10, names\n"
        "others = {m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)\n"
        "assert not others & {'scipy', 'numba', 'pandas', 'pyarrow', 'dp_accounting'}, others\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_message_is_the_users_bits_and_her_noise():
    message = ShuffleEncoder(FORM, 7)(*LIFE, NoCoins())
    nonce, ones = read(FORM, 7, message)
    assert nonce == bytes(16)
    parts = [ones[a:b] for a, b in zip(FORM.begins[:-1], FORM.begins[1:], strict=True)]
    visits, transitions, rewards = np.zeros((4, 6)), np.zeros((4, 6, 3)), np.zeros((4, 6))
    for h in range(4):
        row = 2 * LIFE[0][h] + LIFE[1][h]
        visits[h, row] = 1
        transitions[h, row, LIFE[0][h + 1]] = 1
        rewards[h, row] = LIFE[2][h] > 0
    assert np.array_equal(parts[0], visits.ravel() + 1)
    assert np.array_equal(parts[1], transitions.ravel())
    assert np.array_equal(parts[2], rewards.ravel())
    # who was not there sends (0, 1), who was (y, y); of four paired flips the first two are 1
    assert np.array_equal(parts[3], np.where(visits > 0, 2 * rewards, 1).ravel() + 2)


def test_every_message_has_one_size():
    other = np.zeros(5, int), np.zeros(4, int), np.ones(4)
    sizes = {len(ShuffleEncoder(FORM, 1)(*life)) for life in (LIFE, other) for _ in range(5)}
    assert sizes == {FORM.size}
    assert FORM.size == HEADER + 8 * sum(FORM.words) + TAIL


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


def test_rewards_are_rounded_without_bias():
    """Means of 6000 bits; false alarm 2e-8 each."""
    form = replace(FORM, families=(Family("rewards", 1, 1),))  # a noise bit is 1 with probability 2^-32
    total = np.zeros(form.begins[-1])
    for user in range(6_000):
        total += read(form, 0, ShuffleEncoder(form, 0)(*LIFE, SimulatedCoins(1, user)))[1]
    rows = np.arange(4) * 6 + 2 * LIFE[0][:-1] + LIFE[1]
    assert np.all(np.abs(total[rows] / 6_000 - LIFE[2]) < 5.6 * np.sqrt(0.25 / 6_000))
    assert total[rows][:2].tolist() == [0, 6_000]


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


def test_bad_forms_and_records_are_refused():
    for wrong in (
        {"kind": "nonsense"}, {"flips": 0}, {"coin": 0}, {"coin": FAIR + 1}, {"coin": 2.0}, {"paired": True},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=next(iter(wrong))):
            replace(FORM.families[0], **wrong)
    with pytest.raises(ValueError, match="even"):
        Family("centered_rewards", 3, FAIR, True)
    for wrong in ({"states": 0}, {"families": ()}, {"session": -1}, {"rows": ((0, 1), (2, 3))}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            replace(FORM, **wrong)
    masked = replace(FORM, rows=((0, -1), (1, 2), (3, 4)))
    assert masked.counters == (20, 60, 20, 20)
    encoder = ShuffleEncoder(masked, 1)
    states, actions, rewards = LIFE
    with pytest.raises(ValueError, match="admissible"):
        encoder(states, actions, rewards)
    encoder = ShuffleEncoder(FORM, 1)
    for life, match in (
        ((states[:-1], actions, rewards), "states"), ((states + 2, actions, rewards), "states"),
        ((states, actions + 1, rewards), "actions"), ((states, actions * 1.0, rewards), "actions"),
        ((states, actions, rewards + 0.5), "rewards"), ((states, actions, rewards * np.nan), "rewards"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=match):
            encoder(*life)
    with pytest.raises(ValueError, match="larger batches"):
        noise_ones(Family("visits", 2**27, FAIR), 3, SystemCoins())
    with pytest.raises(ValueError, match="nonce"):
        write(FORM, 1, np.zeros(FORM.begins[-1], np.int64), b"")
