"""Walks: programs against brute-force matrices, columns of strategies, tables of the specification."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import gammaln

from discreet.accounting.noise_distributions.count_noise import bound_of, bound_steps
from discreet.accounting.noise_distributions.prefix_variance import best_digits, noise_of
from discreet.accounting.noise_distributions.prefix_variance import digits as digits_of
from discreet.audit.noise_matrix import noise_matrix
from discreet.core.correlated_noise import factorization_kernels as walks
from discreet.core.correlated_noise.binary_tree import Tree
from discreet.core.correlated_noise.factorization import Walk, program
from discreet.core.correlated_noise.optimal_tree import OptimalTree, node_variances
from discreet.core.correlated_noise.signed_digit_tree import SignedDigits
from discreet.core.correlated_noise.square_root_toeplitz import SquareRoot, quadrature
from discreet.mechanisms.linear.exact_square_root import BITS, ExactSquareRoot

Floats = NDArray[np.float64]

SIZES = [2, 3, 4, 5, 8, 9, 17, 40, 100]
DIGITS = [
    SignedDigits(n, k, levels)
    for n in SIZES
    for k, levels in ((2, 1), (2, 7), (3, 2), (3, 5), (4, 3), (5, 2), (6, 3), (7, 2), (16, 2), (50, 2))
]
WALKS: list[Walk] = [
    *(kind(n) for n in SIZES for kind in (Tree, OptimalTree, SquareRoot, ExactSquareRoot)),
    *DIGITS,
    *(best_digits(n) for n in SIZES),
]


def name(walk: Walk) -> str:
    more = f"-{walk.arity}-{walk.levels}" if isinstance(walk, SignedDigits) else ""
    return f"{type(walk).__name__}-{walk.leaves}{more}"


every_walk = pytest.mark.parametrize("walk", WALKS, ids=name)


def prefixes(walk: Walk) -> Floats:
    """A: prefixes 1 .. N - 1 of N - 1 leaves."""
    assert walk.leaves is not None
    return np.tril(np.ones((walk.leaves - 1, walk.leaves - 1)))


# ------------------------------------------------------------------------------ what the face says
@every_walk
def test_variances_are_those_of_the_program(walk: Walk) -> None:
    """Each address is drawn once (or noise_matrix raises); registers and operations suffice."""
    matrix, addresses = noise_matrix(walk)
    assert len(set(addresses)) == matrix.shape[1]
    variances = (matrix**2).sum(axis=1)
    assert [noise_of(walk).terms(n) for n in range(1, len(matrix) + 1)] == pytest.approx(variances.tolist())
    assert noise_of(walk).rms() == pytest.approx(np.sqrt(variances.mean()))
    assert noise_of(walk).terms(0) == noise_of(walk).most(0) == bound_of(walk, 0) == 0


@every_walk
def test_bounds_are_running_maxima_and_grow_at_the_steps(walk: Walk) -> None:
    assert walk.leaves is not None
    terms = np.array([noise_of(walk).terms(n) for n in range(walk.leaves)])
    most = np.maximum.accumulate(terms)
    assert [noise_of(walk).most(n) for n in range(walk.leaves)] == pytest.approx(most.tolist())
    for parts in (1, 16):
        bounds = np.array([bound_of(walk, n, parts) for n in range(walk.leaves)])
        assert (bounds >= parts * terms - 1e-6).all()
        assert (bounds < parts * most + 1).all()
        assert bound_steps(walk, parts) == [*np.flatnonzero(np.diff(bounds)), walk.leaves - 1]


def test_steps_need_a_known_end() -> None:
    for call in (lambda: bound_steps(Tree(None)), lambda: noise_matrix(Tree(None))):
        with pytest.raises(ValueError, match="leaves = None"):
            call()  # type: ignore[operator]


# ------------------------------------------------------------------------------ trees of nodes
def incidence(addresses: list[tuple[int, int]], arity: int, leaves: int) -> Floats:
    """C of blocks (end, level): block of arity^level leaves that ends at end blocks; its leaves below N."""
    out = np.zeros((len(addresses), leaves))
    for row, (end, level) in enumerate(addresses):
        out[row, (end - 1) * arity**level : end * arity**level] = 1.0
    return out


@pytest.mark.parametrize("walk", [w for w in WALKS if isinstance(w, SignedDigits)], ids=name)
def test_signed_digits_factor_the_prefixes(walk: SignedDigits) -> None:
    """B C = A with 0/1 blocks, a leaf in at most L of them: what the pure guarantee needs, and no more."""
    matrix, addresses = noise_matrix(walk)
    strategy = incidence(addresses, walk.arity, walk.leaves - 1)
    np.testing.assert_array_equal(matrix @ strategy, prefixes(walk))
    assert set(np.unique(matrix)) <= {-1.0, 0.0, 1.0}
    columns = strategy.sum(axis=0)
    assert columns.max() <= walk.levels
    if walk.arity ** (walk.levels - 1) < walk.leaves:  # every level is in use
        assert columns[0] == walk.levels


@pytest.mark.parametrize("walk", DIGITS[-10:], ids=name)
def test_signed_digits_are_balanced(walk: SignedDigits) -> None:
    for n in range(walk.leaves):
        digits = digits_of(walk, n)
        assert sum(d * walk.arity**level for level, d in enumerate(digits)) == n
        assert digits[-1] >= 0
        assert all(-walk.arity / 2 < d <= walk.arity / 2 for d in digits[:-1])


def test_arity_2_is_the_binary_tree() -> None:
    one, two = noise_matrix(SignedDigits(200, 2, 8))[0], noise_matrix(Tree(200))[0]
    np.testing.assert_array_equal((one != 0).sum(axis=1), (two != 0).sum(axis=1))
    np.testing.assert_array_equal(one @ one.T, two @ two.T)


@pytest.mark.parametrize("leaves", SIZES)
def test_binary_nodes_factor_the_prefixes(leaves: int) -> None:
    tree = Tree(leaves)
    matrix, addresses = noise_matrix(tree)
    strategy = np.zeros((len(addresses), leaves - 1))
    for row, (end, _) in enumerate(addresses):
        strategy[row, end & (end - 1) : end] = 1.0
    np.testing.assert_array_equal(matrix @ strategy, prefixes(tree))
    assert strategy.sum(axis=0).max() == tree.levels


@pytest.mark.parametrize("leaves", SIZES)
def test_the_optimal_estimate_is_generalised_least_squares(leaves: int) -> None:
    """Best linear unbiased estimate of each prefix from all nodes complete by then, by dense algebra."""
    walk = OptimalTree(leaves)
    matrix, addresses = noise_matrix(walk)
    nodes = np.zeros((len(addresses), leaves - 1))
    for row, (end, level) in enumerate(addresses):
        nodes[row, end - 2**level : end] = 1.0
    ends = np.array([end for end, _ in addresses])
    for n in range(1, leaves):
        seen = nodes[ends <= n][:, :n]
        weights = np.ones(n) @ np.linalg.solve(seen.T @ seen, seen.T)
        np.testing.assert_allclose(matrix[n - 1][ends <= n], weights, atol=1e-12)
        assert not matrix[n - 1][ends > n].any()
    columns = nodes.sum(axis=0)
    assert columns.max() == columns[0] == walk.levels


@pytest.mark.parametrize("walk", [w for w in WALKS if w.code >= 0 and w.leaves in (5, 17, 40)], ids=name)
def test_a_form_has_the_room_that_its_program_takes(walk: Walk) -> None:
    """All registers are used, and all operations but one; trees also from any prefix right to the last."""
    assert walk.leaves is not None
    code, ints, floats, *_ = program(walk)
    links, weights = np.zeros((999, 6), np.int64), np.zeros((999, 4))
    registers, operations = 0, 0
    for end in range(1, walk.leaves) if isinstance(walk, Tree) else [walk.leaves - 1]:
        held = np.zeros(walk.registers + 1, np.int64)
        while held[-1] < end:
            at, count = walks.next_ops(code, ints, floats, held, end, links, weights)
            registers = max(registers, 1 + int(links[:count, walks.TARGET].max(initial=-1)))
            operations, held[-1] = max(operations, count), at
    assert operations <= walk.form.operations
    assert registers <= walk.registers
    if not isinstance(walk, SignedDigits):  # of theirs some may have nothing to do
        assert operations >= walk.form.operations - 1
        assert registers == walk.registers


def test_a_walk_says_its_levels_and_its_program_or_is_none() -> None:
    """What it costs is no default that one could forget."""
    for given in ("levels", "form"):
        half = type("Half", (Walk,), {given: 1})
        with pytest.raises(TypeError, match="abstract"):
            half()
    whole = type("Whole", (Walk,), {"levels": 1, "form": Tree(5).form})()
    assert (whole.row, whole.registers, whole.code, whole.weighted) == (None, 4, -1, False)
    assert [kind.weighted for kind in (Tree, SignedDigits, OptimalTree, SquareRoot)] == [False] * 2 + [
        True
    ] * 2
    with pytest.raises(ValueError, match="read-only"):
        SquareRoot(9).form.floats[0] = 0.0  # type: ignore[index]


def test_an_open_tree_has_room_for_all_users_that_there_can_be() -> None:
    tree = Tree(None)
    code, ints, floats, links, weights = program(tree)
    for n in (2**60 - 1, 2**60, 2**61 - 2):
        held = np.zeros(tree.registers + 1, np.int64)
        _, count = walks.next_ops(code, ints, floats, held, n, links, weights)
        assert count <= tree.form.operations
        assert links[:count, walks.TARGET].max() < tree.registers


def test_node_variances() -> None:
    assert node_variances(4) == pytest.approx((1.0, 2 / 3, 4 / 7, 8 / 15))
    assert node_variances(40)[-1] == pytest.approx(0.5)


# --------------------------------------------------------------------------- the square root
@pytest.mark.parametrize("leaves", [*SIZES, 700])
def test_columns_of_the_square_root_strategy_have_norm_one(leaves: int) -> None:
    """C = B^{-1} A by dense algebra, B from its generating coefficients: whatever the fit is like."""
    walk = SquareRoot(leaves)
    (buffers,), floats = walk.form.ints, np.asarray(walk.form.floats)
    rates, weights = floats[1 : 1 + buffers], floats[1 + buffers :]
    row = (weights * rates ** np.arange(leaves - 1)[:, None]).sum(axis=1)
    row[0] = floats[0]
    at = np.subtract.outer(np.arange(leaves - 1), np.arange(leaves - 1))
    toeplitz = np.where(at >= 0, row[at], 0.0)
    matrix, addresses = noise_matrix(walk)
    assert addresses == [(n, 0) for n in range(1, leaves)]
    np.testing.assert_allclose(matrix, toeplitz, rtol=1e-12)
    strategy = np.linalg.solve(matrix, prefixes(walk))
    assert not np.triu(np.abs(strategy) > 1e-12, 1).any()  # no row looks ahead
    norms = np.linalg.norm(strategy, axis=0)
    assert 1 - 1e-8 < norms.max() <= 1.0
    assert norms.argmax() == 0


@pytest.mark.parametrize("releases", [2, 3, 10, 100, 20_000, 10**6])
def test_the_quadrature_is_within_one_percent(releases: int) -> None:
    rates, weights = quadrature(releases)
    j = np.unique(np.geomspace(1, releases - 1, 300).astype(int))
    moments = np.exp(gammaln(2 * j + 1) - 2 * gammaln(j + 1) - j * np.log(4))
    fitted = (weights * rates ** j[:, None]).sum(axis=1)
    assert np.abs(fitted / moments - 1).max() < 0.01
    assert rates.size < 15
    assert ((rates > 0) & (rates < 1)).all()


@pytest.mark.parametrize("releases", [1, 2, 10, 20_000])
def test_the_quadrature_is_the_trapezoidal_rule_of_the_arcsine_law(releases: int) -> None:
    """lambda = 1 / (1 + e^-u) at u = -2, -1/2, ... past ln M + 3; the last node has the mass that is left."""
    rates, weights = quadrature(releases)
    u = np.log(rates / (1 - rates))
    assert u == pytest.approx(-2 + 1.5 * np.arange(rates.size), abs=1e-9)
    assert u[-2] < np.log(releases) + 3 <= u[-1] + 1e-9
    density = np.sqrt(rates * (1 - rates)) / np.pi  # of the arcsine law in u
    assert weights[:-1] == pytest.approx(1.5 * density[:-1], rel=1e-12)
    assert weights[-1] == pytest.approx(stats.arcsine.sf(1 / (1 + np.exp(0.75 - u[-1]))), rel=1e-9)


# ----------------------------------------------------------- tables of privacy-mechanisms, section 2
K = 20_000


def factors(walk: Walk, laplace: bool) -> tuple[float, float, float]:
    """Std at k = K, rms and largest over k = 1 .. K, in units of one release's noise."""
    exposure = walk.levels if laplace else np.sqrt(walk.levels)
    noise = noise_of(walk)
    return tuple(round(exposure * x, 10) for x in (noise.terms(K) ** 0.5, noise.rms(), noise.most(K) ** 0.5))


