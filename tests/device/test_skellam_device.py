"""Device of sums with Skellam noise: contributions, brute-force sensitivities, messages."""

import itertools

import numpy as np
import pytest

from discreet.core.rng import SecureRng
from discreet.device.feature_map import FeatureMap
from discreet.device.linear_forms import GRAM
from discreet.device.message_envelope import MessageRejected
from discreet.device.skellam_device import SkellamDevice, levels_of, noise_reach
from discreet.device.skellam_noise import skellam
from discreet.mechanisms.linear.context_query import ContextQuery, ContextRecords
from discreet.mechanisms.shuffle.skellam_session import _loss


def query(p: int = 2, form: str = "per_action", actions: int = 2) -> ContextQuery:
    ranges = {f"x{i}": (-1.0, 1.0) for i in range(p - 1)}
    return ContextQuery(features=FeatureMap(ranges, actions, form))


def device(own: ContextQuery, variance: int = 1000) -> SkellamDevice:
    return SkellamDevice(own.form, (variance,) * len(own.blocks), 7)


@pytest.mark.parametrize("form", ["per_action", "shared"])
def test_brute_force_of_the_sensitivities(form):
    """No pair of records exceeds the stated l2, l1 and cell sensitivities; l2 is nearly reached."""
    own = query(3, form)
    made = device(own)
    rng = np.random.default_rng(0)
    shape = own.features.shape
    corners = np.array(list(itertools.product((-1.0, -0.3, 0.0, 1.0), repeat=int(np.prod(shape)))))
    contexts = np.concatenate([corners.reshape(-1, *shape)[:150], rng.uniform(-3, 3, (60, *shape))])
    cells = np.array(
        [
            made.contributions(x[None], np.array([a]), np.array([y]))
            for x in contexts for a in (0, 1) for y in (0, 64)
        ]
    )  # fmt: skip
    variances = np.repeat(made.variances, np.diff(own.offsets)).astype(float)
    # noise of different sizes, as the mechanism uses it: twice the variance on the diagonal
    for i, (name, _, diagonal) in enumerate(own.blocks):
        part = slice(own.offsets[i], own.offsets[i + 1])
        variances[part] = (3e6 if name == GRAM else 1e6) * (2.0 if diagonal else 1.0)
    loss = _loss(own, [variances[begin] for begin in own.offsets[:-1]])
    worst = 0.0
    for one in cells[rng.permutation(len(cells))[:200]]:
        moved = np.abs(cells - one)
        squared = (moved**2 / variances).sum(axis=1).max()
        assert squared <= loss.mu**2 * (1 + 1e-12)
        assert (moved / variances).sum(axis=1).max() <= loss.l1
        assert (moved / variances).max() <= loss.step
        assert moved.max() <= loss.shift
        worst = max(worst, squared)
    assert worst > 0.7 * loss.mu**2


def test_strange_contexts_stay_within_the_bounds():
    own = query(3)
    made = device(own)
    for x in (np.nan, np.inf, -np.inf, 1e308, 5e-324):
        found = made.contributions(np.full((1, 2), x), np.array([0]), np.array([64]))
        trace = found[: own.offsets[1]].sum()
        assert 0 <= trace <= 4.0**made.levels


def test_contributions_are_integers_near_the_exact_ones():
    own = query(3)
    made, rng = device(own), np.random.default_rng(1)
    records = ContextRecords(rng.normal(size=(50, 1, 2)), rng.integers(0, 2, (50, 1)), np.ones((50, 1)))
    found, exact = made.sums(records), own.sums_of(records)
    for name, table in exact.items():
        assert np.abs(found[name] - table).max() < 50 * 3 * 2.0**-made.levels
    single = sum(
        made.contributions(records.contexts[i], records.actions[i], np.array([64])) for i in range(50)
    )
    assert np.array_equal(own.to_cells(found) / made.cell_units, single)  # bit for bit
    with pytest.raises(ValueError, match="multiples of 1 / 64"):
        made.sums(ContextRecords(records.contexts, records.actions, np.full((50, 1), 0.3)))


def test_messages_have_one_size_and_are_read_exactly():
    own = query()
    made, sizes = device(own), set()
    for reward in (0.0, 0.3, 1.0):
        message = made(4, np.zeros((1, 1)), np.array([1]), np.array([reward]), SecureRng())
        _, cells = made.read(4, message)
        assert made.write(4, cells, message[32:48]) == message
        sizes.add(len(message))
    assert len(sizes) == 1
    again = SkellamDevice.from_bytes(made.to_bytes())
    assert (again.digest, again.variances, again.width) == (made.digest, made.variances, made.width)
    with pytest.raises(MessageRejected, match="plan 4"):
        made.read(5, message)
    with pytest.raises(MessageRejected, match="another session"):
        SkellamDevice(own.form, made.variances, 8).read(4, message)
    far = np.zeros(own.cells, np.int64)
    far[0] = made.reach[0] + 1
    with pytest.raises(MessageRejected, match="no device sends"):
        made.read(4, made.write(4, far, bytes(16)))
    with pytest.raises(MessageRejected, match="bytes"):
        made.read(4, made.write(4, far[1:], bytes(16)))


def test_rounding_of_rewards_has_no_bias():
    """Mean of 4000 draws within six standard errors: alarm probability 2e-9."""
    from discreet.device.skellam_device import _rounded

    drawn = _rounded(np.full(4000, 0.3), SecureRng())
    assert set(np.unique(drawn)) <= {19, 20}
    assert abs(drawn.mean() - 19.2) < 6 * 0.4 / np.sqrt(4000)
    assert _rounded(np.array([0.0, 1.0, 0.5]), SecureRng()).tolist() == [0, 64, 32]


def test_reach_of_noise():
    for variance in (2, 100, 10**6, 10**10):
        reach = noise_reach(variance)
        assert reach > 14 * np.sqrt(variance)
        assert np.abs(skellam(variance, 2000, SecureRng())).max() < reach
    assert noise_reach(10**10) < 20 * 1e5


def test_levels_grow_with_the_dimension():
    assert [levels_of(p) for p in (1, 10, 16, 17, 200)] == [7, 7, 7, 8, 9]


def test_forms_that_are_refused():
    own = query()
    with pytest.raises(ValueError, match="variances has 1 numbers"):
        SkellamDevice(own.form, (2,))
    with pytest.raises(ValueError, match="must be even"):
        device(own, 3)
    with pytest.raises(ValueError, match=r"variances\[0\] = 0"):
        device(own, 0)
    with pytest.raises(ValueError, match="published"):
        SkellamDevice.from_bytes(b"nothing")
    assert "no epsilon holds" in device(own).guarantee.statement
