"""Sensitivity of any combination of families, by brute force over all pairs of trajectories."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

from discreet.core.count_query import CountQuery
from discreet.core.exchange import ALL_STEPS, EACH_STEP, FIRST_VISITS, OneStep, Over
from discreet.core.families import (
    ClippedRewards,
    GroupReturns,
    OneOf,
    RecordFamily,
    SumFamily,
    rewards,
    transitions,
    visits,
)
from discreet.core.layout import Layout
from discreet.core.query import FamilyQuery, SumQuery
from discreet.core.trajectories import Trajectory

Record = tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]


def summand(family: SumFamily, layout: Layout, record: Record, group: int) -> np.ndarray:
    """One user's summand, cell by cell."""
    states, actions, paid = record
    if isinstance(family, GroupReturns):
        cells = np.zeros(family.groups)
        cells[group] = min(sum(paid), family.clip)
        return cells
    table = np.zeros(family.shape(layout))
    left = family.clip if isinstance(family, ClippedRewards) else 0.0
    for h, (s, a, r) in enumerate(zip(states, actions, paid, strict=False)):
        row = layout.row_index[s, a]
        if isinstance(family, ClippedRewards):
            counted = min(r, left)
            table[0, row] += counted
            left -= counted
            continue
        assert isinstance(family, RecordFamily)
        if isinstance(family.over, OneStep) and family.over.step != h:
            continue
        if family.over == FIRST_VISITS and s in states[:h]:
            continue
        at = (h if family.over == EACH_STEP else 0, row)
        at = (*at, states[h + 1]) if family.by_successor else at
        table[at] += 1.0 if family.center is None else r - family.center
    return table.ravel()


def records(layout: Layout) -> list[Record]:
    s, a, h = layout.states, layout.actions, layout.horizon
    return list(
        itertools.product(
            itertools.product(range(s), repeat=h + 1),
            itertools.product(range(a), repeat=h),
            itertools.product((0.0, 1.0), repeat=h),
        )
    )


def largest(query: SumQuery, norm: str, weight: dict[str, float]) -> float:
    """Largest weighted change over all pairs, all choices of families included."""
    everybody, worst = records(query.layout), 0.0
    for held in query._choices():
        vectors = np.array(
            [
                np.concatenate([weight[f.name] * summand(f, query.layout, one, 0) for f in held])
                for one in everybody
            ]
        )
        for vector in vectors:
            change = np.abs(vectors - vector)
            size = change.sum(axis=1) if norm == "l1" else np.sqrt((change * change).sum(axis=1))
            worst = max(worst, float(size.max()))
    return worst


OVERS: tuple[Over, ...] = (EACH_STEP, ALL_STEPS, FIRST_VISITS, OneStep(0), OneStep(1))


@dataclass(frozen=True, eq=False)
class Combined(SumQuery):
    """Query of any families, also of those that only CountQuery sums."""

    layout: Layout
    parts: tuple[SumFamily | OneOf, ...] = ()  # type: ignore[assignment]
    episodes: int = 1

    def copy(self) -> "Combined":
        return self


def drawn(rng: np.random.Generator, layout: Layout) -> Combined:
    """Query of one to four random families."""
    made: list[SumFamily | OneOf] = []
    for i in range(rng.integers(1, 5)):
        over = OVERS[rng.integers(len(OVERS) if layout.horizon > 1 else 4)]
        center = float(rng.choice([0.0, 0.5, 0.2, 0.9]))
        made.append(
            [visits(over, f"v{i}"), transitions(over, f"t{i}"), rewards(center, over, f"r{i}")][
                rng.integers(3)
            ]
        )
    if rng.integers(3) == 0:
        made.append(GroupReturns("g", 2, float(rng.uniform(0.2, layout.horizon))))
    if rng.integers(3) == 0:
        made.append(OneOf((ClippedRewards("c", float(rng.uniform(0.2, 2.0))), rewards(0.5, name="other"))))
    return Combined(layout, tuple(made))


@pytest.mark.parametrize("sizes", [(2, 2, 1), (2, 2, 2), (3, 1, 2), (1, 2, 2)], ids=str)
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_no_pair_of_trajectories_changes_more_than_the_sensitivity(
    sizes: tuple[int, int, int], norm: str
) -> None:
    rng = np.random.default_rng(sum(sizes))
    layout = Layout(*sizes)
    for _ in range(30):
        query = drawn(rng, layout)
        weight = {name: float(rng.uniform(0.05, 2.0)) for name in query.families}
        stated = query.sensitivity(norm, weight)  # type: ignore[arg-type]
        assert largest(query, norm, weight) <= stated * (1 + 1e-12)


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_families_of_separate_steps_attain_it(norm: str) -> None:
    """Two states with two actions: families of all steps and of single steps are priced as one walk."""
    layout, rng = Layout(2, 2, 2), np.random.default_rng(4)
    for _ in range(40):
        overs = [EACH_STEP, OneStep(0), OneStep(1)]
        families = [
            f
            for i, over in enumerate(overs)
            for f in (
                visits(over, f"v{i}"),
                transitions(over, f"t{i}"),
                rewards(0.5 * (i % 2), over, f"r{i}"),
            )
            if rng.integers(2)
        ]
        if not families:
            continue
        query = FamilyQuery(layout, tuple(families))
        weight = {name: float(rng.uniform(0.05, 2.0)) for name in query.families}
        stated = query.sensitivity(norm, weight)  # type: ignore[arg-type]
        assert largest(query, norm, weight) == pytest.approx(stated, rel=1e-12)


