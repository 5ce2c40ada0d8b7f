"""Calibration of mechanisms of linear sums: choice of stream, noise and scale for a budget.

Exact calibration. A user is in N noisy sums (one batch, several nodes of a tree, or the user's message). Each
sum consists of units. A unit is a set of statistics of one step with a jointly computed privacy loss. Unit u
has loss l_u at scale 1 and gets share p_u of the budget.

* Gaussian: scale_u = l_u sqrt(N / p_u) / mu, so that N sum_u (l_u / scale_u)^2 = mu^2 exactly.
* Laplace: scale_u = l_u N / (p_u epsilon).

The loss in the privacy record is computed again from the scales. Discrete Gaussian noise is accounted as
zCDP, rho = mu^2 / 2.

Choice of the stream. A stream is a way to release noisy prefix sums: sums of separate batches, or a
factorization such as a tree. The policy for a user depends on the release before that user. Let release j be
the newest release for users t_j to t_{j+1}. The average noise variance in the newest release, over K users,
is N sum_j (t_{j+1} - t_j) terms_j / K for Gaussian noise, with N^2 instead of N for Laplace noise. For sums
of separate batches, terms_j is j. For a factorization, terms_j is the number of its noise terms at time step
j. "auto" chooses the stream with the least average variance. The candidates are separate batches, the binary
tree (also with least-squares estimates) and, for Gaussian noise, the square-root Toeplitz factorization. With
at least about ten releases, the Toeplitz factorization has the least variance. With exact noise, it uses
integer coefficients (:mod:`discreet.mechanisms.linear.exact_square_root`).

Published calibration (Luyo et al. 2021, corollaries 5, 6, 10, 11). The standard deviations are those of the
paper. Noise is added to every entry of a vector. In a matrix, noise is added to every entry of the upper
triangle, which is then mirrored. The tree has one time step per user. The guarantee follows from lemma 3 for
the noise that is drawn, with the actual number of nodes and steps that contain a user. Batched LSVI (appendix
E.1) has GOE noise on a tree over batches. The responses are not centred and have their declared range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from discreet.accounting.noise_distributions.prefix_variance import noise_of
from discreet.core import checks
from discreet.core.correlated_noise.binary_tree import Tree
from discreet.core.correlated_noise.factorization import Walk
from discreet.core.correlated_noise.optimal_tree import OptimalTree
from discreet.core.correlated_noise.square_root_toeplitz import MOST_LEAVES, SquareRoot
from discreet.core.count_mechanism import Stated, leaves_of
from discreet.core.releases import Floats, Schedule
from discreet.core.rng import Randomness, Secure
from discreet.core.strategies import Batches, Exact, OnDevice, Prefixes
from discreet.mechanisms.linear.adaptive_queries import Question
from discreet.mechanisms.linear.context_query import ContextQuery
from discreet.mechanisms.linear.exact_square_root import MOST_LEAVES as MOST_KEPT
from discreet.mechanisms.linear.exact_square_root import ExactSquareRoot
from discreet.mechanisms.linear.linear_mechanism import LinearMechanism
from discreet.mechanisms.linear.linear_queries import (  # fmt: skip
    GRAM,
    RESPONSE,
    SECOND_GRAM,
    SECOND_RESPONSE,
    GramQuery,
    LinearQuery,
    MixtureQuery,
    Noise,
)
from discreet.mechanisms.linear.sensitivities import Target, vector_sensitivity
from discreet.mechanisms.privatizers.base import Budgeted
from discreet.mechanisms.query_checks import check_source, private_schedule

_STATED_DELTA = 1e-6
# Up to this number of releases, the noise variance is averaged over users. Above it, over releases.
_LISTED = 4096


def _private(query: LinearQuery, schedule: Schedule, randomness: Randomness) -> tuple[LinearQuery, Schedule]:
    check_source(randomness)
    schedule = private_schedule(schedule)
    if schedule.pooled_shares is not None:
        raise ValueError("schedule.pooled_shares: must be None, linear sums pool nothing")
    reads = ("sums", "measurements") if isinstance(query, ContextQuery) else ("sums",)
    checks.choice("schedule.reads", schedule.reads, reads)
    if schedule.users is None and query.requeries:
        raise ValueError("schedule.users = None: a plan of responses needs a known number of users")
    return query.copy(), schedule


# ----------------------------------------------------------------------------- which mechanism


@dataclass(frozen=True)
class LinearChoice:
    """Stream of linear sums that meets the budget.

    nodes : number N of noisy sums that contain a user. error : square root of the average noise variance, in
        units of the std of one draw at N = 1.
    """

    release: str
    nodes: int
    error: float
    walk: Walk | None = None
    leaf: Literal["batch", "user"] = "batch"
    noise: str = "Gaussian"

    @property
    def name(self) -> str:
        """Name of the release, followed by "(optimal estimate)" for a tree with least-squares estimates."""
        return f"{self.release} (optimal estimate)" if isinstance(self.walk, OptimalTree) else self.release

    def __str__(self) -> str:
        return f"{self.release}: a user in {self.nodes} noisy sums, error {self.error:.4g}"


def linear_choices(
    schedule: Schedule,
    release: str,
    leaf: Literal["batch", "user"],
    laplace: bool,
    discrete: bool,
    optimal: bool = False,
) -> list[LinearChoice]:
    """Return the streams for a schedule, in order of increasing average noise. Uses only public numbers.

    ``leaf`` : unit of a time step of a factorization, one user or one batch.

    laplace : True for Laplace noise, False for Gaussian noise.

    discrete : True if the noise must be exact.

    optimal : True for a tree with least-squares estimates.
    """
    if schedule.users is None:
        raise ValueError("schedule.users = None: linear sums with central noise need a known number of users")
    if release not in ("auto", "batches", "tree", "square-root"):
        raise ValueError(
            f"release = {release!r}: must be 'auto', 'batches', 'tree' or 'square-root' for linear sums"
        )
    words = "Laplace" if laplace else "Gaussian"
    if schedule.reads == "measurements":
        if release not in ("auto", "batches"):
            raise ValueError(
                f"release = {release!r}: must be 'auto' or 'batches', the learner reads each batch alone"
            )
        release = "batches"
    found = []
    if release in ("auto", "batches"):
        found.append(LinearChoice("batches", 1, math.sqrt(_average(schedule, None, leaf)), noise=words))
    for name, walk in _walks(schedule, release, leaf, laplace, discrete, optimal):
        nodes = walk.levels
        error = math.sqrt(_average(schedule, walk, leaf)) * (nodes if laplace else math.sqrt(nodes))
        found.append(LinearChoice(name, nodes, error, walk, leaf, words))
    return sorted(found, key=lambda choice: choice.error)


def _walks(
    schedule: Schedule,
    release: str,
    leaf: Literal["batch", "user"],
    laplace: bool,
    discrete: bool,
    optimal: bool,
) -> Iterator[tuple[str, Walk]]:
    leaves = leaves_of(schedule, leaf)
    assert leaves is not None
    if discrete and optimal:
        raise ValueError("tree_estimate = 'optimal': its noise is not exact; leave it out")
    if discrete and release == "square-root" and leaf != "batch":
        raise ValueError("leaf = 'user': must be 'batch' for release = 'square-root' with exact noise")
    if laplace and release == "square-root":
        raise ValueError("release = 'square-root': its noise is Gaussian; give delta, rho or mu")
    if release == "auto" or (release == "tree" and not optimal):
        yield "tree", Tree(leaves)
    if optimal or (release == "auto" and not discrete):
        yield "tree", OptimalTree(leaves)
    if release == "auto" and (laplace or (discrete and leaf != "batch")):
        return
    if discrete and (release == "square-root" or (release == "auto" and leaves <= MOST_KEPT)):
        yield "square-root", ExactSquareRoot(leaves)
    elif not discrete and (release == "square-root" or (release == "auto" and leaves <= MOST_LEAVES)):
        yield "square-root", SquareRoot(leaves)


def _average(schedule: Schedule, walk: Walk | None, leaf: Literal["batch", "user"]) -> float:
    """Return the noise variance in the last release before a user, averaged over users.

    The unit is the variance of one draw. If ``walk`` is None, the sums of batches are separate.
    """
    times = schedule.release_times
    assert schedule.users is not None
    seen = np.diff(np.append(times, schedule.users))  # number of users who act after release i
    if walk is None:
        return float(seen @ np.arange(times.size)) / schedule.users
    if times.size > _LISTED:
        return noise_of(walk).rms() ** 2
    at = times if leaf == "user" else np.arange(times.size)
    terms = np.array([0.0 if i == 0 else noise_of(walk).terms(int(i)) for i in at])
    return float(seen @ terms) / schedule.users


# --------------------------------------------------------------------------------- how much


def _noise_of(spec: Budgeted, discrete: bool) -> tuple[Noise, float]:
    """Return the noise family and its privacy loss: ("goe", mu) or ("laplace", epsilon).

    Gaussian noise (GOE) is chosen if the budget and the option ``noise`` allow it.
    """
    mu = spec._target_mu(discrete)
    if mu is not None and spec.noise != "laplace":
        return "goe", mu
    assert spec.epsilon is not None
    return "laplace", spec.epsilon


def published_scales(
    query: MixtureQuery, epsilon: float, delta: float, users: int | None
) -> dict[str, Floats]:
    """Return the standard deviations of the paper (Luyo et al. 2021) by family, each with shape (H - 1,).

    The formulas are those of corollaries 5 and 10 if ``users`` = K is given. If ``users`` is None, they
    follow corollaries 6 and 11, which are for local privacy.
    """
    horizon, d = query.layout.horizon, query.features.dimension
    if users is not None:
        nodes = math.ceil(math.log2(users) + 1) if users > 1 else 1
        if query.second:
            first = 64 * d / epsilon * math.sqrt(
                2 * horizon * nodes * math.log(16 * horizon / delta) * math.log(8 / delta)
                * math.log(32 * horizon * nodes / delta)
            )  # fmt: skip
            second = horizon**4 / d * first
        else:
            first = 32 * horizon**2 / epsilon * math.sqrt(
                2 * horizon * nodes * math.log(8 * horizon / delta) * math.log(4 / delta)
                * math.log(16 * horizon * nodes / delta)
            )  # fmt: skip
            second = 0.0
    elif query.second:
        root = math.sqrt(2 * math.log(8 * horizon / delta))
        first, second = 8 * d * horizon / epsilon * root, 8 * horizon**5 / epsilon * root
    else:
        first = 4 * horizon**3 / epsilon * math.sqrt(2 * math.log(4 * horizon / delta))
        second = 0.0
    flat = np.ones(horizon - 1)
    found = {GRAM: first * flat, RESPONSE: first * flat}
    return found | {SECOND_GRAM: second * flat, SECOND_RESPONSE: second * flat} if query.second else found


def published_lsvi(horizon: int, releases: int, epsilon: float, delta: float) -> tuple[float, float]:
    """Return two standard deviations of the paper's noise for batched LSVI.

    The first is for a node of the tree of Gram matrices, the second for a response. There are
    B = releases + 1 batches.
    """
    batches = releases + 1
    nodes = math.ceil(math.log2(batches) + 1)
    log = math.log(32 * horizon * nodes * batches / delta)
    gram_std = 128 / epsilon * math.sqrt(batches * horizon * nodes) * log**2
    return gram_std, 128 / epsilon * horizon * math.sqrt(horizon * batches) * log**2


def _published_lsvi(
    spec: Budgeted, query: GramQuery, schedule: Schedule
) -> tuple[LinearChoice, dict[str, Floats], list[Question]]:
    """Return the published mechanism of batched LSVI: the tree, its noise scales and the planned questions.

    The tree has GOE noise. The questions ask for responses that are not centred.
    """
    if query.centre or query.span != "declared":
        raise ValueError("calibration = 'published': needs a query with centre = False and span = 'declared'")
    if spec.epsilon is None or spec.delta is None:
        raise ValueError("calibration = 'published': needs epsilon and delta")
    leaves, releases = leaves_of(schedule, "batch"), schedule.releases
    assert leaves is not None
    assert releases is not None
    gram_std, std = published_lsvi(query.layout.horizon, releases, spec.epsilon, spec.delta)
    row: Target = "raw-nonneg" if query.features.nonneg else "raw"
    questions = [
        replace(one, mu=vector_sensitivity(query.features.bound, one.high, row) / std)
        for one in _questions(query, schedule, "goe", 1.0)
    ]
    walk = Tree(leaves)
    scales = {GRAM: np.full(query.steps, gram_std)}
    return LinearChoice("tree", walk.levels, 0.0, walk), scales, questions


def _published(spec: Budgeted, query: LinearQuery, users: int | None) -> dict[str, Floats]:
    if isinstance(query, ContextQuery):
        raise ValueError(
            "privatizer: calibration must be 'exact', without preset 'paper', for learners of contexts; "
            "options of the learner, such as bonus_scale = 1, can be the printed ones"
        )
    if not isinstance(query, MixtureQuery) or query.rewards is not None:
        raise ValueError(
            "calibration = 'published': is printed for value-targeted regression with known rewards"
        )
    if spec.epsilon is None or spec.delta is None:
        raise ValueError("calibration = 'published': needs epsilon and delta")
    return published_scales(query, spec.epsilon, spec.delta, users)


def _stated(spec: Budgeted) -> Stated:
    return Stated(spec.delta or _STATED_DELTA, spec.epsilon)


# --------------------------------------------------------------------------------- mechanisms


def linear_none(query: LinearQuery, schedule: Schedule, randomness: Randomness) -> LinearMechanism:
    """Return the mechanism that releases exact linear sums, without a privacy guarantee."""
    query, schedule = _private(query, schedule, randomness)
    questions = _questions(query, schedule, None, 0.0)
    return LinearMechanism(query, schedule, randomness.kind, Exact(), questions=tuple(questions))


def linear_central(
    spec: Budgeted,
    query: LinearQuery,
    schedule: Schedule,
    randomness: Randomness,
    *,
    release: str = "auto",
    leaf: Literal["batch", "user"] = "batch",
    optimal: bool = False,
) -> LinearMechanism:
    """Return the mechanism of a trusted server that releases linear sums.

    spec : privatizer with the budget. optimal : True for a tree with least-squares estimates. Raises
    ``ValueError`` if query and schedule do not fit the budget.
    """
    query, schedule = _private(query, schedule, randomness)
    _check_options(spec)
    grid = randomness.reward_grid if isinstance(randomness, Secure) else None
    discrete = grid is not None
    questions: list[Question] = []
    noise: Noise
    if spec.calibration == "published" and isinstance(query, GramQuery) and query.requeries:
        noise = "goe"
        choice, scales, questions = _published_lsvi(spec, query, schedule)
    elif spec.calibration == "published":
        noise = "triangle"
        scales = _published(spec, query, checks.integer("schedule.users", schedule.users, 2))
        leaf = "user"
        walk = Tree(schedule.users)
        choice = LinearChoice("tree", walk.levels, 0.0, walk, leaf)
    else:
        noise, loss = _noise_of(spec, discrete)
        if isinstance(query, GramQuery) and query.requeries:
            questions = _questions(query, schedule, noise, loss)
            kept = 1.0 - query.answer_share
            loss *= kept if noise == "laplace" else math.sqrt(kept)
        for choice in central_choices(spec, schedule, randomness, release, leaf, optimal):
            scales = query.calibrated(noise, loss, choice.nodes)
            if grid is None or not LinearMechanism.inexact(query, noise, scales, grid, choice.walk):
                # otherwise the noise is outside the range of the exact sampler, and the next stream is tried
                break
    strategy = Prefixes(choice.walk, choice.leaf) if choice.walk else Batches()
    return LinearMechanism(
        query, schedule, randomness.kind, strategy, noise, scales, grid, tuple(questions), _stated(spec)
    )


def central_choices(
    spec: Budgeted,
    schedule: Schedule,
    randomness: Randomness,
    release: str,
    leaf: Literal["batch", "user"],
    optimal: bool,
) -> list[LinearChoice]:
    """Return the streams that meet a budget, in order of increasing average noise."""
    discrete = isinstance(randomness, Secure)
    noise, _ = _noise_of(spec, discrete)
    return linear_choices(schedule, release, leaf, noise == "laplace", discrete, optimal)


def local_choices(spec: Budgeted, query: LinearQuery, randomness: Randomness) -> list[LinearChoice]:
    """Return the only choice for local privacy: each message has noise in every statistic.

    The error of this choice is 1 for one user and grows with the square root of the number of users.
    """
    noise, _ = _noise_of(spec, isinstance(randomness, Secure))
    return [LinearChoice("every statistic", 1, 1.0, noise="Laplace" if noise == "laplace" else "Gaussian")]


def linear_local(
    spec: Budgeted, query: LinearQuery, schedule: Schedule, randomness: Randomness
) -> LinearMechanism:
    """Return the mechanism of local privacy: users' devices add noise to their own linear sums."""
    query, schedule = _private(query, schedule, randomness)
    if query.requeries:
        raise ValueError(
            "response = 'requery': must be 'model' under local privacy, also beside preset = 'paper': "
            "responses are asked of stored trajectories, which never leave a local user's device"
        )
    _check_options(spec)
    grid = randomness.reward_grid if isinstance(randomness, Secure) else None
    noise: Noise = "triangle"
    if spec.calibration == "published":
        scales = _published(spec, query, None)
    else:
        noise, loss = _noise_of(spec, grid is not None)
        scales = query.calibrated(noise, loss, 1)
    return LinearMechanism(
        query, schedule, randomness.kind, OnDevice(), noise, scales, grid, stated=_stated(spec)
    )


