"""What users declare: honest noises and vectors pass every check, and each fault is found by its own."""

import math
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import discreet as dr
from discreet.audit.declared import DeclaredChecks, check_noise, check_vector
from discreet.core.layout import Layout
from discreet.core.noise.noises import AdditiveNoise, Gaussian, Laplace
from discreet.core.rng import Secure, SecureRng
from discreet.core.trajectories import checked
from discreet.core.vectors import BoundedVector

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
DRAWS = 20_000
LAYOUT = Layout(3, 2, 4, np.array([[True, True], [True, False], [False, True]]))

COARSE = {"draws have the probabilities", "residues of draws have the probabilities"}
LAW = {"single values have the probabilities", *COARSE}


def failed(found: DeclaredChecks) -> set[str]:
    return {one.check for one in found.results if one.status == "failed"}


def skipped(found: DeclaredChecks) -> set[str]:
    return {one.check for one in found.results if one.status == "skipped"}


def message(found: DeclaredChecks, check: str) -> str:
    return next(one.message for one in found.results if one.check == check)


# --------------------------------------------------------------------------------------- noise
@pytest.fixture
def staircase(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(EXAMPLES)
    import staircase as module  # type: ignore[import-not-found]

    yield module
    monkeypatch.delitem(sys.modules, "staircase", raising=False)


@dataclass(frozen=True)
class OwnLaplace(Laplace):
    """Exact discrete Laplace noise that states its probabilities."""

    name: ClassVar[str] = "own-laplace"

    def log_mass(self, values: Any, scale: float, grid: int) -> Any:
        unit = 1 / (scale * grid)
        return -np.abs(values) * unit + math.log(math.tanh(unit / 2))


@dataclass(frozen=True)
class OwnGaussian(Gaussian):
    """Exact discrete Gaussian noise that states its probabilities."""

    name: ClassVar[str] = "own-gaussian"

    def log_mass(self, values: Any, scale: float, grid: int) -> Any:
        every = np.arange(-40 * scale * grid, 40 * scale * grid + 1)
        total = math.fsum(np.exp(-((every / grid / scale) ** 2) / 2))
        return -((np.asarray(values) / grid / scale) ** 2) / 2 - math.log(total)


@pytest.mark.parametrize(("scale", "grid", "largest"), [(1.0, 16, 2.0), (0.125, 2, 1.0), (3.7, 1, 3.0)])
def test_the_staircase_passes(staircase: Any, scale: float, grid: int, largest: float) -> None:
    found = check_noise(staircase.Staircase(), scale, grid, DRAWS, largest)
    assert found.passed
    assert failed(found) == set()
    concentrated = COARSE if scale == 0.125 else set()
    assert skipped(found) == {"cost is homogeneous"} | concentrated
    assert "ratio" in message(found, "cost bounds the privacy loss")


@pytest.mark.parametrize("noise", [OwnLaplace(), OwnGaussian()], ids=lambda noise: noise.name)
@pytest.mark.parametrize("grid", [1, 64])
def test_exact_noises_pass(noise: AdditiveNoise, grid: int) -> None:
    found = check_noise(noise, 2.0, grid, DRAWS, largest=4.0)
    assert failed(found) == skipped(found) == set()


def test_the_staircase_has_its_stated_probabilities(staircase: Any) -> None:
    """The probability of each small value, from the definition in exact fractions of b."""
    noise, scale, grid = staircase.Staircase(width=0.5), 0.8, 8
    wide, low = noise.steps(scale, grid)
    assert (wide, low) == (4, round(4 / (1 + math.exp(1 / 1.6))))
    b = math.exp(-1 / scale)
    weights = {k: b ** (abs(k) // 4 + (abs(k) % 4 >= low)) for k in range(-400, 401)}
    total = math.fsum(weights.values())
    values = np.arange(-9, 10)
    expected = [math.log(weights[int(k)] / total) for k in values]
    np.testing.assert_allclose(noise.log_mass(values, scale, grid), expected, rtol=1e-12)


def test_the_staircase_is_sharper_than_laplace_noise(staircase: Any) -> None:
    noise, scale, grid, values = staircase.Staircase(), 0.125, 64, np.arange(-2000, 2001)
    size = [np.exp(one.log_mass(values, scale, grid)) @ np.abs(values) for one in (noise, OwnLaplace())]
    assert size[0] < 0.2 * size[1]


def test_parts_of_the_exact_sampler(staircase: Any) -> None:
    """Frequencies within 7 standard errors; the bits of this test are fixed by its name."""
    coins, n = SecureRng(), 20_000
    for x in (Fraction(0), Fraction(1, 3), Fraction(7, 3)):
        share = sum(staircase.happens(coins, x) for _ in range(n)) / n
        assert abs(share - math.exp(-x)) <= 7 * math.sqrt(0.25 / n)
    drawn = np.array([staircase.geometric(coins, Fraction(2, 5)) for _ in range(n)])
    for j in range(4):
        exact = math.exp(-0.4 * j) * -math.expm1(-0.4)
        assert abs((drawn == j).mean() - exact) <= 7 * math.sqrt(0.25 / n)


def test_the_staircase_refuses_a_width_off_the_grid(staircase: Any) -> None:
    with pytest.raises(ValueError, match="width"):
        staircase.Staircase(width=0.3).draw(SecureRng(), 1.0, 1, 16)


def test_the_staircase_draws_in_simulations_without_a_grid(staircase: Any) -> None:
    coins = dr.mechanisms.SeededRng(dr.Seeded(1).keys.noise, 0)
    drawn = staircase.Staircase().draw(coins, 1.0, 100, None)
    assert drawn.shape == (100,)
    assert np.unique(drawn).size > 90


def test_a_cost_that_is_too_small_is_found(staircase: Any) -> None:
    class Liar(staircase.Staircase):  # type: ignore[misc]
        def cost(self, shift: float, scale: float) -> float:
            return 0.8 * float(super().cost(shift, scale))

    found = check_noise(Liar(), 1.0, 16, DRAWS)
    assert failed(found) == {"cost bounds the privacy loss"}
    assert "ratio 1, cost 0.8" in message(found, "cost bounds the privacy loss")
    assert not found.passed


def test_a_sampler_that_is_too_weak_is_found(staircase: Any) -> None:
    class Weak(staircase.Staircase):  # type: ignore[misc]
        def draw(self, coins: Any, scale: float, size: int, grid: int | None) -> Any:
            return np.rint(0.9 * super().draw(coins, scale, size, grid) * grid) / grid

    found = check_noise(Weak(), 1.0, 16, DRAWS)
    assert failed(found) == LAW


class SmallCost(OwnGaussian):
    def cost(self, shift: float, scale: float) -> float:
        return 0.8 * super().cost(shift, scale)


class Superadditive(OwnLaplace):
    homogeneous = False

    def cost(self, shift: float, scale: float) -> float:
        return max(shift, shift**2) / scale


class SuperadditiveRoot(OwnGaussian):
    homogeneous = False

    def cost(self, shift: float, scale: float) -> float:
        return max(1.0, shift) * super().cost(shift, scale)


class NotHomogeneous(OwnLaplace):
    def cost(self, shift: float, scale: float) -> float:
        return math.ceil(shift) / scale


class Negative(OwnLaplace):
    homogeneous = False

    def cost(self, shift: float, scale: float) -> float:
        return -1.0 if shift == 0.5 else shift / scale


class TooMuchMass(OwnLaplace):
    def log_mass(self, values: Any, scale: float, grid: int) -> Any:
        return super().log_mass(values, scale, grid) + 1e-8


class Doubled(OwnLaplace):
    """Even integers only: shifts of one unit are seen with certainty."""

    def draw(self, coins: Any, scale: float, size: int, grid: int | None) -> Any:
        return 2 * super().draw(coins, scale / 2, size, grid)


class DoubledAndHonest(Doubled):
    def log_mass(self, values: Any, scale: float, grid: int) -> Any:
        values = np.asarray(values)
        return np.where(values % 2, -math.inf, super().log_mass(values // 2, scale / 2, grid))


class OffGrid(OwnLaplace):
    def draw(self, coins: Any, scale: float, size: int, grid: int | None) -> Any:
        return super().draw(coins, scale, size, grid) + 1e-9


class TooFew(OwnLaplace):
    def draw(self, coins: Any, scale: float, size: int, grid: int | None) -> Any:
        return super().draw(coins, scale, size - 1, grid)


class SameEveryCall(OwnLaplace):
    drawn: ClassVar[dict[int, Any]] = {}

    def draw(self, coins: Any, scale: float, size: int, grid: int | None) -> Any:
        if size not in self.drawn:
            self.drawn[size] = super().draw(coins, scale, size, grid)
        return self.drawn[size].copy()


class Pairs(OwnLaplace):
    """Each draw is given twice."""

    def draw(self, coins: Any, scale: float, size: int, grid: int | None) -> Any:
        return np.repeat(super().draw(coins, scale, (size + 1) // 2, grid), 2)[:size]


class Mirrored(OwnLaplace):
    """Every second call gives the first call with other signs."""

    last: ClassVar[list[Any]] = []

    def draw(self, coins: Any, scale: float, size: int, grid: int | None) -> Any:
        if self.last and self.last[0].size == size:
            return -self.last.pop()
        self.last[:] = [super().draw(coins, scale, size, grid)]
        return self.last[0].copy()


class OwnGenerator(OwnLaplace):
    def draw(self, coins: Any, scale: float, size: int, grid: int | None) -> Any:
        return super().draw(SecureRng(), scale, size, grid)


class HalfOfCoins(OwnLaplace):
    """The coins decide signs only."""

    def draw(self, coins: Any, scale: float, size: int, grid: int | None) -> Any:
        signs = np.array([1 - 2 * coins.below(2) for _ in range(size)])
        return signs * super().draw(SecureRng(), scale, size, grid)


class Raises(OwnLaplace):
    def draw(self, coins: Any, scale: float, size: int, grid: int | None) -> Any:
        raise OSError("no coins")


CALLS = {"calls are uncorrelated"}
PURE = {"draws depend on coins only"}
DRAWN = {"draws are on the grid", "draws are uncorrelated", *LAW, *CALLS}


@pytest.mark.parametrize(
    ("noise", "expected"),
    [
        (SmallCost, {"cost bounds the privacy loss", }),
        (Superadditive, {"cost is subadditive"}),
        (SuperadditiveRoot, {"cost is subadditive"}),
        (NotHomogeneous, {"cost is homogeneous"}),
        (Negative, {"costs are finite", "cost bounds the privacy loss", "cost is subadditive"}),
        (TooMuchMass, {"probabilities sum to 1"}),
        (Doubled, LAW),
        (DoubledAndHonest, {"cost bounds the privacy loss"}),
        (OffGrid, DRAWN),
        (TooFew, DRAWN),
        (SameEveryCall, CALLS | PURE),
        (Pairs, {"draws are uncorrelated"}),
        (Mirrored, CALLS | PURE),
        (OwnGenerator, PURE),
        (HalfOfCoins, PURE),
        (Raises, DRAWN | PURE),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)  # fmt: skip
def test_each_fault_of_a_noise_is_found(noise: Any, expected: set[str]) -> None:
    assert expected <= failed(check_noise(noise(), 1.0, 16, DRAWS, largest=2.0)) <= expected | LAW


def test_fine_structure_is_found() -> None:
    """Cells of 1 / 1024 are pooled; residues are not."""
    found = check_noise(Doubled(), 1.0, 1024, 40_000, largest=0.01)
    assert failed(found) == {"residues of draws have the probabilities"}


def test_a_rare_value_is_found() -> None:
    """One draw in 5000 is far too large, too rare for a cell of its own."""

    class Outliers(OwnLaplace):
        def draw(self, coins: Any, scale: float, size: int, grid: int | None) -> Any:
            drawn = super().draw(coins, scale, size, grid)
            drawn[::5000] = 20.0
            return drawn

    assert failed(check_noise(Outliers(), 1.0, 16, DRAWS)) == {"single values have the probabilities"}


def test_a_grid_that_is_too_fine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("discreet.audit.declared._WIDEST", 2**10)
    found = check_noise(OwnLaplace(), 100.0, 16, DRAWS)
    assert failed(found) == {"probabilities sum to 1", "cost bounds the privacy loss", *LAW}
    assert "coarser grid" in message(found, "probabilities sum to 1")


def test_without_probabilities_their_checks_are_skipped() -> None:
    class Silent(Laplace):
        def log_mass(self, values: Any, scale: float, grid: int) -> Any:
            raise NotImplementedError

    found = check_noise(Silent(), 1.0, 16, DRAWS)
    assert found.passed
    assert skipped(found) == {"probabilities sum to 1", "cost bounds the privacy loss", *LAW}


def test_results_of_a_noise_as_json() -> None:
    out = check_noise(OwnLaplace(), 1.0, 16, DRAWS).to_json()
    assert out["subject"] == "noise own-laplace"
    assert out["passed"] is True
    assert len(out["cases"]) == 12
    assert {one["status"] for one in out["cases"]} == {"passed"}


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"noise": OwnLaplace}, "noise"),
        ({"scale": 0.0}, "scale"),
        ({"grid": 10}, "grid"),
        ({"grid": 2**21}, "grid"),
        ({"draws": 9999}, "draws"),
        ({"largest": 0.01}, "largest"),
        ({"largest": 1e5}, "largest"),
    ],
)
def test_refused_arguments_of_noises(arguments: dict[str, Any], name: str) -> None:
    given = {"noise": OwnLaplace(), "scale": 1.0, "grid": 16, "draws": DRAWS} | arguments
    with pytest.raises(ValueError, match=name):
        check_noise(**given)


@pytest.mark.statistics
def test_honest_noises_raise_no_alarm() -> None:
    """A hundred runs; the statistics of honest noise also have the stated limit distribution."""
    from scipy import stats

    values = []
    for _ in range(100):
        found = check_noise(OwnLaplace(), 1.0, 16, DRAWS)
        assert found.passed
        text = message(found, "draws have the probabilities").split()
        values.append(stats.chi2.sf(float(text[1]), int(text[3]) - 1))
    assert stats.kstest(values, "uniform").pvalue >= 1e-6


# -------------------------------------------------------------------------------------- vector
def visits(record: Any, context: Any) -> Any:
    return np.bincount(record.states[:-1], minlength=3).astype(float)


def make(function: Any, **more: Any) -> BoundedVector:
    return BoundedVector(**({"name": "own", "size": 3, "bound": 2.5, "function": function} | more))


@pytest.mark.parametrize("norm", [1, 2])
def test_a_function_of_one_record_passes(norm: Any) -> None:
    found = check_vector(make(visits, norm=norm, bound=3.0), LAYOUT, fresh_process=False)
    assert failed(found) == skipped(found) == set()
    assert message(found, "function gives vectors") == "0 of 200 records count as zero"
    largest = {1: 6.0, 2: 3 * math.sqrt(2)}[norm]  # two users who stay in different states, after projection
    told = message(found, "largest change")
    assert float(told.split()[0]) == pytest.approx(largest, rel=1e-6)
    assert f"2 B = 6 is assumed (norm {norm})" in told


def test_public_arrays_are_given() -> None:
    weighted = make(lambda record, context: visits(record, context) @ context["w"])
    found = check_vector(weighted, LAYOUT, {"w": np.eye(3)[::-1]}, 20)
    assert failed(found) == set()
    assert skipped(found) == {"equal results in a new process"}  # a lambda
    assert failed(check_vector(weighted, LAYOUT, {}, 20)) >= {"function gives vectors"}
    assert "raised KeyError" in message(check_vector(weighted, LAYOUT, {}, 20), "function gives vectors")


class Memory:
    """A function that adds what it saw before."""

    def __init__(self, keeps: float) -> None:
        self.keeps, self.last = keeps, np.zeros(3)

    def __call__(self, record: Any, context: Any) -> Any:
        found = visits(record, context) + self.keeps * self.last
        self.last = visits(record, context)
        return found


def test_a_function_with_a_memory_is_found() -> None:
    found = check_vector(make(Memory(0.1)), LAYOUT, fresh_process=False)
    assert failed(found) == {"equal results in any order", "equal results alone"}
    assert failed(check_vector(make(Memory(0.0)), LAYOUT, fresh_process=False)) == set()


def test_a_function_that_counts_its_calls_is_found() -> None:
    calls: list[int] = []

    def counts(record: Any, context: Any) -> Any:
        calls.append(1)
        return np.full(3, 0.001 * len(calls))

    found = check_vector(make(counts), LAYOUT)
    assert "equal results in any order" in failed(found)


def test_values_that_count_as_zero_are_counted() -> None:
    def fails(record: Any, context: Any) -> Any:
        kind = int(record.states[0]) + 3 * int(record.actions[0])
        given = [np.ones(3), np.full(3, math.nan), np.ones(3) * 1j, np.ones(2), "text"]
        if kind == 5:
            raise RuntimeError("not this one")
        return given[kind]

    found = check_vector(make(fails), LAYOUT, fresh_process=False)
    text = message(found, "function gives vectors")
    assert failed(found) == set()
    for part in ("raised RuntimeError", "not finite", "of shape (2,)"):
        assert part in text
    always = check_vector(make(lambda record, context: np.ones(3) * 1j), LAYOUT, fresh_process=False)
    assert failed(always) == {"function gives vectors"}
    assert "200 of dtype complex128" in message(always, "function gives vectors")


MODULE = """
    import os
    import numpy as np
    import discreet as dr

    BEGAN = os.getpid()

    def pure(record, context):
        print("words on standard output")
        return record.rewards[:2]

    def by_process(record, context):
        return record.rewards[:2] + (os.getpid() != PARENT)

    honest = dr.mechanisms.BoundedVector("honest", 2, 1.0, pure)
    strange = dr.mechanisms.BoundedVector("strange", 2, 9.0, by_process)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    import importlib
    import os

    text = textwrap.dedent(MODULE).replace("PARENT", str(os.getpid()))
    (tmp_path / "own_vectors_of_tests.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("own_vectors_of_tests")
    monkeypatch.delitem(sys.modules, "own_vectors_of_tests", raising=False)


def test_a_new_process(module: Any) -> None:
    assert failed(check_vector(module.honest, LAYOUT, records=30)) == set()
    assert failed(check_vector(module.strange, LAYOUT, records=30)) == {"equal results in a new process"}


def test_a_process_that_ends_is_told(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("discreet.audit.declared._CHILD", "raise SystemExit('ended early')")
    found = check_vector(module.honest, LAYOUT, records=10)
    assert message(found, "equal results in a new process") == "the new process ended: ended early"


def test_records_are_admissible_and_of_all_kinds() -> None:
    from discreet.audit.declared import _changed, _records

    rng = np.random.default_rng(0)
    people = list(_records(LAYOUT, 60))
    people += [_changed(one, LAYOUT, rng) for one in people]
    for one in people:
        checked(one, LAYOUT)
    assert any(np.unique(one.states).size == 1 for one in people)
    assert any((one.rewards == 1.0).all() for one in people)
    assert any((one.rewards == 0.0).all() for one in people)


@pytest.mark.parametrize("grid", [None, Secure().reward_grid])
def test_the_search_uses_what_sessions_use(grid: int | None) -> None:
    values = make(visits).of(next(iter(_some())), {}, grid)
    assert values.shape == (3,)


def _some() -> Iterator[Any]:
    from discreet.audit.declared import _records

    return _records(LAYOUT, 10)


def test_refused_arguments_of_vectors() -> None:
    with pytest.raises(ValueError, match="vector"):
        check_vector(visits, LAYOUT)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="records"):
        check_vector(make(visits), LAYOUT, records=9)
