"""Checks of noises and vectors whose cost the user declares.

:func:`check_noise` compares the declared cost with the stated probabilities of the noise, and draws with the
same probabilities. :func:`check_vector` calls the function of a vector on random records. A check that passes
does not prove that the declaration is true.

Each check of draws gives a false alarm with probability at most 1e-9. The check of single values uses exact
binomial tails. The other checks compare a statistic with the quantile of its limit distribution at 1e-12; the
factor 1000 allows for the error of the limit distribution.
"""

from __future__ import annotations

import copy
import hashlib
import math
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.audit.conformance import CheckResult, NotApplicable, _error_text, _expect
from discreet.core import checks
from discreet.core.layout import Layout
from discreet.core.noise.noises import AdditiveNoise
from discreet.core.releases import Floats, Ints
from discreet.core.rng import SecureRng
from discreet.core.trajectories import Trajectory
from discreet.core.vectors import BoundedVector

_NOMINAL = 1e-12  # Probability of a false alarm under a limit distribution.
_ALARM = 1e-9  # Probability of a false alarm of exact tests.
_EXPECTED = 1000.0  # Least number of expected draws in a cell of a chi-square statistic.
_MASS = 1e-9  # Allowed difference between a sum of probabilities and 1.
_NEAR = 1e-9  # Allowed relative difference between two computations of one cost.
_WIDEST = 2**22  # Largest multiple of 1 / grid with a probability that is used.
_MOST_SHIFTS = 2**16
_REPLAYED = 1000  # Number of draws that are repeated with the same random bits.
_ORDERS = (1.1, 2.0, 4.0, 8.0, 16.0)  # Orders of Renyi divergences.
_IN_PROCESS = 20  # Number of records that a new process evaluates.
_ENTRIES = 2 * 10**7  # Largest number of vector entries in memory at a time.
_GRID = 1024
_CHILD = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
vector, context, records = pickle.load(sys.stdin.buffer)
out, sys.stdout = sys.stdout.buffer, sys.stderr
pickle.dump([vector.of(record, context, None) for record in records], out)
"""


@dataclass(frozen=True)
class DeclaredChecks:
    """Results of all checks of one declaration.

    subject : name of the noise or the vector. results : result of each check. The message of a passed check
        states its findings.
    """

    subject: str
    results: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        """True if no check failed."""
        return not any(one.status == "failed" for one in self.results)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "subject": self.subject,
            "passed": self.passed,
            "cases": [one.to_json() for one in self.results],
        }


def _results(subject: str, bodies: Mapping[str, Callable[[], str]]) -> DeclaredChecks:
    """Run checks. Each check returns a sentence, or raises ``AssertionError`` or ``NotApplicable``."""

    def one(check: str, body: Callable[[], str]) -> CheckResult:
        try:
            with np.errstate(all="ignore"):
                return CheckResult(subject, check, "passed", body())
        except NotApplicable as reason:
            return CheckResult(subject, check, "skipped", str(reason))
        except Exception as error:
            return CheckResult(subject, check, "failed", _error_text(error))

    return DeclaredChecks(subject, tuple(one(*item) for item in bodies.items()))


# --------------------------------------------------------------------------------------- noise
def check_noise(
    noise: AdditiveNoise, scale: float, grid: int, draws: int = 200_000, largest: float = 1.0
) -> DeclaredChecks:
    """Check the cost, the probabilities and the draws of a noise.

    Parameters
    ----------
    noise : AdditiveNoise
        Noise to check. Checks that need probabilities are skipped if its class does not define ``log_mass``.
        Logarithms must be accurate far in the tails, where probabilities are 0 in floating point.
    scale : float
        Scale of the noise.
    grid : int
        A power of two up to 2^20. Draws are multiples of 1 / grid.
    draws : int
        Number of draws, at least 10 000. The probability of a false alarm is at most 1e-9 for each check of
        draws.
    largest : float
        Largest shift of a coordinate, at most 65 536 multiples of 1 / grid. All shifts up to this value are
        checked.

    Returns
    -------
    DeclaredChecks
        One result for each check.

    Raises
    ------
    ValueError
        If ``noise`` is not an ``AdditiveNoise``, or a number is out of range.
    """
    if not isinstance(noise, AdditiveNoise):
        raise ValueError(f"noise = {noise!r}: must be an instance of a subclass of AdditiveNoise")
    checks.positive("scale", scale)
    if checks.integer("grid", grid, 1, 2**20) & (grid - 1):
        raise ValueError(f"grid = {grid}: must be a power of two")
    checks.integer("draws", draws, 10_000)
    steps = math.floor(checks.positive("largest", largest) * grid + _NEAR)
    if not 1 <= steps <= _MOST_SHIFTS:
        raise ValueError(f"largest = {largest}: must be from 1 to {_MOST_SHIFTS} multiples of 1 / {grid}")
    subject = _NoiseSubject(noise, float(scale), int(grid), steps, int(draws) // 2)
    return _results(
        f"noise {noise.name}",
        {
            "costs are finite": subject.costs_are_finite,
            "probabilities sum to 1": subject.sums_to_one,
            "cost bounds the privacy loss": subject.cost_is_enough,
            "cost is subadditive": subject.is_subadditive,
            "cost is homogeneous": subject.is_homogeneous,
            "draws are on the grid": subject.on_the_grid,
            "draws have the probabilities": subject.fits,
            "residues of draws have the probabilities": subject.residues_fit,
            "single values have the probabilities": subject.single_values_fit,
            "draws are uncorrelated": subject.is_uncorrelated,
            "calls are uncorrelated": subject.calls_are_uncorrelated,
            "draws depend on coins only": subject.depends_on_coins,
        },
    )


@dataclass(frozen=True)
class _NoiseSubject:
    """Noise under test, and values that its checks share.

    steps : largest shift in units of 1 / grid. half : number of draws in each of two calls.
    """

    noise: AdditiveNoise
    scale: float
    grid: int
    steps: int
    half: int

    @cached_property
    def costs(self) -> Floats:
        """(steps,) costs of the shifts 1 / grid, 2 / grid, ..."""
        shifts = range(1, self.steps + 1)
        return np.array([float(self.noise.cost(k / self.grid, self.scale)) for k in shifts])

    def log_mass(self, reach: int) -> Floats:
        """Return ln P(noise = k / grid) for k from -reach to reach."""
        values = np.arange(-reach, reach + 1)
        try:
            found = np.asarray(self.noise.log_mass(values, self.scale, self.grid))
        except NotImplementedError as reason:
            raise NotApplicable("the noise does not define log_mass") from reason
        _expect(found.shape == values.shape, f"log_mass has shape {found.shape} for {values.shape} integers")
        _expect(found.dtype.kind == "f", f"log_mass has dtype {found.dtype}")
        _expect(not np.isnan(found).any(), "log_mass is NaN")
        return found.astype(np.float64)

    @cached_property
    def reach(self) -> int:
        """Integer k such that the probabilities of integers outside [-k, k] are negligible."""
        reach, before = 64, -1.0
        while True:
            total = math.fsum(np.exp(self.log_mass(reach)))
            if total >= 1.0 - 1e-12 or 0.5 < total <= before + 1e-14:
                return reach
            reach, before = 2 * reach, total
            _expect(
                reach <= _WIDEST,
                f"values within {_WIDEST} multiples of 1 / {self.grid} have probability {total:.6g} only: "
                "take a coarser grid if the scale allows it",
            )

    @cached_property
    def masses(self) -> Floats:
        """Probabilities of the integers -reach, ..., reach."""
        return np.exp(self.log_mass(self.reach))

    @cached_property
    def pair(self) -> tuple[Ints, Ints]:
        """Draws of two calls, in units of 1 / grid."""
        coins, size = SecureRng(), self.half
        first, second = (self.noise.draw(coins, self.scale, size, self.grid) for _ in range(2))
        return self.units(first, size), self.units(second, size)

    def units(self, draws: Any, size: int) -> Ints:
        """Return draws in units of 1 / grid."""
        given = np.asarray(draws)
        _expect(given.dtype == np.float64, f"draws have dtype {given.dtype}, not float64")
        _expect(given.shape == (size,), f"{size} draws have shape {given.shape}")
        _expect(np.isfinite(given).all(), "a draw is not finite")
        scaled = given * self.grid
        off = int((scaled != np.rint(scaled)).sum())
        _expect(off == 0, f"{off} of {size} draws are not multiples of 1 / {self.grid}")
        _expect(np.abs(scaled).max(initial=0.0) <= 2.0**46, "a draw is above 2^46 units")
        return scaled.astype(np.int64)

    # ------------------------------------------------------------------------------ the cost
    def costs_are_finite(self) -> str:
        bad = np.flatnonzero(~(np.isfinite(self.costs) & (self.costs >= 0.0)))
        _expect(not bad.size, f"cost({(bad[:1] + 1) / self.grid}) is negative or not finite")
        return (
            f"{self.steps} shifts up to {self.steps / self.grid:g}, the largest cost is {self.costs.max():g}"
        )

    def sums_to_one(self) -> str:
        total = math.fsum(self.masses)
        _expect(abs(total - 1.0) <= _MASS, f"the sum is {total!r}")
        return f"the difference is {abs(total - 1.0):.1e}"

    def cost_is_enough(self) -> str:
        """Compare costs with the largest log-likelihood ratios (l1) or with Renyi divergences (l2).

        Truncated sums reduce a divergence, so this check has no false alarms.
        """
        squares = self.noise.norm == "l2"
        beyond = self.steps * (math.ceil(max(_ORDERS)) if squares else 1)
        logs = self.log_mass(self.reach + beyond)
        loss = _divergence if squares else _ratio
        both = not np.allclose(logs, logs[::-1], rtol=1e-12, atol=1e-12)
        losses = np.empty(self.steps)
        for k in range(1, self.steps + 1):
            losses[k - 1] = loss(logs[k:], logs[:-k])
            if both or k == 1:
                losses[k - 1] = max(losses[k - 1], loss(logs[:-k], logs[k:]))
        excess = losses - self.costs
        worst = int(np.argmax(excess))
        what = "2 D(order) / order" if squares else "log-likelihood ratio"
        at = (
            f"shift {(worst + 1) / self.grid:g}: largest {what} {losses[worst]:g}, cost {self.costs[worst]:g}"
        )
        _expect(excess[worst] <= _NEAR * (1.0 + self.costs[worst]), at)
        return f"nearest at {at}"

    def is_subadditive(self) -> str:
        known = np.sqrt(self.costs) if self.noise.norm == "l2" else self.costs
        for i in range(1, self.steps // 2 + 1):  # cost(i) + cost(j) for j = i, ..., steps - i
            sums = known[i - 1] + known[i - 1 : self.steps - i]
            above = known[2 * i - 1 :] - sums - _NEAR * (1.0 + sums)
            if (above > 0.0).any():
                j = i + int(above.argmax())
                what = "the root of the cost" if self.noise.norm == "l2" else "the cost"
                raise AssertionError(
                    f"{what} of {(i + j) / self.grid:g} is above the sum of those of {i / self.grid:g} and "
                    f"{j / self.grid:g}"
                )
        return f"all sums up to {self.steps / self.grid:g}"

    def is_homogeneous(self) -> str:
        if not self.noise.homogeneous:
            raise NotApplicable("not claimed, so weighted columns are refused")
        power = 2 if self.noise.norm == "l2" else 1
        unit = float(self.noise.cost(1.0, self.scale))
        factors = np.r_[np.arange(1, self.steps + 1) / self.grid, math.pi, 1e-3 / 7, 100 / 3]
        for a in factors:
            cost, expected = float(self.noise.cost(float(a), self.scale)), a**power * unit
            _expect(abs(cost - expected) <= _NEAR * expected, f"cost({a:g}) = {cost:g}, not {expected:g}")
        return f"{factors.size} factors"

    # ------------------------------------------------------------------------------ the draws
    def on_the_grid(self) -> str:
        return f"{sum(part.size for part in self.pair)} draws"

    def fits(self) -> str:
        return self._chi_square(self.counted, self.masses)

    def residues_fit(self) -> str:
        """Compare residues of draws modulo a power of two, so that neighbouring values are not pooled."""
        modulus = 2 ** min(6, int(math.log2(2 * self.half / _EXPECTED)))
        residue = np.arange(-self.reach, self.masses.size - self.reach) % modulus
        counted, masses = np.zeros(modulus), np.zeros(modulus)
        np.add.at(counted, residue, self.counted)
        np.add.at(masses, residue, self.masses)
        return self._chi_square(counted, masses)

    def single_values_fit(self) -> str:
        """Compare the number of draws of each single value with the exact binomial tails for this value."""
        from scipy import stats

        total, probabilities = 2 * self.half, np.minimum(self.masses, 1.0)
        tails = np.minimum(
            stats.binom.cdf(self.counted, total, probabilities),
            stats.binom.sf(self.counted - 1, total, probabilities),
        )
        least, worst = _ALARM / (2 * tails.size), int(tails.argmin())
        text = (
            f"{(worst - self.reach) / self.grid:g} drawn {self.counted[worst]:.0f} times, expected "
            f"{total * probabilities[worst]:.4g}, tail {tails[worst]:.1e}, at least {least:.1e}"
        )
        _expect(tails[worst] >= least, text)
        return text

    @cached_property
    def counted(self) -> Floats:
        """Number of draws by integer. Draws outside the reach are counted at its ends."""
        drawn = np.concatenate(self.pair)
        at = np.clip(drawn, -self.reach, self.reach) + self.reach
        impossible = int((self.masses[at] == 0.0).sum())
        _expect(impossible == 0, f"{impossible} of {drawn.size} draws have probability 0")
        return np.bincount(at, minlength=self.masses.size).astype(np.float64)

    def _chi_square(self, counted: Floats, masses: Floats) -> str:
        from scipy import stats

        total = float(counted.sum())
        observed, expected = _pooled(counted, masses * (total / masses.sum()))
        if expected.size < 2:
            raise NotApplicable("the noise has a single cell of 1000 expected draws")
        found = float(((observed - expected) ** 2 / expected).sum())
        most = float(stats.chi2.isf(_NOMINAL, expected.size - 1))
        text = f"chi-square {found:.1f} in {expected.size} cells, at most {most:.1f}"
        _expect(found <= most, text)
        return text

    @cached_property
    def ranks(self) -> tuple[Floats, Floats]:
        """Ranks of the draws of both calls, from -1/2 to 1/2. Ties are broken at random."""
        drawn = np.concatenate(self.pair)
        order = np.lexsort((np.random.default_rng(0).random(drawn.size), drawn))
        ranks = np.empty(drawn.size)
        ranks[order] = (np.arange(drawn.size) + 0.5) / drawn.size - 0.5
        return ranks[: self.half], ranks[self.half :]

    def is_uncorrelated(self) -> str:
        return "; ".join(_correlated(part[:-1], part[1:]) for part in self.ranks)

    def calls_are_uncorrelated(self) -> str:
        _expect(not np.array_equal(*self.pair), "two calls give equal draws")
        return _correlated(*self.ranks)

    def depends_on_coins(self) -> str:
        """Check that draws depend only on the random bits.

        Draws of a copy are repeated with the same random bits, and draws of copies with other bits are
        compared.
        """
        first = _Recorded()
        twin = copy.copy(self.noise)
        drawn = self.noise.draw(first, self.scale, _REPLAYED, self.grid)
        _expect(first.calls, "the noise does not use its coins")
        again = twin.draw(_Replayed(first.calls), self.scale, _REPLAYED, self.grid)
        _expect(np.array_equal(drawn, again), "a copy of the noise gives other draws with the same coins")
        other = twin.draw(SecureRng(), self.scale, _REPLAYED, self.grid)
        _expect(not np.array_equal(drawn, other), "a copy of the noise gives equal draws with other coins")
        for k in {1, self.steps}:
            _expect(twin.cost(k / self.grid, self.scale) == self.costs[k - 1], "a copy has another cost")
        return f"{_REPLAYED} draws of a copy"


def _ratio(above: Floats, below: Floats) -> float:
    """Return the largest ln(p / q) over cells in which p is not 0, from logarithms of p and q."""
    possible = above > -math.inf
    return float((above[possible] - below[possible]).max(initial=-math.inf))


def _divergence(above: Floats, below: Floats) -> float:
    """Return the largest 2 D_a(P || Q) / a over orders a, from logarithms of the probabilities."""
    possible = above > -math.inf
    p, q = above[possible], below[possible]
    if (q == -math.inf).any():
        return math.inf
    worst = -math.inf
    for order in _ORDERS:
        terms = order * p + (1.0 - order) * q
        top = float(terms.max())
        total = top + math.log(float(np.exp(terms[terms > top - 60.0] - top).sum()))
        worst = max(worst, 2.0 * total / (order - 1.0) / order)
    return worst


def _pooled(counted: Floats, expected: Floats) -> tuple[Floats, Floats]:
    """Pool neighbouring cells until each has at least 1000 expected draws."""
    ends, running = [], 0.0
    for i, value in enumerate(expected.tolist()):
        running += value
        if running >= _EXPECTED:
            ends.append(i + 1)
            running = 0.0
    starts = np.array([0, *ends[:-1]], np.int64)  # remaining draws belong to the last cell
    return np.add.reduceat(counted, starts), np.add.reduceat(expected, starts)


def _correlated(one: Floats, other: Floats) -> str:
    from scipy import stats

    found = float(np.corrcoef(one, other)[0, 1])
    most = float(stats.norm.isf(_NOMINAL / 2)) / math.sqrt(one.size)
    text = f"rank correlation {found:+.4f}, at most {most:.4f}"
    _expect(abs(found) <= most, text)
    return text


class _Recorded(SecureRng):
    """Secure random generator that records its calls as (method, arguments, result) in ``calls``."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, Any]] = []

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in _METHODS:
            return found

        def recorded(*given: Any, **named: Any) -> Any:
            result = found(*given, **named)
            self.calls.append((name, (given, named), copy.copy(result)))
            return result

        return recorded


