"""Vectors of one's own: projected whatever the function returns, and never an error."""

import numpy as np
import pytest

from discreet.core.families import visits
from discreet.core.layout import Layout
from discreet.core.query import FamilyQuery
from discreet.core.trajectories import Trajectory
from discreet.core.vectors import BoundedVector

LAYOUT = Layout(3, 2, 2)
RECORD = Trajectory(np.array([0, 1, 2]), np.array([0, 1]), np.array([0.25, 1.0]))


def vector(function, **more):
    return BoundedVector("x", **{"size": 3, "bound": 2.0, "function": function, **more})


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("grid", [None, 8, 1024])
def test_every_vector_is_in_the_ball(norm: int, grid: int | None) -> None:
    rng = np.random.default_rng(norm)
    for size in (1, 3, 400):
        for scale in (1e-3, 0.5, 1.0, 3.0, 1e150, 1e300):
            given = rng.normal(0.0, scale, size)
            own = vector(lambda record, context, given=given: given, size=size, norm=norm)
            found = own.of(RECORD, {}, grid)
            assert np.linalg.norm(found, norm) <= 2.0
            assert not (found * given < 0).any()
            if grid is not None:
                assert np.array_equal(found * grid, np.rint(found * grid))
            elif np.abs(given).sum() < 1.999:
                assert np.array_equal(found, given)


def failing(record: Trajectory, context: dict) -> np.ndarray:
    raise KeyError("what this says would be public")


@pytest.mark.parametrize(
    "function",
    [
        failing, lambda r, c: np.array([1.0, np.nan, 0.0]), lambda r, c: np.array([1j, 0, 0]),
        lambda r, c: np.zeros(2), lambda r, c: "text", lambda r, c: None, lambda r, c: np.full(3, np.inf),
        lambda r, c: 1 / np.zeros(3), lambda r, c: [[1.0, 1.0, 1.0]], lambda r, c: np.array([object()] * 3),
        lambda r, c: np.array(["a", "b", "c"]),
    ],
)  # fmt: skip
def test_what_is_no_vector_is_zero_and_says_nothing(function, recwarn: pytest.WarningsRecorder) -> None:
    assert np.array_equal(vector(function).of(RECORD, {}, 64), np.zeros(3))
    assert not recwarn.list


@pytest.mark.parametrize("bound", [1e-170, 1e-12, 1.0, 1e200])
def test_norms_neither_overflow_nor_underflow(bound: float) -> None:
    with np.errstate(all="raise"):
        for size in (2, 300_000):
            for scale in (1e-300, 1e-100, 1.0, 1e100, 1e300):
                own = vector(lambda record, context: np.full(size, scale), size=size, bound=bound)  # noqa: B023
                found = own.of(RECORD, {}, None)
                assert found.max() * np.sqrt(float(size)) <= bound * (1 + 1e-15)


def test_an_exit_is_no_message_but_an_interrupt_ends_the_call() -> None:
    def ends(record: Trajectory, context: dict) -> np.ndarray:
        raise SystemExit("what this says would be public")

    assert np.array_equal(vector(ends).of(RECORD, {}, None), np.zeros(3))

    def interrupted(record: Trajectory, context: dict) -> np.ndarray:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vector(interrupted).of(RECORD, {}, None)


def test_the_function_gets_copies() -> None:
    public = {"q": np.arange(3.0)}

    def spoiling(record: Trajectory, context: dict) -> np.ndarray:
        record.rewards[:] = 9.0
        context["q"][:] = 9.0
        return context["q"] / 9

    assert np.array_equal(vector(spoiling).of(RECORD, public, None), np.ones(3))
    assert (RECORD.rewards.tolist(), public["q"].tolist()) == ([0.25, 1.0], [0.0, 1.0, 2.0])


@pytest.mark.parametrize(("norm", "kind"), [(p, kind) for p in (1, 2) for kind in ("l1", "l2")])
def test_the_sensitivity_holds_for_any_two_points_of_the_ball(norm: int, kind: str) -> None:
    rng = np.random.default_rng(8)
    query = FamilyQuery(LAYOUT, (vector(np.sum, size=7, norm=norm),))
    stated = query.sensitivity(kind, {"x": 0.3})  # type: ignore[arg-type]
    worst = 0.0
    for _ in range(2000):
        ends = rng.normal(size=(2, 7)) * (rng.random((2, 7)) < 0.4)
        ends = [2.0 * x / max(np.linalg.norm(x, norm), 1e-12) for x in ends]
        worst = max(worst, 0.3 * float(np.linalg.norm(ends[0] - ends[1], 1 if kind == "l1" else 2)))
    corner = np.full(7, 2.0 / (7 if norm == 1 else np.sqrt(7)))
    worst = max(worst, 0.6 * float(np.linalg.norm(corner, 1 if kind == "l1" else 2)))
    assert worst <= stated * (1 + 1e-12)
    if norm == 2:  # both ends of a diagonal attain it
        assert worst == pytest.approx(stated)


def test_vectors_stand_beside_counts_and_say_what_they_rest_on() -> None:
    query = FamilyQuery(LAYOUT, (visits(), vector(np.sum)))
    assert query.row_families == {"visits": (2, 6), "x": (3,)}
    assert query.families["x"] == (3,)
    weight = {"visits": 1.0, "x": 0.5}
    assert query.sensitivity("l1", weight) == pytest.approx(4.0 + 2.0 * np.sqrt(3))
    assert query.sensitivity("l2", weight) == pytest.approx(np.sqrt(4.0 + 4.0))
    assert "keeps nothing between users" in query.rests_on[0]
    sums = {"visits": np.ones((2, 3, 2)), "x": np.arange(3.0)}
    cells = query.to_cells(sums)
    assert all(np.array_equal(query.from_cells(cells)[name], sums[name]) for name in sums)


@pytest.mark.parametrize(
    "wrong",
    [{"size": 0}, {"size": 3 * 10**8}, {"bound": 0.0}, {"bound": np.nan}, {"norm": 3}, {"function": 3}],
)
def test_numbers_out_of_range_are_refused(wrong: dict) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        vector(np.sum, **wrong) if name != "function" else vector(3)


def test_what_a_vector_says_of_itself() -> None:
    own = vector(lambda record, context: np.ones(3))
    assert (own.by_pair, own.shape(LAYOUT), own.most(LAYOUT)) == (False, (3,), 2.0)
    assert own.rests_on[0].startswith("the vector 'x' is a function of one user's trajectory")
    assert own.price(lambda x: x, LAYOUT, False) == 4.0 * 3**0.5
    assert own.price(lambda x: x * x, LAYOUT, True) == 16.0
    assert vector(own.function, norm=1).price(lambda x: x, LAYOUT, False) == 4.0
    with pytest.raises(ValueError, match=r"function = 3: must be a function of \(trajectory, context\)"):
        vector(3)


def test_a_query_adds_the_vector_of_every_user() -> None:
    query = FamilyQuery(
        LAYOUT, (visits(), vector(lambda record, context: context["w"] * record.rewards.sum()))
    )
    found = query.contribution(RECORD, {"w": np.array([0.25, 0.5, 0.0])})
    assert found["x"].tolist() == [0.3125, 0.625, 0.0]
    cells = np.ones(query.cells)
    query.add(RECORD, {"w": np.array([0.25, 0.5, 0.0])}, None, cells)
    assert cells[query.offsets[1] :].tolist() == [1.3125, 1.625, 1.0]