def _check_options(spec: Budgeted) -> None:
    if spec.weights is not None:
        raise ValueError(f"weights = {spec.weights}: must be None, linear sums have shares of their query")


def _questions(query: LinearQuery, schedule: Schedule, noise: Noise | None, loss: float) -> list[Question]:
    """Return the planned questions for responses, round by round. Each round starts with the last step.

    The mu_h^2 (or epsilon) of a question is proportional to the query's share of step h. There is one round
    at each release, or there are ``schedule.answers`` rounds. With ``schedule.answers``, the learner decides
    from earlier releases (growth of the determinant) at which releases it makes a round of queries. Some
    rounds can then remain unused.
    """
    if not isinstance(query, GramQuery) or not query.requeries:
        return []
    horizon = query.layout.horizon
    shares = {unit.steps[0]: unit.share for unit in query.units(noise or "goe")}
    asked = checks.integer("schedule.answers", schedule.answers, 0)
    releases = asked or max(1, schedule.releases or 1)
    found = []
    for _ in range(releases):
        for h in reversed(range(query.steps)):
            mu = epsilon = None
            if noise == "laplace":
                epsilon = query.answer_share * shares[h] * loss / releases
            elif noise is not None:
                mu = loss * math.sqrt(query.answer_share * shares[h] / releases)
            high = float(horizon - h) if query.rewards else float(horizon - 1 - h)
            found.append(
                Question(
                    kind="response",
                    step=h,
                    mu=mu,
                    epsilon=epsilon,
                    low=0.0,
                    high=high,
                    reward=query.rewards,
                    centre=query.centre,
                    span=query.span,
                )
            )
    return found
