"""The shuffle encoder: messages of one size, rounded rewards, and refused records."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from simulated_coins import SimulatedCoins

from discreet.device.message_envelope import HEADER, TAIL
from discreet.device.shuffle_encoder import ShuffleEncoder, SystemCoins, noise_ones
from discreet.device.shuffle_payload import COIN, Family, read, write

from ..test_shuffle_payload import FORM

FAIR = COIN // 2


LIFE = np.array([0, 1, 2, 2, 0]), np.array([1, 0, 1, 1]), np.array([0.0, 1.0, 0.25, 0.5])


class NoCoins:
    """All words are 0: every biased noise bit is 1, every fair one 0, and a reward above 0 rounds to 1."""

    def words(self, size):
        return np.zeros(size, np.uint64)


def test_the_device_loads_nothing_else_of_the_package():
    code = (
        "import pkgutil, sys, discreet\n"
        "first = {m for m in sys.modules if m.startswith('discreet')}\n"
        "import discreet.device\n"
        "names = ['discreet.device.' + m.name for m in pkgutil.iter_modules(discreet.device.__path__)]\n"
        "for name in names:\n"
        "    __import__(name)\n"
        "mine = {m for m in sys.modules if m.startswith('discreet')}\n"
        "assert mine == {*first, 'discreet.device', *names}, mine\n"
        "assert first == {'discreet', 'discreet.names', 'discreet.wiring', 'discreet.core', "
        "'discreet.core.registry'}, first\n"
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


def test_rewards_are_rounded_without_bias():
    """Means of 6000 bits; false alarm 2e-8 each."""
    form = replace(FORM, families=(Family("rewards", 1, 1),))  # a noise bit is 1 with probability 2^-32
    total = np.zeros(form.begins[-1])
    for user in range(6_000):
        total += read(form, 0, ShuffleEncoder(form, 0)(*LIFE, SimulatedCoins(1, user)))[1]
    rows = np.arange(4) * 6 + 2 * LIFE[0][:-1] + LIFE[1]
    assert np.all(np.abs(total[rows] / 6_000 - LIFE[2]) < 5.6 * np.sqrt(0.25 / 6_000))
    assert total[rows][:2].tolist() == [0, 6_000]


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