_METHODS = ("laplace", "normal", "rounded", "below", "flip", "words")


class _Replayed:
    """Random generator that repeats recorded results.

    The methods raise ``AssertionError`` if a call differs from the record.
    """

    exact = True

    def __init__(self, calls: Sequence[tuple[str, Any, Any]]) -> None:
        self._calls = iter(calls)

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            raise AttributeError(name)

        def replayed(*given: Any, **named: Any) -> Any:
            method, asked, result = next(self._calls, ("", None, None))
            same = method == name and repr(asked) == repr((given, named))
            _expect(same, "a copy of the noise asks its coins for other values")
            return copy.copy(result)

        return replayed


# -------------------------------------------------------------------------------------- vector
def check_vector(
    vector: BoundedVector,
    layout: Layout,
    context: Mapping[str, NDArray[Any]] | None = None,
    records: int = 200,
    fresh_process: bool = True,
) -> DeclaredChecks:
    """Check that the function of a vector depends on one record only, and search for its largest change.

    Parameters
    ----------
    vector : BoundedVector
        Vector whose function is called on random records.
    layout : Layout
        Layout of the records, which are random trajectories. Some have one state, or equal rewards 0 or 1.
    context : mapping of arrays, optional
        Public arrays that the function receives. None: no arrays.
    records : int
        Number of records, at least 10.
    fresh_process : bool
        If True, the last records are also evaluated in a new process. This check is skipped if the vector or
        its function cannot be pickled.

    Returns
    -------
    DeclaredChecks
        One result for each check. These checks have no false alarms.

    Raises
    ------
    ValueError
        If ``vector`` is not a ``BoundedVector``, or ``records`` is below 10.
    """
    if not isinstance(vector, BoundedVector):
        raise ValueError(f"vector = {vector!r}: must be a BoundedVector")
    checks.integer("records", records, 10)
    people = list(_records(layout, records))
    try:
        pristine = copy.deepcopy(vector)
    except Exception:
        pristine = None
    subject = _VectorSubject(vector, pristine, layout, dict(context or {}), people)
    bodies = {
        "function gives vectors": subject.gives_vectors,
        "equal results in any order": subject.any_order,
        "equal results alone": subject.alone,
        "vectors are inside the ball": subject.inside,
        "largest change": subject.largest_change,
    }
    if fresh_process:
        bodies["equal results in a new process"] = subject.new_process
    return _results(f"vector {vector.name}", bodies)


