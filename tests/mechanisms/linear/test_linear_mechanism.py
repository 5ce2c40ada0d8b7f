"""Mechanisms of linear sums that anybody builds by hand: parts that do not fit together are refused."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from discreet.core.correlated_noise.binary_tree import Tree
from discreet.core.correlated_noise.optimal_tree import OptimalTree
from discreet.core.correlated_noise.signed_digit_tree import SignedDigits
from discreet.core.correlated_noise.square_root_toeplitz import SquareRoot
from discreet.core.count_mechanism import Stated
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.rng import Secure, Seeded
from discreet.core.strategies import Batches, Exact, OnDevice, Prefixes
from discreet.mechanisms.features import Features, MixtureFeatures
from discreet.mechanisms.interfaces import Schedule
from discreet.mechanisms.linear.exact_square_root import ExactSquareRoot
from discreet.mechanisms.linear.linear_mechanism import LinearMechanism
from discreet.mechanisms.linear.linear_queries import GramQuery, MixtureQuery
from discreet.mechanisms.open_session import session_of

S, A, H, D = 3, 2, 3, 2
LAYOUT = Layout(S, A, H)
RNG = np.random.default_rng(1)
MIXED = MixtureFeatures(RNG.uniform(-1, 1, (S, A, S, D)) / 4, 2.0)
QUERY = MixtureQuery(layout=LAYOUT, features=MIXED)
MODEL = GramQuery(
    layout=LAYOUT, features=Features(RNG.dirichlet(np.ones(D), (S, A)), 1.0, l1=1.0, nonneg=True)
)
SCHEDULE = Schedule(100, times=np.array([0, 10, 20, 40]))
STATED = Stated(delta=1e-6)
LEAVES = 4


def scales(query: Any = QUERY, size: float = 20.0) -> dict[str, np.ndarray]:
    return {name: np.full(shape[0], size) for name, shape in query.families.items()}


def made(query: Any = QUERY, **changes: Any) -> LinearMechanism:
    given: dict[str, Any] = {
        "schedule": SCHEDULE, "source": "seeded", "strategy": Batches(), "noise": "goe",
        "scales": scales(query), "stated": STATED,
    }  # fmt: skip
    return LinearMechanism(query, **(given | changes))


STRATEGIES = {
    "batches": (Batches(), 1), "tree": (Prefixes(Tree(LEAVES)), 2), "device": (OnDevice(), 1),
    "optimal": (Prefixes(OptimalTree(LEAVES)), 2), "square root": (Prefixes(SquareRoot(LEAVES)), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("query", [QUERY, MODEL], ids=["mixture", "gram"])
def test_scales_of_anybodys_making_state_what_they_buy(query: Any, name: str) -> None:
    """mu is the root of the sums that a user is in, times the query's losses; it doubles at half of it."""
    strategy, levels = STRATEGIES[name]
    mechanism = made(query, strategy=strategy)
    mu = math.sqrt(levels) * math.hypot(*query.losses("goe", scales(query)))
    assert mechanism.guarantee.mu == pytest.approx(mu, rel=1e-12)
    halved = replace(mechanism, scales=scales(query, 10.0))
    assert halved.guarantee.mu == pytest.approx(2 * mu, rel=1e-12)
    assert session_of(halved, Seeded(0)).guarantee == halved.guarantee


def test_no_noise_promises_nothing_and_has_no_noise_terms() -> None:
    exact = made(strategy=Exact(), scales={})
    assert exact.guarantee.epsilon is None
    assert exact.terms(20, 2, 20, None) == (0.0, 0.0)
    assert made().terms(0, 0, 0, None) == (0.0, 0.0)
    assert made().terms(20, 2, 20, None) == (2.0, 2.0)
    assert made().terms(40, 3, 40, 2) == (2.0, 2.0)  # two batches made one
    assert made(strategy=OnDevice()).terms(20, 2, 17, None) == (17.0, 17.0)


