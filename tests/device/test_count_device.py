"""The device of noisy counters: what its message costs, and messages that it reads."""

import numpy as np
import pytest

from discreet.device.count_device import CountDevice
from discreet.device.message_envelope import MessageRejected

FAMILIES = (("visits", 2.0), ("transition_counts", 4.0))
DEVICE = CountDevice(2, 2, 3, FAMILIES, "laplace", session=7)


def counted(states: list[int], actions: list[int]) -> dict[str, np.ndarray]:
    """Return a user's counters by their definition."""
    tables = {"visits": np.zeros((3, 2, 2)), "transition_counts": np.zeros((3, 2, 2, 2))}
    for h, action in enumerate(actions):
        tables["visits"][h, states[h], action] += 1
        tables["transition_counts"][h, states[h], action, states[h + 1]] += 1
    return tables


def test_epsilon_is_the_largest_over_all_pairs_of_users() -> None:
    rng, worst = np.random.default_rng(2), 0.0
    for _ in range(400):
        one, two = (counted(rng.integers(2, size=4).tolist(), rng.integers(2, size=3).tolist()) for _ in "ab")
        worst = max(worst, sum(np.abs(one[name] - two[name]).sum() / scale for name, scale in FAMILIES))
    assert DEVICE.guarantee.epsilon == pytest.approx(worst)
    assert DEVICE.guarantee.epsilon == pytest.approx(3 * (2 / 2.0 + 2 / 4.0))


def test_cells_are_those_of_the_definition() -> None:
    states, actions = np.array([0, 1, 1, 0]), np.array([1, 0, 1])
    rows = DEVICE.row_table[states[:-1], actions]
    cells = np.zeros(DEVICE.offsets[-1])
    DEVICE.add(states, rows, np.zeros(3), cells)
    tables = counted(states.tolist(), actions.tolist())
    np.testing.assert_array_equal(cells, np.concatenate([tables[name].ravel() for name, _ in FAMILIES]))


def test_a_message_is_read_for_its_plan_and_session_alone() -> None:
    cells = np.arange(DEVICE.offsets[-1])
    message = DEVICE.write(3, cells, bytes(16))
    nonce, found = DEVICE.read(3, message)
    assert nonce == bytes(16)
    np.testing.assert_array_equal(found, cells * DEVICE.units)
    with pytest.raises(MessageRejected):
        DEVICE.of(8).read(3, message)
    with pytest.raises(MessageRejected):
        DEVICE.read(3, message[:-1])
