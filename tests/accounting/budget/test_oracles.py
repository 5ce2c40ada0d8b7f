"""Other libraries as oracles: OpenDP, dp-accounting and dpcrpy, where they compute the same number.

A library that is not installed is skipped (`make test-oracles` installs all). No test draws noise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from discreet.accounting.budget import gdp_epsilon, gdp_mu, zcdp_delta, zcdp_epsilon
from discreet.accounting.privacy_filter import pure_rho
from discreet.accounting.randomized_response_event import ReportRecord
from discreet.audit.noise_matrix import noise_matrix
from discreet.core.correlated_noise.binary_tree import Tree
from discreet.core.correlated_noise.optimal_tree import OptimalTree, node_variances

RHOS = (1e-3, 0.1, 2.63, 50.0)
DELTAS = (1e-4, 1e-6, 1e-10)


@pytest.fixture(scope="module")
def opendp() -> Any:
    found = pytest.importorskip("opendp.prelude", reason="opendp is not installed")
    found.enable_features("contrib", "honest-but-curious")
    return found


@pytest.fixture(scope="module")
def dpcrpy() -> Any:
    pytest.importorskip("dpcrpy", reason="dpcrpy is not installed")
    from dpcrpy.framework import noiMech
    from dpcrpy.treeMethods import binMech, honaker

    return {"noise": noiMech.GaussNoiMech, "tree": binMech.BinMech, "optimal": honaker.Honaker}


def space(dp: Any) -> tuple[Any, Any]:
    return dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)


# ------------------------------------------------------------------------------------------ OpenDP
@pytest.mark.parametrize("rho", RHOS)
def test_zcdp_at_a_delta_is_that_of_opendp(opendp: Any, rho: float) -> None:
    gaussian = opendp.m.make_gaussian(*space(opendp), scale=1 / math.sqrt(2 * rho))
    assert gaussian.map(1.0) == pytest.approx(rho, rel=1e-12)
    profile = opendp.c.make_zCDP_to_approxDP(gaussian).map(1.0)
    for delta in DELTAS:
        assert zcdp_epsilon(rho, delta) == pytest.approx(profile.epsilon(delta), rel=1e-12)
        epsilon = zcdp_epsilon(rho, delta)
        assert zcdp_delta(rho, epsilon) == pytest.approx(profile.delta(epsilon), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_pure_epsilon_gives_no_more_rho_than_in_opendp(opendp: Any, epsilon: float) -> None:
    """OpenDP bounds rho by epsilon^2 / 2; epsilon tanh(epsilon / 2) is smaller, and equal in the limit."""
    laplace = opendp.m.make_laplace(*space(opendp), scale=1 / epsilon)
    theirs = opendp.c.make_pureDP_to_zCDP(laplace).map(1.0)
    assert theirs * (1 - epsilon**2) <= pure_rho(epsilon) <= theirs


@pytest.mark.parametrize(("labels", "keep"), [(2, 0.8), (4, 0.7), (30, 0.2)])
def test_randomized_response_costs_what_opendp_says(opendp: Any, labels: int, keep: float) -> None:
    response = opendp.m.make_randomized_response(categories=[str(i) for i in range(labels)], prob=keep)
    own = round(keep * 2**53)
    record = ReportRecord("direct", 1, {"labels": ("subset", labels, 1, own, 0)})
    assert record.loss == pytest.approx(response.map(1), rel=1e-12)


# ----------------------------------------------------------------------------------- dp-accounting
@pytest.mark.parametrize("mu", [0.2, 1.0])
def test_gaussian_epsilon_is_that_of_dp_accounting(mu: float) -> None:
    """Its pessimistic and its optimistic law of the loss enclose the exact epsilon."""
    losses = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution", reason="no dp-accounting")
    for delta in (1e-4, 1e-6):
        low, high = (
            losses.from_gaussian_mechanism(
                1 / mu, value_discretization_interval=1e-3, pessimistic_estimate=pessimistic
            ).get_epsilon_for_delta(delta)
            for pessimistic in (False, True)
        )
        assert low * (1 - 1e-6) <= gdp_epsilon(mu, delta) <= high * (1 + 1e-6)
        assert high <= low * 1.01


# ------------------------------------------------------------------------------------------ dpcrpy
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-5), (1.0, 1e-6), (3.0, 1e-8)])
def test_gaussian_scale_is_that_of_dpcrpy(dpcrpy: Any, epsilon: float, delta: float) -> None:
    """dpcrpy searches the scale to some five digits."""
    assert dpcrpy["noise"](epsilon, delta).sigma0 == pytest.approx(1 / gdp_mu(epsilon, delta), rel=1e-5)


@pytest.mark.parametrize("order", [1, 3, 5])
def test_variances_of_trees_are_those_of_dpcrpy(dpcrpy: Any, order: int) -> None:
    """dpcrpy releases the root of 2^order time steps, as a walk of 2^order + 1 leaves does."""
    steps = 2**order
    for name, walk in (("tree", Tree(steps + 1)), ("optimal", OptimalTree(steps + 1))):
        made = dpcrpy[name](order, dpcrpy["noise"](sigma0=1.0))
        theirs = [made.dpRelease(0.0)[1] for _ in range(steps)]
        matrix, _ = noise_matrix(walk)
        scale = walk.column_norm("l2") ** 2
        assert scale == made.getL2Sens() ** 2 == pytest.approx(made.getL1Sens())
        np.testing.assert_allclose((matrix**2).sum(axis=1) * scale, theirs, rtol=1e-3)
    nodes = node_variances(order + 1)
    exact = [sum(nodes[bit] for bit in range(order + 1) if n >> bit & 1) for n in range(1, steps + 1)]
    np.testing.assert_allclose(np.multiply(exact, order + 1), theirs, rtol=1e-12)
