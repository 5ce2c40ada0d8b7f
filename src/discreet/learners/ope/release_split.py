r"""Split of one release into two releases for disjoint shares of its users, by adding and subtracting noise.

A policy must not be evaluated with the data from which it was learned. A released cell is X = x + xi, where x
is the exact sum and xi is the noise. For a share f of the users and v = f (1 - f), let

    train = f X + E,   held_out = (1 - f) X - E,

where E has the conditional variance v Var X. Then Cov(train, held_out) = v Var X - Var E = 0. The sum of both
parts is the release. The parts are distributed like releases of f n and (1 - f) n users, with noise of
standard deviation sqrt(f) sigma and sqrt(1 - f) sigma. E has two summands, one for the users and one for the
noise:

* **The summand for users.** Let m be the rounded consistent counts (:func:`consistent_counts`). For
  transitions, it is e = binomial(m, f) - f m, multiplied by sqrt(k) for k episodes per user. For visits, it
  is the sum of e over next states. For a centred sum R of rewards or returns, it is r Sum e + sqrt(v k N (1/4
  - r^2)) z with r = R / N. If :class:`ReturnSteps` are given, the summand of returns also contains the errors
  of transitions of the row and of later rows. The rest of the variance is that of z.
* The summand for noise is sqrt(v) sigma z for each cell. Every z is a new standard normal variable. If the
  noise of the release is Laplace noise, z is a Laplace variable of the same variance.

Each family of sums is independent in the two parts if counts are Poisson variables and noise is Gaussian.
With Laplace noise, it is uncorrelated. If noise makes m larger than x, the parts are negatively correlated.
Users with lucky transitions have high returns. Therefore returns of one part and transitions of the other are
uncorrelated only with :class:`ReturnSteps`. Without them, a policy that was planned from returns of ``train``
is overestimated with transitions of ``held_out``. Sources: data fission (arXiv 2112.11079) and data thinning
(arXiv 2301.07276). The split is post-processing: both parts have the guarantee of the release. The random
stream of the split depends only on the content of the release and on f, so everyone who splits the same
release with the same f gets the same parts.

Values of ``train`` are multiples of 2^-24. If all values of a release are such multiples (for example, with
discrete noise), the sum of the parts equals the release exactly. For other releases, it is equal up to
rounding.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.noise_distributions.distributions import (
    GaussianSumLaw,
    LaplaceSumLaw,
    SubGaussianSumLaw,
    WeightedLaplaceLaw,
)
from discreet.core import checks
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.core.guarantee import Guarantee
from discreet.core.layout import Layout
from discreet.core.releases import Floats, Ints, Release
from discreet.core.short_repr import brief
from discreet.learners.estimation import model_kernels as kernels
from discreet.mechanisms.interfaces import NoiseDistribution, ProblemSpec, StepSums, StepwiseRelease
from discreet.utils.random_streams_kernels import ROLE_SAMPLES, generator_at

_VERSION = b"discreet split 1"
_GRID = 24  # values of the training part are multiples of 2^-24


def combined_visits(
    visits: Floats | None, moves: Floats, of_moves: float, of_visits: float
) -> tuple[Floats, float]:
    """Return the (R,) least-squares combination of visits and sums of transitions, and its noise deviation.

    - visits, moves : (R,) and (R, S) released counts. visits is None if visits were not released.
    - of_moves, of_visits : standard deviations of the noise in one cell of transitions and of visits.
      of_visits is infinite if visits were not released.
    """
    whole, variance = moves.sum(axis=1), moves.shape[1] * of_moves**2
    if not variance:
        return whole, 0.0
    weight = 0.0 if math.isinf(of_visits) else variance / (of_visits**2 + variance)
    taken = whole if visits is None else weight * visits + (1.0 - weight) * whole
    return taken, math.sqrt((1.0 - weight) * variance)


def consistent_counts(moves: Floats, visits: Floats | None, of_moves: float, of_visits: float) -> Floats:
    """Return (R, S) non-negative transition counts that are consistent with visits.

    Transitions and visits are combined by least squares and then projected. Without noise, the transitions
    are returned.

    - moves, visits : (R, S) and (R,) released counts. visits is None if visits were not released.
    - of_moves, of_visits : standard deviations of the noise in one cell of transitions and of visits.
    """
    if of_moves == 0.0:
        return np.maximum(moves, 0.0)
    whole = moves.sum(axis=1)
    if visits is None:
        target, kept = np.maximum(whole, 0.0), np.maximum(moves, 0.0)
    else:
        both = of_visits**2 + moves.shape[1] * of_moves**2
        gap = whole - visits
        target = np.maximum(visits + gap * (of_visits**2 / both), 0.0)
        kept = np.maximum(moves - (gap * (of_moves**2 / both))[:, None], 0.0)
    kernels.project_table(kept, target, np.zeros(len(moves)), kept, np.empty(len(moves)))
    return kept


class ThinningErrors(NamedTuple):
    """Errors E of transitions and visits, with the counts N and the sums Sum e from which E is computed."""

    moves: Floats  # (R, S)
    visits: Floats  # (R,)
    counts: Floats  # (R,) rounded consistent visits N
    luck: Floats  # (R,) Sum e
    users: Floats  # (R, S) e


def thinning_errors(
    consistent: Floats,
    share: float,
    of_moves: float,
    of_visits: float,
    draw: np.random.Generator,
    heavy: bool = False,
    episodes: int = 1,
) -> ThinningErrors:
    """Draw the errors E that split a release into shares f and 1 - f.

    - consistent : (R, S) non-negative counts. share : f in (0, 1).
    - of_moves, of_visits : standard deviations of the noise in one cell of transitions and of visits.
    - draw : random generator. heavy : True for Laplace noise. episodes : largest number of episodes per user.
    """
    many = np.rint(consistent).astype(np.int64)
    luck = math.sqrt(episodes) * (draw.binomial(many, share) - share * many)
    moves = luck + _noise(of_moves, luck.shape, share, draw, heavy)
    whole = luck.sum(axis=1)
    visits = whole + _noise(of_visits, whole.shape, share, draw, heavy)
    return ThinningErrors(moves, visits, many.sum(axis=1).astype(np.float64), whole, luck)


class ReturnSteps(NamedTuple):
    """Decomposition of returns into single transitions, in a model of the release.

    A return minus its mean is a sum over transitions (s, a, t). The first transition adds c(t) minus its mean
    after (s, a). Every later transition adds c(t) minus its mean in s.
    """

    worth: Floats  # (S,) c(t), the reward on arrival in t plus the mean later return, up to a constant
    later: Floats  # (R, S) share of the users visiting a state who visited the row before

    def errors(self, e: Floats, consistent: Floats, ptr: Ints) -> tuple[Floats, Floats]:
        """Return the (R,) errors of returns that follow from the errors e of transitions, and their variance.

        The variance is in units of the variance of one user in e.

        e, consistent : (R, S) errors and counts of transitions. ptr : (S + 1,) first row of each state.
        """

        def of_mean(table: Floats) -> tuple[Floats, Floats]:
            whole = np.maximum(table.sum(axis=1), 1e-300)
            mean = table @ self.worth / whole
            return mean, np.maximum(table @ self.worth**2 - whole * mean**2, 0.0)

        together = np.add.reduceat(consistent, ptr[:-1], axis=0)
        (own, of_own), (usual, of_usual) = of_mean(consistent), of_mean(together)
        first = e @ self.worth - own * e.sum(axis=1)
        step = np.add.reduceat(e, ptr[:-1], axis=0)
        after = step @ self.worth - usual * step.sum(axis=1)
        return first + self.later @ after, of_own + self.later**2 @ of_usual


def _noise(
    deviation: float, shape: tuple[int, ...], share: float, draw: np.random.Generator, heavy: bool
) -> Floats:
    if not deviation:
        return np.zeros(shape)
    drawn, scale = (draw.laplace, math.sqrt(0.5)) if heavy else (draw.normal, 1.0)
    return np.asarray(drawn(0.0, math.sqrt(share * (1.0 - share)) * (scale * deviation), shape))


@dataclass(frozen=True, eq=False)
class ReleasePart:
    """One part of a split release: a :class:`~discreet.mechanisms.interfaces.StepwiseRelease`.

    The sums of a step are computed from the release at each request.

    Attributes
    ----------
    users : int
        Number of users of the part: its share times the users of the release.
    laws : mapping of family to NoiseDistribution
        Noise distribution of each family.
    slots, episodes : int
        Number of steps with tables, and largest number of episodes per user.
    part : "train" or "held_out"
        Name of the part.
    share : float
        Share f of the training part, in (0, 1).
    made_from : mapping
        Origin of the part: the SHA-256 of the values of the release (``release``), ``part`` and ``share``.
    steps : ReturnSteps, optional
        Decomposition of returns, for a release of first visits.
    """

    __repr__ = brief

    release: StepwiseRelease
    users: int
    laws: Mapping[str, NoiseDistribution]
    slots: int
    episodes: int
    part: str
    share: float
    made_from: Mapping[str, Any]
    _key: NDArray[np.uint64]
    steps: ReturnSteps | None = None

    @property
    def layout(self) -> Layout:
        """Return the layout with S, A, H and the admissible actions."""
        return self.release.layout

    @property
    def guarantee(self) -> Guarantee:
        """Return the privacy guarantee of the release. The guarantee covers both parts together."""
        return self.release.guarantee

    def step(self, h: int) -> StepSums:
        """Return the sums of step ``h``. Raises ``ValueError`` if the release has no such step."""
        h = checks.integer("h", h, 0, self.slots - 1)
        sums = self.release.step(h)
        train = _train(
            sums, self.release.laws, self.share, self.episodes, generator_at(self._key, ROLE_SAMPLES, h),
            self.layout.state_ptr, self.steps,
        )  # fmt: skip
        tables = {}
        for name, table in _tables(sums).items():
            tables[name] = train[name] if self.part == "train" else table - train[name]
            tables[name].flags.writeable = False
        return StepSums(h, tables[TRANSITIONS], tables.get(VISITS), tables.get(CENTERED_REWARDS))

    def __iter__(self) -> Iterator[StepSums]:
        return (self.step(h) for h in range(self.slots))


def _tables(sums: StepSums) -> dict[str, Floats]:
    held = {VISITS: sums.visits, TRANSITIONS: sums.transitions, CENTERED_REWARDS: sums.rewards}
    return {name: np.asarray(table, np.float64) for name, table in held.items() if table is not None}


def _train(
    sums: StepSums,
    laws: Mapping[str, NoiseDistribution],
    share: float,
    episodes: int,
    draw: np.random.Generator,
    ptr: Ints,
    steps: ReturnSteps | None,
) -> dict[str, Floats]:
    """Return the tables f X + E of the training part, by family."""
    tables = _tables(sums)
    std = {name: laws[name].std() if name in laws else 0.0 for name in (VISITS, *tables)}
    heavy = "laplace" in laws[TRANSITIONS].family
    consistent = consistent_counts(tables[TRANSITIONS], tables.get(VISITS), std[TRANSITIONS], std[VISITS])
    drawn = thinning_errors(consistent, share, std[TRANSITIONS], std[VISITS], draw, heavy, episodes)
    errors = {TRANSITIONS: drawn.moves, VISITS: drawn.visits}
    if CENTERED_REWARDS in tables:
        mean = np.clip(tables[CENTERED_REWARDS] / np.maximum(drawn.counts, 1.0), -0.5, 0.5)
        variance = drawn.counts * (0.25 - mean * mean)
        luck = mean * drawn.luck
        if steps is not None:
            followed, explained = steps.errors(drawn.users, consistent, ptr)
            luck, variance = luck + followed, np.maximum(variance - explained, 0.0)
        luck = luck + np.sqrt(share * (1.0 - share) * episodes * variance) * draw.standard_normal(mean.shape)
        errors[CENTERED_REWARDS] = luck + _noise(std[CENTERED_REWARDS], mean.shape, share, draw, heavy)
    return {
        name: np.ldexp(np.rint(np.ldexp(share * table + errors[name], _GRID)), -_GRID)
        for name, table in tables.items()
    }


def _law(law: NoiseDistribution, share: float) -> NoiseDistribution:
    """Return the noise distribution of a part with this share.

    Discrete Gaussian noise with a grid unit u <= sigma is treated as continuous: tail probabilities have a
    relative error below 2e-4. A part with Laplace noise contains a sum of Laplace variables of different
    scales.
    """
    if law.family == "none":
        return law
    if isinstance(law, SubGaussianSumLaw):
        return replace(law, scale=math.sqrt(share) * law.scale)
    if isinstance(law, GaussianSumLaw):
        if law.terms == 0.0:
            return law
        return replace(law, scale=math.sqrt(share / law.terms) * law.std(), unit=None)
    if isinstance(law, LaplaceSumLaw):
        variance = 0.5 * share * law.std() ** 2  # of both summands of the noise, in units of 2 b^2
        scale = max(share * law.scale, math.sqrt((1.0 - share) * variance))
        return WeightedLaplaceLaw(
            scale=scale, terms=variance / scale**2,
            terms_bound=math.ceil(share * law.terms_bound * (law.scale / scale) ** 2),
            cells=law.cells, rows=law.rows, row_size=law.row_size, share=law.share,
        )  # fmt: skip
    raise ValueError(f"release.laws holds a {type(law).__name__}: noise of this kind cannot be split")


def check_spec(spec: object) -> None:
    """Raise ``ValueError`` unless ``spec`` is a ProblemSpec."""
    if not isinstance(spec, ProblemSpec):
        raise ValueError(f"spec = {checks.said(spec)}: must be a ProblemSpec, for example schema.spec()")


def check_kind(release: StepwiseRelease, spec: ProblemSpec) -> None:
    """Raise ``ValueError`` if ``spec`` has the layout of the release but the release has no table per step.

    There are two possible causes. Either ``spec.layout`` was taken from a release of first visits; its query
    has a start state and one more step than the environment. Or the release was counted over all steps
    together.
    """
    slots = release_sizes(release)[0]
    if release.layout == spec.layout and slots != spec.layout.horizon:
        raise ValueError(
            f"spec.layout: must be that of the environment, for example schema.spec(); the release holds "
            f"{slots} table for all steps, so its layout is that of its query, or its counts are pooled"
        )


def release_sizes(release: StepwiseRelease) -> tuple[int, int]:
    """Return the number of steps with tables and the number of episodes per user of a release."""
    if isinstance(release, Release):
        raise ValueError(
            "release: is the release of a session, which does not hold the layout: must be "
            "SessionRelease(release, spec.layout) (discreet.learners.ope)"
        )
    holders: tuple[Any, ...] = (release, getattr(release, "query", None), getattr(release, "facts", None))
    for holder in holders:
        if hasattr(holder, "slots") and hasattr(holder, "episodes"):
            return int(holder.slots), int(holder.episodes)
    raise ValueError(
        f"release = {checks.said(release)}: must be a release of offline data, as read_release opens it"
    )


def content_hash(release: StepwiseRelease) -> str:
    """Return the SHA-256, in hexadecimal, of the values of a release.

    The hash is the same for a release in memory and in a file.

    release : release of counts of offline data. Raises ``ValueError`` for any other object.
    """
    digest = hashlib.sha256()
    for h in range(release_sizes(release)[0]):
        for name, table in _tables(release.step(h)).items():
            digest.update(f"{name} {h} {table.shape};".encode())
            digest.update(np.ascontiguousarray(table, "<f8").data)
    return digest.hexdigest()


def split_release(
    release: StepwiseRelease, share: float = 0.5, steps: ReturnSteps | None = None
) -> tuple[ReleasePart, ReleasePart]:
    """Split a release into a training part and a held-out part.

    The parts are distributed like releases of two disjoint shares of the users, although each is computed
    from the sums over all users. The parts are independent for Poisson counts and Gaussian noise, and
    uncorrelated for Laplace noise. Learners and estimates read them like any other release. The split costs
    no privacy budget. A policy that is learned from the training part can be evaluated with the held-out
    part.

    Parameters
    ----------
    release : StepwiseRelease
        Release of counts of offline data, in memory or from a file. The counts are per step or of first
        visits.
    share : float
        Share of the users in the training part, in (0, 1).
    steps : ReturnSteps, optional
        Decomposition of returns, for a release of first visits
        (:func:`discreet.learners.ope.transition_gains.return_steps`). This option affects only the returns of
        the parts.

    Returns
    -------
    train, held_out : ReleasePart
        Both parts. All calls with the same values and share return the same parts.

    Raises
    ------
    ValueError
        If ``release`` is not a release of counts of offline data, or ``share`` is out of range.
    """
    share = checks.real("share", share, 0.0, 1.0, open_low=True, open_high=True)
    slots, episodes = release_sizes(release)
    content = content_hash(release)
    key = hashlib.sha256(_VERSION + bytes.fromhex(content) + struct.pack("<d", share)).digest()[:16]
    stream = np.frombuffer(key, "<u8").astype(np.uint64)

    def part(name: str, of_part: float) -> ReleasePart:
        return ReleasePart(
            release, max(round(of_part * release.users), 1),
            {family: _law(law, of_part) for family, law in release.laws.items()},
            slots, episodes, name, share, {"release": content, "part": name, "share": share}, stream, steps,
        )  # fmt: skip

    return part("train", share), part("held_out", 1.0 - share)