@pytest.mark.parametrize(
    ("walk", "laplace", "expected"),
    [
        (Tree(K + 1), True, (33.5, 39.6, 56.1)),
        (Tree(K + 1), False, (8.66, 10.2, 14.5)),
        (OptimalTree(K + 1), True, (23.8, 29.6, 41.9)),
        (OptimalTree(K + 1), False, (6.13, 7.63, 10.8)),
        (best_digits(K + 1, 12), True, (18.8, 15.4, 21.5)),
        (best_digits(K + 1, 16), True, (12.0, 15.2, 21.2)),
        (best_digits(K + 1, 19), True, (17.9, 15.9, 21.9)),
        (best_digits(K + 1, 28), True, (20.6, 15.5, 21.6)),
        (SquareRoot(K + 1), False, (4.22, 4.06, 4.22)),
    ],
    ids=lambda x: name(x) if isinstance(x, Walk) else "",
)
def test_factors_of_the_document(walk: Walk, laplace: bool, expected: tuple[float, ...]) -> None:
    assert factors(walk, laplace) == pytest.approx(expected, abs=0.051 if laplace else 0.0051, rel=3e-3)


@pytest.mark.parametrize(("batches", "factor"), [(12, 1.85), (20, 2.02), (36, 2.20), (81, 2.46)])
def test_the_square_root_on_batches(batches: int, factor: float) -> None:
    """Section 2.1, third row; the exact square root has sum_{j<B} c_j^2, and nothing is far below it."""
    exact = np.cumprod([1.0, *(1 - 1 / (2 * np.arange(1.0, batches)))])
    found = noise_of(SquareRoot(batches + 1)).terms(batches) ** 0.5
    assert found == pytest.approx(factor, abs=0.006)
    assert found == pytest.approx((exact**2).sum(), rel=3e-3)


