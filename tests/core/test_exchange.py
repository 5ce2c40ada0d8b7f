"""The heaviest walk of two users, compared with every pair of trajectories and every sequence of cases."""

import itertools

import numpy as np
import pytest

from discreet.core.exchange import (
    ALL_STEPS,
    EACH_STEP,
    FIRST_VISITS,
    CaseCosts,
    OneStep,
    heaviest,
    heaviest_of,
    mixes,
)


def cases_of_pairs(states: int, steps: int) -> set[tuple[int, ...]]:
    """Cases (0 OTHER, 1 SUCCESSOR, 2 SAME) per step, over all pairs of trajectories with two actions."""
    paths = [
        (path, actions)
        for path in itertools.product(range(states), repeat=steps + 1)
        for actions in itertools.product(range(2), repeat=steps)
    ]
    found = set()
    for (s, a), (t, b) in itertools.product(paths, repeat=2):
        found.add(
            tuple(
                0 if (s[h], a[h]) != (t[h], b[h]) else 1 if s[h + 1] != t[h + 1] else 2 for h in range(steps)
            )
        )
    return found


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_heaviest_walk_is_that_of_the_worst_pair_of_trajectories(steps: int) -> None:
    rng = np.random.default_rng(steps)
    walks = cases_of_pairs(2, steps)
    for _ in range(200):
        costs = [CaseCosts(*rng.uniform(0.0, 2.0, 3).tolist()) for _ in range(steps)]
        one = costs[0]

        def total(walk: tuple[int, ...], of: list[CaseCosts]) -> float:
            return sum((c.other, c.extra + c.same, c.same)[k] for k, c in zip(walk, of, strict=True))

        assert heaviest_of(costs) == pytest.approx(max(total(walk, costs) for walk in walks), rel=1e-12)
        assert heaviest(one, steps) == pytest.approx(max(total(walk, [one] * steps) for walk in walks))


@pytest.mark.parametrize("steps", [1, 2, 5, 40])
def test_both_ways_of_pricing_agree(steps: int) -> None:
    rng = np.random.default_rng(steps)
    for _ in range(100):
        costs = CaseCosts(*rng.uniform(0.0, 2.0, 3).tolist())
        assert heaviest(costs, steps) == pytest.approx(heaviest_of([costs] * steps), rel=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_mixes_have_the_most_successors_of_any_walk(steps: int) -> None:
    most: dict[int, int] = {}
    for walk in cases_of_pairs(2, steps):
        most[walk.count(0)] = max(most.get(walk.count(0), 0), walk.count(1))
    assert {mix.other: mix.successor for mix in mixes(steps)} == most
    assert all(sum(mix) == steps for mix in mixes(steps))


def test_how_records_reach_cells() -> None:
    costs = CaseCosts(2.0, 1.0, 0.5)
    assert (EACH_STEP.slots(4), EACH_STEP.price(costs, 4, 2, False)) == (4, 8.0)
    assert (OneStep(3).slots(4), OneStep(3).price(costs, 4, 2, True)) == (1, 2.0)
    assert (ALL_STEPS.price(costs, 4, 2, False), ALL_STEPS.price(costs, 4, 2, True)) == (8.0, 32.0)
    assert [FIRST_VISITS.price(costs, 4, 2, squares) for squares in (False, True)] == [4.0, 4.0]
    assert (ALL_STEPS.in_one_cell(4), FIRST_VISITS.in_one_cell(4)) == (4, 1)
    assert [over.steps(3) for over in (EACH_STEP, OneStep(1), ALL_STEPS)] == [range(3), range(1, 2), None]
