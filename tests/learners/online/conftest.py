"""Shared helpers: hand-made releases with test-double noise laws, random problems."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from discreet.accounting.noise_distributions.distributions import NoNoise
from discreet.core.layout import Layout
from discreet.mechanisms.interfaces import Estimate, ProblemSpec, Release

MASK = np.array([[True, True, False], [True, False, False], [False, True, True], [True, True, True]])


@dataclass(frozen=True)
class Bounded:
    """A law whose noise never exceeds ``most``, whose row sums never exceed ``rows_most``."""

    most: float
    rows_most: float = 0.0
    family: str = "test"
    exact: bool = True

    def std(self):
        return self.most / 2

    def std_bound(self):
        return self.most / 2

    def bound(self, failure, rows=False):
        return self.rows_most if rows else self.most


@dataclass(frozen=True)
class Problem:
    """A random problem with exact expected counts and one noisy release of them, by (t, s, a)."""

    layout: Layout
    spec: ProblemSpec
    transitions: np.ndarray
    rewards: np.ndarray
    visits: np.ndarray  # exact
    errors: tuple[float, float, float, float]
    tables: dict
    laws: dict

    def release(self, number=1, users=1000, quiet=False):
        tables = self.tables
        if quiet:
            n = self.visits
            tables = {
                "visits": n,
                "transition_counts": n[..., None] * self.transitions,
                "reward_sums": n * self.rewards,
            }
        laws = dict.fromkeys(tables, NoNoise()) if quiet else self.laws
        estimates = {name: Estimate(value, laws[name]) for name, value in tables.items()}
        return Release(estimates, users, number, SimpleNamespace())


def make_problem(
    seed=0, mask=None, slots=None, errors=(3.0, 4.0, 2.0, 6.0), most=2000.0, users=5000, horizon=4
):
    layout = Layout(4, 3, horizon, mask)
    g = np.random.default_rng(seed)
    slots = slots or horizon
    allowed = np.ones((4, 3), bool) if mask is None else mask
    p = g.dirichlet(np.full(4, 0.5), (slots, 4, 3)) * allowed[:, :, None]
    r = g.random((slots, 4, 3)) * allowed
    n = g.uniform(0, most, (slots, 4, 3)) * (g.random((slots, 4, 3)) < 0.8) * allowed
    n = np.round(n)
    e1, e2, e3, e_row = errors
    noise = lambda shape, e: g.uniform(-e, e, shape)  # noqa: E731
    n3 = n[..., None] * p
    tables = {
        "visits": (n + noise(n.shape, e1)) * allowed,
        "transition_counts": (n3 + noise(n3.shape, e3)) * allowed[:, :, None],
        "reward_sums": (n * r + noise(n.shape, e2)) * allowed,
    }
    laws = {
        "visits": Bounded(e1),
        "transition_counts": Bounded(e3, e_row),
        "reward_sums": Bounded(e2),
    }
    spec = ProblemSpec(layout, users, stationary=slots == 1)
    return Problem(layout, spec, p, r, n, errors, tables, laws)


@pytest.fixture
def problem():
    """``make_problem``."""
    return make_problem


@pytest.fixture
def mask():
    """(4, 3) admissible actions."""
    return MASK


@pytest.fixture
def bounded():
    """The test-double law."""
    return Bounded


SHAPES = [(None, None), ("mask", None), (None, 1)]


@pytest.fixture(params=SHAPES, ids=["full", "masked", "pooled"])
def made(request, problem, mask):
    """A problem maker: problem(errors=...), full, masked or pooled."""
    use_mask, slots = request.param

    def build(**options):
        return problem(mask=mask if use_mask else None, slots=slots, **options)

    build.pooled = slots == 1
    return build
