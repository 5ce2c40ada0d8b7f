"""Sums over people of one vector each: sensitivities by brute force, rounding, a slow account."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from discreet.core.rng import checked_on_grid
from discreet.mechanisms.linear.per_user_means import GRID, PersonSums


def largest(sums: PersonSums, records: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """The largest distance of two people's own sums, in units of the values."""
    own = [
        sums.exact(np.zeros(len(cell), np.int64), cell, payload).ravel() / GRID for cell, payload in records
    ]
    return max(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(own, 2))


def records_of(kind: str, cells: int, size: int, seed: int) -> tuple[PersonSums, list[Any]]:
    """Random people, and the extremes: one step at a corner of the ball, in one cell or another."""
    draw = np.random.default_rng(seed)
    radius = float(draw.uniform(0.5, 4))
    found = []
    for i in range(60):
        steps = int(draw.integers(1, 5)) if i % 2 else 1
        cell = draw.integers(0, cells, steps)
        if kind == "histogram":
            found.append((cell, np.ones((steps, 1))))
            continue
        z = draw.normal(size=(steps, size))
        z *= radius / np.linalg.norm(z, axis=1, keepdims=True) * (1 if i % 2 else draw.uniform(0, 1))
        if i < 6:  # opposite ends
            z = np.zeros((1, size))
            z[0, 0], cell = radius * (-1) ** i, np.array([i // 2 % cells])
        found.append((cell, np.column_stack([z, np.full(len(z), radius)])))
    if kind == "histogram":
        return PersonSums(cells, 1, 1.0, 0.0, 4), found
    return PersonSums(cells, size + 1, math.sqrt(2) * radius, 2 * radius, 4), found


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["means", "histogram"])
def test_sensitivities_by_brute_force(kind: str, seed: int) -> None:
    sums, records = records_of(kind, cells=2 + seed % 5, size=1 + seed % 3, seed=seed)
    found = largest(sums, records)
    assert found <= sums.sensitivity
    assert found >= 0.999 * sums.sensitivity  # it is attained, so that no budget is wasted


def test_rounding_is_in_the_sensitivity(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a coarse grid rounding is all that matters; people in many cells, on halves of steps."""
    monkeypatch.setattr("discreet.mechanisms.linear.per_user_means.GRID", 4)
    draw = np.random.default_rng(0)
    for _ in range(300):
        cells, steps = int(draw.integers(1, 6)), 3
        sums = PersonSums(cells, 2, 1.0, math.sqrt(2.0), steps)
        owner = np.zeros(steps, np.int64)
        people = []
        for _ in range(2):
            payload = draw.normal(size=(steps, 2))
            payload /= np.maximum(np.linalg.norm(payload, axis=1, keepdims=True), 1.0)
            people.append(sums.exact(owner, draw.integers(0, cells, steps), payload) / 4)
        exact = max(sums.apart, math.sqrt(2) * sums.bound)
        assert np.linalg.norm(people[0] - people[1]) <= sums.sensitivity
        assert sums.sensitivity > exact


def test_sums_of_many_people_by_a_slow_account() -> None:
    draw = np.random.default_rng(1)
    owner = np.sort(draw.integers(0, 30, 200))
    cell, payload = draw.integers(0, 7, 200), draw.uniform(-1, 1, (200, 3))
    expected = np.zeros((7, 3), np.int64)
    for one in np.unique(owner):
        own = np.zeros((7, 3))
        for j, y in zip(cell[owner == one], payload[owner == one], strict=True):
            own[j] += y
        expected += np.rint(own / (owner == one).sum() * GRID).astype(np.int64)
    found = PersonSums(7, 3, math.sqrt(3), 2 * math.sqrt(3), 7).exact(owner, cell, payload)
    assert np.abs(found - expected).max() <= 30  # the last bit of a mean
    assert np.abs(found - expected).mean() < 1


def test_no_sum_can_wrap() -> None:
    """2^24 people who add up to 2^19 each would reach 2^63 units: refused from public numbers alone."""
    radius, people = 2.0**19, 2**24
    sums = PersonSums(1, 2, math.sqrt(2) * radius, 2 * radius, 1, radius)
    assert people * radius * GRID == 2.0**63
    with pytest.raises(
        ValueError, match=r"people = 16777216: must be at most 8192 .* 524288 .* larger scale"
    ):
        sums.check_people(people, ": declare a larger scale")
    sums.check_people(8192)  # 2^52 exactly
    with pytest.raises(ValueError, match="people = 8193"):
        sums.check_people(8193)


def test_at_the_limit_noise_has_room_too() -> None:
    """One person more than the limit is refused at the door; at the limit noise cannot leave 2^52.

    Without room for noise half of all releases at 2^52 exactly would be stopped after they were paid for. The
    discrete Gaussian is beyond 12 sigma with probability below 2 exp(-72); here its largest value is put.
    """
    radius, sigma = 2.0**19, 3 * 2**30
    sums = PersonSums(1, 2, math.sqrt(2) * radius, 2 * radius, 1, radius)
    one = radius * GRID * (1 + 1e-9) + 0.5
    limit = math.floor((2**52 - 12 * sigma) / one)
    assert limit == 8191
    for people in (limit - 1, limit):
        sums.check_people(people, sigma=sigma)
        exact = np.full((1, 2), people * math.ceil(one))
        assert (checked_on_grid(exact + 12 * sigma, 1) == exact + 12 * sigma).all()
    with pytest.raises(
        ValueError, match=rf"people = {limit + 1}: must be at most {limit} .* with their noise"
    ):
        sums.check_people(limit + 1, sigma=sigma)
    with pytest.raises(ValueError, match="must be at most 0"):  # noise alone would leave it
        sums.check_people(1, sigma=2**50)
    sums.check_people(limit + 1)  # of sums that were released already


def test_people_are_counted_before_they_are_summed() -> None:
    """The sum itself refuses, and the largest that it takes is exact where float64 would round."""
    radius = 2.0**32
    sums = PersonSums(1, 1, radius, 2 * radius, 1)
    with pytest.raises(ValueError, match="people = 2: must be at most 1"):
        sums.exact(np.arange(2), np.zeros(2, np.int64), np.full((2, 1), radius))
    fine = PersonSums(1, 1, 2.0**20, 2.0**21, 1)
    value = np.full((4096, 1), 2.0**20)
    value[1::2] -= 2.0**-20
    found = fine.exact(np.arange(4096), np.zeros(4096, np.int64), value)
    assert int(found[0, 0]) == 4096 * 2**40 - 2048