def test_a_record_is_added_as_it_is_defined() -> None:
    layout, rng = Layout(3, 2, 3), np.random.default_rng(2)
    for _ in range(40):
        query = FamilyQuery(
            layout,
            tuple(f for f in drawn(rng, layout).listed if isinstance(f, RecordFamily)) or (visits(),),
        )
        record = Trajectory(rng.integers(3, size=4), rng.integers(2, size=3), rng.random(3))
        cells = np.ones(query.cells)
        query.add(record, {}, None, cells)
        plain = (record.states.tolist(), record.actions.tolist(), record.rewards.tolist())
        own = np.concatenate([summand(f, layout, plain, 0) for f in query.listed])  # type: ignore[arg-type]
        assert np.array_equal(cells - 1.0, own) or np.allclose(cells - 1.0, own, atol=1e-15)
    for family in (GroupReturns("g", 2, 1.0), OneOf((visits(), transitions())), Wide("w")):
        with pytest.raises(ValueError, match=r"no subclass|different names"):
            FamilyQuery(layout, (visits(name="v"), family))


def test_options_of_counts_are_families() -> None:
    layout = Layout(3, 2, 4)
    named = CountQuery(layout, pooled="first", groups=2, clip=2.0)
    own = Combined(
        layout,
        (
            visits(), transitions(), rewards(), transitions(FIRST_VISITS, "pooled_transition_counts"),
            rewards(0.0, FIRST_VISITS, "pooled_reward_sums"), GroupReturns("group_returns", 2, 2.0),
        ),
    )  # fmt: skip
    assert named.row_families == own.row_families
    assert (named.offsets == own.offsets).all()
    weight = {name: 0.3 + 0.1 * i for i, name in enumerate(named.families)}
    assert named.sensitivity("l2", weight) == own.sensitivity("l2", weight)


def test_several_episodes_multiply_the_sensitivity() -> None:
    one, three = (FamilyQuery(Layout(2, 2, 2), (visits(), transitions()), m) for m in (1, 3))
    weight = {"visits": 0.4, "transition_counts": 1.0}
    for norm in ("l1", "l2"):
        assert three.sensitivity(norm, weight) == 3 * one.sensitivity(norm, weight)  # type: ignore[arg-type]


def test_ways_of_reaching_cells_are_those_of_the_library() -> None:
    class Own(type(ALL_STEPS)):  # type: ignore[misc]
        def price(self, *given: object) -> float:
            return 0.001

    with pytest.raises(ValueError, match="over"):
        visits(Own())
    with pytest.raises(TypeError, match="abstract"):
        Over()  # type: ignore[abstract]


def test_queries_without_meaning_are_refused() -> None:
    layout = Layout(2, 2, 2)
    with pytest.raises(ValueError, match="different names"):
        FamilyQuery(layout, (visits(), visits(ALL_STEPS)))
    with pytest.raises(ValueError, match="at least one"):
        FamilyQuery(layout)
    with pytest.raises(ValueError, match="step 2"):
        FamilyQuery(layout, (visits(OneStep(2)),))
    with pytest.raises(ValueError, match="no subclass"):
        FamilyQuery(layout, (SumFamilyOfNothing("x"),))


class Wide(RecordFamily):
    """Subclass that could add more than it states."""


class SumFamilyOfNothing(SumFamily):
    """Family without a bound."""

    def shape(self, layout: Layout) -> tuple[int, ...]:
        return (1,)

    def most(self, layout: Layout) -> float:
        return 1.0


def test_a_query_of_families_adds_whole_records_or_nothing() -> None:
    layout = Layout(2, 2, 2)
    record = Trajectory(np.array([0, 1, 0]), np.array([1, 0]), np.array([0.25, 1.0]))
    query = FamilyQuery(layout, (visits(), rewards(0.5)))
    found = query.contribution(record)
    assert found["visits"][0, 0, 1] == found["visits"][1, 1, 0] == 1.0
    assert found["visits"].sum() == 2.0
    assert found["centered_reward_sums"].sum() == pytest.approx(0.25)
    copied = query.copy()
    assert copied.families == query.families
    assert copied.layout is not layout
    assert not query.stored_only
    assert not query.steered


def test_a_family_without_a_price_is_refused() -> None:
    """A query of this library holds none: its class says which families it takes."""

    class Free(SumFamily):
        def shape(self, layout: Layout) -> tuple[int, ...]:
            return (1,)

        def most(self, layout: Layout) -> float:
            return 1.0

    query = FamilyQuery(Layout(2, 2, 2), (visits(),))
    with pytest.raises(TypeError, match="must be a RecordFamily or have a bound of its own"):
        query._price_of((Free("free"),), {"free": lambda x: x}, False)
