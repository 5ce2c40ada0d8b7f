"""Shares of noise: their sum is near to one Gaussian, and hides what is proved."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp

import discreet as dr
from discreet.core.layout import Layout
from discreet.data.schema import Schema
from discreet.pipeline.distributed_noise import moved_cells, sum_distance
from discreet.pipeline.federated import FederationPlan

from .test_federated import law

SCHEMA = Schema(
    "ward", "patient", Layout(5, 3, 4), stationary=True, terminal=(3, 4), outcomes={4: 1.0}
)  # fmt: skip


STEPS = Schema("ward", "patient", Layout(3, 2, 2), episodes_per_user=2, contribute="random")


BUDGET = dr.Central(epsilon=1.0, delta=1e-6)


def plan_of(number: int = 3, **how: Any) -> FederationPlan:
    how = {"schema": SCHEMA, "learner": dr.DecisionPoints(), "privatizer": BUDGET, **how}
    return FederationPlan(sites=number, **how)


@pytest.mark.parametrize(("sigma", "terms"), [*itertools.product((0.5, 0.6, 0.8, 1.0), (2, 3, 5, 8))])
def test_a_sum_is_as_near_to_one_gaussian_as_proved(sigma: float, terms: int) -> None:
    """Point by point, by exact convolution; of two terms the bound is no more than three times too large."""
    reach = 15
    x = np.arange(-reach, reach + 1)
    exact = law(sigma, terms, reach)
    wide = np.exp(-(np.arange(-300, 301) ** 2) / (2 * terms * sigma**2)).sum()
    single = np.exp(-(x**2) / (2 * terms * sigma**2)) / wide
    apart = np.abs(np.log(exact / single)).max()
    assert apart <= sum_distance(sigma, terms) * (1 + 1e-6) + 1e-12
    assert terms > 2 or sum_distance(sigma, terms) < 3 * apart


@pytest.mark.parametrize(("sigma", "terms", "shift"), [(0.5, 2, 1), (0.5, 5, 1), (0.6, 3, 2), (0.9, 4, 3)])
def test_what_a_sum_hides_is_as_proved(sigma: float, terms: int, shift: int) -> None:
    """Renyi divergences of all orders, two cells moved, below equation (3), also where tau matters."""
    exact = law(sigma, terms, 60)
    p, q = exact[shift:], exact[: exact.size - shift]
    seen = (p > 1e-280) & (q > 1e-280)
    p, q = np.log(p[seen]), np.log(q[seen])
    loss = math.sqrt(2) * (shift / (math.sqrt(terms) * sigma) + 2 * sum_distance(sigma, terms))
    for order in (1.01, 1.5, 2.0, 4.0, 16.0):
        divergence = 2 * float(logsumexp(order * p - (order - 1) * q)) / (order - 1)
        assert divergence <= 0.5 * loss**2 * order * (1 + 1e-9)
        assert divergence >= 0.05 * loss**2 * order


def test_the_loss_follows_the_honest_sites() -> None:
    """rho in inverse proportion; the stated budget is met at t, and never understated by the rounding."""
    plan = plan_of(10, noise="sites", needed=9)
    assert plan.honest == 8
    assert plan.guarantee.epsilon == pytest.approx(1.0, rel=1e-9)
    assert plan.split is not None
    rho = [plan.split.among(t).guarantee.rho for t in range(1, 11)]
    assert [one * t for t, one in enumerate(rho, 1)] == pytest.approx([8 * plan.guarantee.rho] * 10, rel=1e-8)
    exact = plan.query.sensitivity(
        "l2", {name: 1 / (scale * math.sqrt(8)) for name, scale in plan.split.scales.items()}
    )
    assert exact <= math.sqrt(2 * plan.guarantee.rho) <= exact * (1 + 1e-8)


def test_how_many_cells_one_person_moves() -> None:
    """By brute force: the most cells in which two people of up to two episodes differ."""
    query = FederationPlan(STEPS, dr.DPAPVI(), BUDGET, 2).query
    paths = [
        dr.Trajectory(np.array(s), np.array(a), np.zeros(2))
        for s in itertools.product(range(3), repeat=3)
        for a in itertools.product(range(2), repeat=2)
    ]
    cells = [query.to_cells(query.contribution(path)) for path in paths]
    pairs = [(a + b, c + d) for a, b, c, d in np.random.default_rng(0).choice(cells, (3000, 4))]
    for name, begin, end in zip(query.row_families, query.offsets, query.offsets[1:], strict=False):
        most = max(int((one[begin:end] != other[begin:end]).sum()) for one, other in pairs)
        assert most <= moved_cells(query, name) <= 8
