"""The clipped sum: vectors stay in the ball, the loss matches that of the other group."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import discreet as dr
from discreet.core.count_query import CountQuery
from discreet.core.guarantee import MechanismRecord, guarantee_of
from discreet.core.layout import Layout
from discreet.core.rng import Secure, Seeded
from discreet.mechanisms.dataset.clipped_sum import GRID, ClippedSum

FIRST = CountQuery(Layout(3, 2, 4), stationary=True, first=True, center_rewards=True)
NORMS = {"discrete_gaussian": 2, "discrete_laplace": 1}


def record_of(randomness: Any = None, **budget: float) -> MechanismRecord:
    (record,) = dr.Central(**budget).stored_mechanism(FIRST, randomness or Secure()).records
    assert isinstance(record, MechanismRecord)
    return record


@pytest.mark.parametrize("noise", NORMS)
@pytest.mark.parametrize("size", [1, 2, 7])
def test_vectors_stay_in_the_ball_on_the_grid(noise: Any, size: int) -> None:
    rng = np.random.default_rng(3)
    query = ClippedSum(size, noise, 5.0)
    vectors = rng.standard_normal((3000, size)) * 10.0 ** rng.integers(-12, 13, (3000, 1))
    vectors[:6] = [
        [1e308] * size,
        [-1e308] * size,
        [5e-324] * size,
        [np.nan] * size,
        [np.inf] * size,
        [0.0] * size,
    ]
    for clip in (1e-9, 0.37, 1.0, 1e9):
        units = query.clipped(vectors, clip)
        assert units.dtype == np.int64
        lengths = np.linalg.norm(units.astype(float), NORMS[noise], axis=1)
        assert lengths.max() <= GRID
        assert lengths[:2].min() > GRID * (1 - 1e-5)  # a long vector reaches the bound
        assert not units[3:6].any()
    small = np.abs(vectors).max(axis=1) < 0.1
    rounded = query.clipped(vectors[small], 1.0) / GRID
    assert np.abs(rounded - vectors[small]).max() <= 1.0 / GRID  # short vectors are only rounded


@pytest.mark.parametrize("budget", [{"epsilon": 1.5}, {"epsilon": 2.0, "delta": 1e-6}, {"mu": 0.4}])
@pytest.mark.parametrize("randomness", [Secure(), Seeded(1)])
def test_the_loss_is_that_of_the_other_group(budget: dict[str, float], randomness: Any) -> None:
    other = record_of(randomness, **budget)
    query = ClippedSum.matching(other, 3)
    record = query.record
    assert record.noise == other.noise
    assert other.loss * (1 - 1e-11) < record.loss <= other.loss
    assert record.sensitivities == {"clipped_answers": 2.0}
    delta = None if record.norm == "l1" else 1e-6
    own, theirs = (
        guarantee_of("central", [one], randomness=randomness.kind, delta=delta) for one in (record, other)
    )
    assert own.epsilon is not None
    assert theirs.epsilon is not None
    assert own.epsilon <= theirs.epsilon
    assert math.isclose(own.epsilon, theirs.epsilon, rel_tol=1e-9)
    assert math.isclose(query.std, record.scales["clipped_answers"] * (math.sqrt(2) if query.laplace else 1))


def test_a_record_with_exchanges_is_refused() -> None:
    """Its epsilon is below the closed form, which the sum would have."""
    each = CountQuery(Layout(3, 2, 4), center_rewards=True)
    (record,) = dr.Central(epsilon=1.0, delta=1e-6).stored_mechanism(each, Secure()).records
    assert isinstance(record, MechanismRecord)
    if record.exchanges:
        with pytest.raises(ValueError, match="must not list exchanges"):
            ClippedSum.matching(record)


def test_secure_sums_are_on_the_grid_and_seeded_sums_repeat() -> None:
    vectors = np.random.default_rng(1).standard_normal((50, 4))
    query = ClippedSum.matching(record_of(epsilon=1.0), 4)
    one, two = (query.release(vectors, 2.0, Secure()) for _ in range(2))
    assert (one * GRID == np.rint(one * GRID)).all()
    assert (one != two).all()
    seeded = ClippedSum.matching(record_of(Seeded(0), epsilon=1.0), 4)
    again = [seeded.release(vectors, 2.0, Seeded(5, run)) for run in (0, 0, 1)]
    assert (again[0] == again[1]).all()
    assert (again[0] != again[2]).all()


def test_arguments_out_of_range_are_refused() -> None:
    query = ClippedSum(2, "discrete_gaussian", 4.0)
    good = np.zeros((3, 2))
    with pytest.raises(ValueError, match=r"vectors has shape \(3, 1\): must be \(n, 2\)"):
        query.clipped(good[:, :1], 1.0)
    with pytest.raises(ValueError, match="clip"):
        query.clipped(good, 0.0)
    with pytest.raises(ValueError, match="must be one that draws discrete_gaussian|must be of the kind"):
        query.release(good, 1.0, Seeded(0))
    with pytest.raises(ValueError, match="must be at most 4294"):
        query.check_people(2**32)
    for wrong in ({"size": 0}, {"noise": "uniform"}, {"scale": 0.0}, {"scale": 2.0**19}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            replace(query, **wrong)