def _records(layout: Layout, records: int) -> Iterator[Trajectory]:
    """Yield random trajectories.

    Every fourth stays in one state, and every third has equal rewards 0 or 1.
    """
    rng = np.random.default_rng(records)
    for i in range(records):
        states = rng.integers(layout.states, size=layout.horizon + 1)
        if i % 4 == 3:
            states[:] = states[0]
        rewards = (
            np.full(layout.horizon, float(rng.integers(2))) if i % 3 == 2 else rng.random(layout.horizon)
        )
        yield Trajectory(states, _actions(layout, states, rng), rewards)


def _actions(layout: Layout, states: Ints, rng: np.random.Generator) -> Ints:
    """Return random admissible actions in all states except the last."""
    rows = layout.state_ptr[states[:-1]] + np.floor(
        rng.random(states.size - 1) * np.diff(layout.state_ptr)[states[:-1]]
    ).astype(np.int64)
    return layout.row_action[rows].astype(np.int64)


def _digest(values: Floats) -> bytes:
    return hashlib.sha256((values + 0.0).tobytes()).digest()  # -0.0 equals 0.0


@dataclass(frozen=True)
class _VectorSubject:
    """Vector under test, and values that its checks share.

    pristine : a deep copy that was made before the first call, or None if the vector cannot be copied.
    """

    vector: BoundedVector
    pristine: BoundedVector | None
    layout: Layout
    context: Mapping[str, NDArray[Any]]
    people: Sequence[Trajectory]

    def of(self, record: Trajectory, grid: int | None = None) -> Floats:
        return self.vector.of(record, self.context, grid)

    @cached_property
    def first(self) -> tuple[list[bytes], Counter[str], Floats, float]:
        """Results of the first calls: digests of all vectors, failures, kept vectors, largest norm."""
        failures: Counter[str] = Counter()
        watched = replace(self.vector, function=_Watched(self.vector, failures))
        held = max(2, _ENTRIES // self.vector.size)
        digests: list[bytes] = []
        kept: list[Floats] = []
        longest = 0.0
        for record in self.people:
            values = watched.of(record, self.context, None)
            digests.append(_digest(values))
            longest = max(longest, float(np.linalg.norm(values, self.vector.norm)))
            if len(kept) < held:
                kept.append(values)
        return digests, failures, np.array(kept), longest

    def gives_vectors(self) -> str:
        failures, total = self.first[1], len(self.people)
        zero = sum(failures.values())
        words = ", ".join(f"{count} {what}" for what, count in failures.most_common())
        text = f"{zero} of {total} records count as zero" + (f": {words}" if words else "")
        _expect(zero < total, text)
        return text

    def any_order(self) -> str:
        digests = self.first[0]
        order = np.random.default_rng(1).permutation(len(self.people))
        for i in [*order, *np.repeat(order[::-1], 2)]:
            _expect(
                _digest(self.of(self.people[i])) == digests[i],
                f"record {i} gives another vector after other records or when it is repeated",
            )
        return f"{len(self.people)} records, permuted and repeated"

    def alone(self) -> str:
        digests = self.first[0]
        if self.pristine is None:
            raise NotApplicable("the vector cannot be copied")
        for i, record in enumerate(self.people[:_IN_PROCESS]):
            values = copy.deepcopy(self.pristine).of(record, self.context, None)
            _expect(_digest(values) == digests[i], f"record {i} gives another vector if it is the only one")
        return f"{min(_IN_PROCESS, len(self.people))} records, each with a copy of the function"

    def new_process(self) -> str:
        """Evaluate the last records in reverse order in a process that has seen no other records."""
        digests = self.first[0]
        chosen = list(range(len(self.people)))[: -_IN_PROCESS - 1 : -1]
        records = [self.people[i] for i in chosen]
        module = getattr(self.vector.function, "__module__", None)
        if module == "__main__":
            raise NotApplicable("a new process cannot import the function from __main__")
        try:
            given = pickle.dumps(sys.path) + pickle.dumps(
                (self.pristine or self.vector, dict(self.context), records)
            )
        except Exception as error:
            raise NotApplicable(f"the vector cannot be pickled ({_error_text(error)})") from error
        done = subprocess.run([sys.executable, "-c", _CHILD], input=given, capture_output=True, check=False)
        errors = done.stderr.decode("utf-8", "replace").strip().splitlines()
        _expect(done.returncode == 0, f"the new process ended: {errors[-1] if errors else done.returncode}")
        for i, values in zip(chosen, pickle.loads(done.stdout), strict=True):
            _expect(_digest(values) == digests[i], f"record {i} gives another vector in a new process")
        return f"{len(chosen)} records"

    def inside(self) -> str:
        bound, longest = self.vector.bound, self.first[3]
        _expect(longest <= bound, f"norm {longest!r} above {bound!r}")
        for record in self.people[:_IN_PROCESS]:
            values = self.of(record, _GRID)
            _expect((values * _GRID == np.rint(values * _GRID)).all(), f"not on the grid of 1 / {_GRID}")
            _expect(np.linalg.norm(values, self.vector.norm) <= bound, "outside on the grid")
        return f"the largest norm is {longest:.6g}, B = {bound:g}"

    def largest_change(self) -> str:
        """Search for the two records with the largest difference of vectors.

        The search starts at the best pair and tries random changes of this pair.
        """
        kept, norm, rng = self.first[2], self.vector.norm, np.random.default_rng(2)
        best, ends = 0.0, (0, 0)
        for i in range(len(kept)):
            apart = np.linalg.norm(kept - kept[i], norm, axis=1) if kept.size else np.zeros(1)
            if apart.max() > best:
                best, ends = float(apart.max()), (i, int(apart.argmax()))
        pair = [self.people[i] for i in ends]
        values = [kept[i] for i in ends]
        for turn in range(2 * len(self.people)):
            side = turn % 2
            record = _changed(pair[side], self.layout, rng)
            other = self.of(record)
            apart = float(np.linalg.norm(other - values[1 - side], norm))
            if apart > best:
                best, pair[side], values[side] = apart, record, other
        bound = 2.0 * self.vector.bound
        text = f"{best:.6g} found, 2 B = {bound:g} is assumed (norm {norm})"
        _expect(best <= bound, text)
        return text


def _changed(record: Trajectory, layout: Layout, rng: np.random.Generator) -> Trajectory:
    """Return a record that differs in a random state and its action, and in a reward 0 or 1."""
    states, rewards = record.states.copy(), record.rewards.copy()
    h = int(rng.integers(states.size))
    states[h] = rng.integers(layout.states)
    rewards[int(rng.integers(rewards.size))] = float(rng.integers(2))
    actions = np.where(np.arange(states.size - 1) == h, _actions(layout, states, rng), record.actions)
    return Trajectory(states, actions, rewards)


class _Watched:
    """Wrapper of a vector's function that counts the values that :class:`BoundedVector` replaces by zero."""

    def __init__(self, vector: BoundedVector, failures: Counter[str]) -> None:
        self._function, self._size, self._failures = vector.function, vector.size, failures

    def __call__(self, record: Trajectory, context: Any) -> Any:
        try:
            given = self._function(record, context)
            found = np.asarray(given)
        except Exception as error:
            self._failures[f"raised {type(error).__name__}"] += 1
            raise
        if found.dtype.kind not in "fiub":
            self._failures[f"of dtype {found.dtype}"] += 1
        elif found.shape != (self._size,):
            self._failures[f"of shape {found.shape}"] += 1
        elif not np.isfinite(found).all():
            self._failures["not finite"] += 1
        return given