class Cheaper(Batches):
    """What it does nobody has looked at."""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategy": Cheaper()}, "strategy = .*must be an Exact or Batches or Prefixes or OnDevice"),
        ({"strategy": "batches"}, "strategy = 'batches'"),
        ({"source": "dice"}, "source = 'dice'"),
        ({"noise": "uniform"}, "noise = 'uniform'"),
        ({"grid": 1}, "grid = 1"),
        ({"grid": 1024}, "grid = 1024: must be given with noise from source 'secure'"),
        ({"source": "secure"}, "grid = None: must be given with noise from source 'secure'"),
        ({"stated": Stated(delta=1e-6, numerical=True)}, "stated.numerical = True"),
        ({"strategy": Batches(0.5)}, "have no decay"),
        ({"strategy": Prefixes(Tree(LEAVES + 1))}, "has 5 leaves, which are not those"),
        ({"strategy": Prefixes(Tree(LEAVES), "user")}, "has 4 leaves, which are not those"),
        ({"strategy": Prefixes(Tree(LEAVES), "person")}, "strategy.leaf = 'person'"),  # type: ignore[arg-type]
        ({"strategy": Prefixes(SignedDigits(LEAVES, 3))}, "walk"),
        ({"strategy": Prefixes(SquareRoot(LEAVES)), "noise": "laplace"}, "large l1 norm"),
        ({"strategy": Prefixes(ExactSquareRoot(LEAVES))}, "integers are measured of batches"),
        ({"strategy": Prefixes(OptimalTree(LEAVES)), "source": "secure", "grid": 1024}, "add up no integers"),
        ({"strategy": Prefixes(SquareRoot(LEAVES)), "source": "secure", "grid": 1024}, "add up no integers"),
        ({"strategy": Exact()}, "scales: must be empty without noise"),
        ({"scales": {}}, r"scales\['.*'\] = \[\]"),
        ({"scales": scales() | {"more": np.ones(1)}}, "scales has families"),
        ({"scales": scales(size=1e-18), "source": "secure", "grid": 1024}, "grid units"),
        ({"scales": scales(size=1e15), "source": "secure", "grid": 1024}, "grid units"),
        ({"query": CountQuery(LAYOUT)}, "must be a MixtureQuery or GramQuery"),
        ({"schedule": "now"}, "must be a Schedule, no subclass"),
        ({"questions": (object(),)}, "questions: must be empty"),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    query = changes.pop("query", QUERY)
    with pytest.raises(ValueError, match=message):
        made(QUERY, **changes) if query is QUERY else LinearMechanism(
            query, SCHEDULE, "seeded", Batches(), scales=scales()
        )


@pytest.mark.parametrize("query", [QUERY, MODEL], ids=["mixture", "gram"])
@pytest.mark.parametrize("bad", [0.0, -20.0, np.inf, -np.inf, np.nan])
def test_no_statistic_is_released_without_noise(query: Any, bad: float) -> None:
    """One bad scale among many, in every family and at every step where something is summed."""
    mechanism = made(query)
    released = {(name, unit.step) for unit in query.units("goe") for name in unit.own}
    assert {name for name, _ in released} == set(query.families)
    for name, step in released:
        broken = {key: np.array(value) for key, value in mechanism.scales.items()}
        broken[name][step] = bad
        with pytest.raises(ValueError, match="scales"):
            replace(mechanism, scales=broken)
    for name in query.families:
        for wrong in (np.full(1 + len(mechanism.scales[name]), 20.0), np.float64(20.0)):
            with pytest.raises(ValueError, match="scales"):
                replace(mechanism, scales={**mechanism.scales, name: wrong})


def test_noise_is_drawn_from_the_source_that_was_priced() -> None:
    seeded = made()
    secure = made(source="secure", grid=1024)
    for mechanism, randomness in (
        (seeded, Secure(1024)), (secure, Seeded(0)), (secure, Secure(2048)), (seeded, "dice"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="randomness = "):
            mechanism.check_source(randomness)
        with pytest.raises(ValueError, match="randomness = "):
            session_of(mechanism, randomness)  # type: ignore[arg-type]
    secure.check_source(Secure(1024))
    seeded.check_source(Seeded(0))


def test_scales_cannot_be_changed_after_they_were_priced() -> None:
    given = scales()
    mechanism = made(scales=given)
    before = mechanism.guarantee
    for array in given.values():
        array *= 1e-3
    assert replace(mechanism).guarantee == before
    with pytest.raises(ValueError, match="read-only"):
        mechanism.scales[next(iter(given))][0] = 1.0  # type: ignore[index]
    with pytest.raises(TypeError, match="fixed"):
        mechanism.scales.clear()  # type: ignore[attr-defined]


@pytest.mark.parametrize("query", [QUERY, MODEL], ids=["mixture", "gram"])
def test_laws_are_of_the_dimensions_that_are_released(query: Any) -> None:
    for name, law in made(query).laws_at(20).items():
        shape = query.families[name]
        if query.is_gram(name):
            assert law.dimension == shape[1]
        else:
            assert (law.dimension, law.size) == (shape[-1], math.prod(shape[1:]))