def test_the_best_arity_is_the_best() -> None:
    best = best_digits(K + 1)
    assert (best.arity, best.levels) == (14, 4)
    assert best.levels * noise_of(best).rms() == pytest.approx(14.99, abs=0.005)
    for arity in range(2, 65):
        for levels in range(1, 8):
            other = SignedDigits(K + 1, arity, levels)
            assert best.levels * noise_of(best).rms() <= other.levels * noise_of(other).rms()


def test_rms_of_many_leaves_is_exact() -> None:
    walk = SignedDigits(300_000, 22, 4)
    noise = noise_of(walk)
    assert noise.rms() == pytest.approx(np.sqrt(np.mean([noise.terms(n) for n in range(1, 300_000)])))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SignedDigits(10, 1), "arity = 1"),
        (lambda: SignedDigits(10, 2000), "arity = 2000"),
        (lambda: SignedDigits(10, 3, 0), "levels = 0"),
        (lambda: SquareRoot(10**7 + 1), "leaves = 10000001"),
        (lambda: OptimalTree(0), "leaves = 0"),
    ],
)
def test_bad_parameters(build: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()  # type: ignore[operator]


@pytest.mark.parametrize("kind", [Tree, OptimalTree, SquareRoot, ExactSquareRoot, SignedDigits])
@pytest.mark.parametrize("leaves", [0, -3, 2.5, True, "8"])
def test_a_number_of_leaves_that_is_none_is_refused(kind: type[Walk], leaves: object) -> None:
    """No levels would be charged for it."""
    with pytest.raises(ValueError, match="leaves = "):
        kind(leaves) if kind is not SignedDigits else SignedDigits(leaves, 3)  # type: ignore[call-arg, arg-type]


@pytest.mark.parametrize(
    "walk", [Tree(1), OptimalTree(1), SquareRoot(1), best_digits(1)], ids=lambda one: type(one).__name__
)
def test_a_walk_of_one_leaf_releases_nothing_and_charges_one_level(walk: Walk) -> None:
    assert walk.levels == 1
    assert np.isfinite(noise_of(walk).rms())
    assert noise_of(walk).terms(0) == 0.0


# ------------------------------------------------------------------------- integers are measured
@pytest.mark.parametrize("leaves", [2, 3, 9, 40, 500])
def test_the_exact_square_root_measures_integers_and_estimates_prefix_sums(leaves: int) -> None:
    """A unit change in any leaf moves all measurements by at most the norm; without noise sums are exact."""
    walk, m = ExactSquareRoot(leaves), leaves - 1
    assert walk.column.dtype == np.int64
    assert walk.column[0] == 2**BITS
    strategy = np.array([[walk.column[n - i] if n >= i else 0 for i in range(m)] for n in range(m)])
    squares = (strategy.astype(object) ** 2).sum(axis=0)
    assert max(squares) * (1 + 1e-13) <= walk.norm**2
    assert walk.norm <= max(squares) ** 0.5 * (1 + 1e-11)
    values = np.random.default_rng(leaves).integers(-(2**35), 2**35, (m, 3))
    readings = np.array([walk.measured(values[: n + 1]) for n in range(m)])
    assert np.array_equal(readings, strategy @ values)
    for n in range(1, leaves):
        found = walk.prefix(readings[:n].astype(float))
        np.testing.assert_allclose(found, values[:n].sum(axis=0), rtol=0, atol=2.0**35 * 1e-9)


def test_exact_noise_has_the_error_of_the_walk_in_floating_point() -> None:
    for leaves in (6, 21, 201, 4001):
        exact, real = noise_of(ExactSquareRoot(leaves)), noise_of(SquareRoot(leaves))
        assert exact.rms() == pytest.approx(real.rms(), rel=0.04)
    with pytest.raises(ValueError, match="leaves"):
        ExactSquareRoot(5000)
