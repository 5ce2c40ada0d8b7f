r"""Forecast of the noise and accuracy of a release, from the schema alone.

*Noise.* The forecast starts the same session as :func:`~discreet.pipeline.learn.learn`
(:func:`discreet.pipeline.learned_files.kind_of`). The session does not need data or the number of users. The
forecast reads the session's noise distributions, then closes the session. The 95 % interval of a count is
computed from exact quantiles of the noise in one cell. Linear learners query several sums of features. For
these learners, the forecast states the largest noise of each kind of sum. The following text covers counts
only.

*Number of visits that a pair of state and action needs.* Suppose that the learner estimates, from n visits to
(h, s, a), the mean of a value function V over the next state. The sampling error of this estimate has
standard deviation sqrt(Var_P(V) / n). Noise of standard deviation sigma in each of the S counts adds an
independent error of standard deviation sigma ||V - P V||_2 / n. If the values of the next states of (h, s, a)
vary as much as the values of all states, then Var_P(V) = ||V - P V||_2^2 / S, and

    total / sampling = sqrt(1 + S sigma^2 / n).                                                       (1)

Privacy costs at most a share c of the statistical error (total <= (1 + c) sampling) if

    n >= S sigma^2 / ((1 + c)^2 - 1).                                                                 (2)

The condition for a mean reward is similar: n >= 12 sigma_r^2 / ((1 + c)^2 - 1). Here sigma_r is the standard
deviation of the noise in a sum of rewards, and rewards have variance 1/12 (uniform in their range). If both
conditions hold, the bound also holds for the sum of the two estimates, because their variances are added. The
noise of the visit count in the denominator is multiplied by the centred mean, so it is a second-order effect.
Condition (2) applies to the released counts. Some learners truncate counts at 0 and project them. They need
fewer visits if few next states occur. They need more visits if the next states that occur have similar
values. If only k next states of a pair occur, and a projection could find all of them, k replaces S in (2).
The argument ``successors`` gives k; the result is an optimistic bound.

*Number of users.* An episode visits one pair per step. Let R be the number of admissible pairs of a step, and
R' the number of those that users can reach. By default, R' = R. If visits are spread evenly over the
reachable pairs, R' n users are needed. Real visits are spread less evenly. Therefore this number is a lower
bound for a learner that needs estimates of every pair. For counts that are pooled over steps, an episode
visits H pairs. For first visits (learner ``decision-points``), an episode is assumed to visit only one pair,
which gives the largest number of users. The reward of a first visit is the return of the rest of the episode.

*Support.* A pair is supported if its estimated number of visits exceeds the learner's threshold T. With N
users whose visits are spread evenly, this estimate is approximately normal with mean lambda = N / R' and
variance lambda (1 - 1/R') + sigma_v^2. Here sigma_v is the standard deviation of the noise in the learner's
estimate before its projection.

Forecasts for other epsilons use the closed forms of continuous noise. The scale of exact discrete noise
differs by about 1 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from scipy.special import ndtr, ndtri

from discreet.core import checks
from discreet.core.count_query import CountQuery
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.core.guarantee import Guarantee, MechanismRecord
from discreet.core.rng import Randomness, Secure, SecureRng, Seeded
from discreet.core.short_repr import brief
from discreet.data.schema import Schema
from discreet.learners.offline import apvi as tabular
from discreet.learners.offline import linear_pevi as linear
from discreet.learners.offline.decision_points import DecisionPoints
from discreet.learners.ope.deviation_gains import STANDS_OUT
from discreet.mechanisms.interfaces import NoiseDistribution
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.mechanisms.seeded_rng import SeededRng
from discreet.pipeline.learned_files import Kind, LinearSums, default_algorithm, kind_of, learner_of, name_of
from discreet.reports.statement import check_delta

if TYPE_CHECKING:
    from discreet.learners.offline.interface import OfflineLearner

EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_REWARD_VARIANCE = 1 / 12
_TIMED = 2**16  # number of draws in the sample that measures how long drawing noise takes


@dataclass(frozen=True)
class FamilyNoise:
    """Noise of one released table, or of the linear sums of one kind.

    Parameters
    ----------
    std : largest standard deviation of the noise in one cell
    half_width : bound that the noise in a cell does not exceed in absolute value, with probability at least
        0.95
    cells : number of cells over all steps
    """

    family: str
    law: str
    std: float
    half_width: float
    cells: int


@dataclass(frozen=True)
class OtherEpsilon:
    """Forecast for another epsilon at the same delta.

    Most fields have the same meaning as in :class:`SchemaForecast`.

    std : standard deviation of the noise in a transition count, or in the first kind of linear sums
    """

    epsilon: float
    delta: float
    std: float
    visits_needed: float | None
    users_needed: float | None
    supported_share: float | None


@dataclass(frozen=True, eq=False)
class SchemaForecast:
    """Forecast of a release before data are read, as made by :func:`estimate_release`.

    Parameters
    ----------
    dataset : name of the dataset in the schema.
    users, episodes_per_user : number of users and number of episodes per user, both at least 1.
    algorithm : name of the learner. Fields on visits, pairs and support are None for linear learners. Fields
        on support are also None for other learners that have no threshold.
    guarantee : guarantee that the release will state.
    delta_verdict : result of :func:`discreet.reports.statement.check_delta`, or ``"refused"`` if this
        function rejects delta, or ``"none"`` without privacy.
    noise : noise of each released table, or of each kind of linear sums.
    share : largest share c of the statistical error that privacy is allowed to cost.
    successors : number k of next states in condition (2) of the module docstring, at most S.
    needed_for_transitions, needed_for_rewards : smallest number of visits to a pair at which privacy costs at
        most ``share``, for transition probabilities and for mean rewards.
    visits_needed : the larger of the two preceding numbers. For first visits, it is the smaller of the two,
        because either transitions or rewards are enough to evaluate an action.
    users_needed : number of users that is needed if visits are spread evenly over the reachable pairs of a
        step.
    pairs : number of admissible (h, s, a).
    reachable : share of the admissible pairs that the behaviour policy is assumed to reach.
    cells : number of counters that get noise.
    threshold : number of visits above which the learner considers a pair supported.
    visits_per_pair : number of visits to each reachable pair if visits are spread evenly.
    supported, supported_share : expected number and share of reachable (h, s, a) with estimated visits above
        the threshold.
    chance_supported : probability that the estimate is above the threshold for a pair without visits.
    memory_bytes : memory for the exact counts while data are read.
    file_bytes : approximate size of release.parquet.
    noise_seconds : time to draw the noise on one core of this machine, estimated from a sample; None if not
        measured.
    others : forecasts for other epsilons.
    """

    __repr__ = brief

    dataset: str
    algorithm: str
    users: int
    episodes_per_user: int
    guarantee: Guarantee
    delta_verdict: str
    noise: tuple[FamilyNoise, ...]
    share: float
    successors: int
    needed_for_transitions: float | None
    needed_for_rewards: float | None
    visits_needed: float | None
    users_needed: float | None
    pairs: int
    reachable: float
    threshold: float | None
    visits_per_pair: float | None
    supported: float | None
    supported_share: float | None
    chance_supported: float | None
    cells: int
    memory_bytes: int | None
    file_bytes: int
    noise_seconds: float | None
    others: tuple[OtherEpsilon, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the forecast as a dictionary of plain values that JSON can represent."""
        table = {
            name: value for name, value in vars(self).items() if name not in ("guarantee", "noise", "others")
        }
        return {
            **table,
            "guarantee": self.guarantee.to_dict(),
            "noise": [asdict(one) for one in self.noise],
            "others": [asdict(one) for one in self.others],
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return the rows of the printed forecast as pairs (label, text)."""
        percent = f"{100 * self.share:g} %"
        each = self.episodes_per_user
        found = [
            (
                "data set",
                f"{self.dataset}, {self.users:,} users, at most {each} episode{'s' if each > 1 else ''} each",
            ),
            ("algorithm", self.algorithm),
            ("guarantee", self.guarantee.statement),
            ("delta against 1/users", _DELTA[self.delta_verdict].format(self.guarantee.delta * self.users)),
        ]
        found += [
            (
                f"noise of {one.family}",
                f"{one.law.replace('_', ' ')}, standard deviation {one.std:.4g}, 95 % within ± "
                f"{one.half_width:.4g}, {one.cells:,} cells",
            )
            for one in self.noise
        ]
        if self.visits_needed is not None:
            found += [
                (
                    f"visits of a pair until privacy costs at most {percent} of the statistical error",
                    f"{self.visits_needed:,.0f} (transitions to {self.successors} next states "
                    f"{self.needed_for_transitions:,.0f}, rewards {self.needed_for_rewards:,.0f})",
                ),
                (
                    "users for that, spread evenly over "
                    + ("all pairs" if self.reachable == 1 else f"{self.reachable:g} of the pairs"),
                    f"{self.users_needed:,.0f}",
                ),
            ]
        if self.supported is not None and self.supported_share is not None:
            found.append(
                (
                    f"pairs supported (above {self.threshold:.4g} visits) with {self.users:,} users, evenly",
                    f"{self.supported:,.0f} of {self.reachable * self.pairs:,.0f} "
                    f"({100 * self.supported_share:.1f} %), {self.visits_per_pair:,.4g} visits each; a pair "
                    f"that nobody visits passes with probability {self.chance_supported:.2g}",
                )
            )
        memory = "" if self.memory_bytes is None else f"{_bytes(self.memory_bytes)} of memory, "
        found.append(
            (
                "size",
                f"{self.cells:,} cells, {memory}release about {_bytes(self.file_bytes)}"
                + ("" if self.noise_seconds is None else f", noise about {self.noise_seconds:.2g} s"),
            )
        )
        return found

    def epsilon_rows(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return the header and the rows of the table with forecasts for other epsilons."""
        cell = "count" if self.visits_needed is not None else f"cell of {self.noise[0].family}"
        head: tuple[str, ...] = ("ε", "δ", f"std of a {cell}")
        body = [[f"{one.epsilon:g}", f"{one.delta:g}", f"{one.std:.4g}"] for one in self.others]
        columns = {
            "visits of a pair": [_whole(one.visits_needed) for one in self.others],
            "users, evenly": [_whole(one.users_needed) for one in self.others],
            "supported": [
                None if one.supported_share is None else f"{100 * one.supported_share:.1f} %"
                for one in self.others
            ],
        }
        for name, texts in columns.items():
            filled = [text for text in texts if text is not None]
            if len(filled) == len(body):
                head = (*head, name)
                body = [[*row, text] for row, text in zip(body, filled, strict=True)]
        return head, [tuple(row) for row in body]


_DELTA = {
    "pure": "delta = 0",
    "small": "{0:.2g} times 1/users, below a tenth",
    "warn": "{0:.2g} TIMES 1/USERS: should be at most a tenth",
    "refused": "{0:.2g} TIMES 1/USERS: WILL BE REFUSED",
    "none": "no guarantee",
}


def _whole(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f}"


def _bytes(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


def visits_needed(share: float, successors: int, std: float, reward_std: float = 0.0) -> tuple[float, float]:
    """Return the number of visits to a pair at which noise increases the error by at most ``share``.

    The result is a tuple (number for transition probabilities, number for mean rewards). It follows from
    condition (2) in the docstring of the module.

    Parameters
    ----------
    share : largest share c > 0 of the statistical error that privacy is allowed to cost
    successors : number of states S, or a smaller number k of next states
    std, reward_std : standard deviation of the noise in a transition count and in a sum of rewards
    """
    slack = (1.0 + checks.positive("share", share)) ** 2 - 1.0
    return (
        checks.integer("successors", successors, 1) * checks.real("std", std, 0.0) ** 2 / slack,
        checks.real("reward_std", reward_std, 0.0) ** 2 / _REWARD_VARIANCE / slack,
    )


def estimate_release(
    schema: Schema,
    users: int,
    privatizer: Central | NoPrivacy | None,
    learner: OfflineLearner | linear.Linear | None = None,
    *,
    share: float = 0.1,
    successors: int | None = None,
    reachable: float = 1.0,
    epsilons: Sequence[float] = EPSILONS,
    randomness: Randomness | None = None,
    measure: bool = True,
) -> SchemaForecast:
    """Return the forecast of learning from a given number of users. Only the schema is read.

    Parameters
    ----------
    schema : Schema
    users : expected number of users, at least 1; each user has one episode
    privatizer : Central or NoPrivacy; None for linear learners, whose options include the budget
    learner : offline learner that :func:`discreet.pipeline.learn.learn` accepts. By default, the default
        learner of the command `discreet learn` (:func:`discreet.pipeline.learned_files.default_algorithm`)
    share : largest share c > 0 of the statistical error that privacy is allowed to cost
    successors : number of next states of a pair that occur, if known; 1 to S, by default S
    reachable : share in (0, 1] of the admissible pairs that the behaviour policy reaches
    epsilons : values of epsilon for which alternatives are forecast, at the same delta
    randomness : source of the noise; by default ``Secure()``, as in ``learn``
    measure : if True, a sample of noise is drawn to measure the time that drawing takes

    Raises
    ------
    ValueError
        If a number is out of range, a required privatizer is missing, the learner is not supported by
        :func:`~discreet.pipeline.learn.learn`, or no mechanism meets the budget.
    """
    users = checks.integer("users", users, 1)
    reachable = checks.real("reachable", reachable, 0.0, 1.0, open_low=True)
    learner = learner_of(default_algorithm(schema), {}) if learner is None else learner
    kind = kind_of(schema, learner)
    randomness = Secure() if randomness is None else randomness
    states = schema.layout.states
    successors = states if successors is None else checks.integer("successors", successors, 1, states)
    checks.positive("share", share)
    known: dict[str, Any] = {
        "dataset": schema.dataset, "algorithm": name_of(learner), "users": users,
        "episodes_per_user": schema.episodes_per_user, "share": share, "successors": successors,
        "reachable": reachable,
    }  # fmt: skip
    if isinstance(kind, LinearSums):
        return _of_sums(kind, privatizer, known, epsilons, randomness)
    if privatizer is None:
        raise ValueError(
            f"learner = {checks.said(learner)}: has no noise to forecast without a privatizer, Central(...)"
        )
    setting = _Setting(kind, users, learner, share, successors, reachable)
    return _of_counts(setting, privatizer, known, epsilons, randomness, measure)


@dataclass(frozen=True)
class _Support:
    threshold: float
    share: float
    by_chance: float


@dataclass(frozen=True, eq=False)
class _Setting:
    """Values of a forecast that are the same for every epsilon, for learners that read counts."""

    kind: Any  # an object of type Kind whose learner reads counts
    users: int
    learner: Any
    share: float
    successors: int
    reachable: float

    @property
    def rows(self) -> int:
        """Number of pairs in one table, without the artificial start state that first visits have."""
        query: CountQuery = self.kind.query
        return query.layout.rows - (1 if query.first else 0)

    @property
    def reached(self) -> float:
        """Number of pairs in one table that the behaviour policy reaches, at least 1."""
        return max(1.0, self.reachable * self.rows)

    @property
    def visited(self) -> int:
        """Number of visits that one episode adds to one table.

        This is the number of steps whose counts the table sums. For first visits it is 1, the smallest
        possible number.
        """
        query: CountQuery = self.kind.query
        return 1 if query.first else query.layout.horizon // query.slots

    @property
    def visits(self) -> float:
        """Number of visits to each reachable pair if visits are spread evenly."""
        return self.users * self.visited / self.reached

    def needed(self, laws: Mapping[str, NoiseDistribution]) -> tuple[float, float]:
        """Return the numbers of visits that condition (2) requires for transitions and for rewards."""
        reward = laws[CENTERED_REWARDS].std() if CENTERED_REWARDS in laws else 0.0
        return visits_needed(self.share, self.successors, laws[TRANSITIONS].std(), reward)

    def most_needed(self, needed: tuple[float, float]) -> float:
        """Return the number of visits at which a pair has enough data.

        needed : numbers of visits for transitions and for rewards. Both conditions must hold, so the result
            is
        the larger number. For first visits one condition is enough, because either transitions or rewards
        give the value of an action.
        """
        return min(needed) if self.kind.query.first else max(needed)

    def support(self, laws: Mapping[str, NoiseDistribution]) -> _Support | None:
        """Return the learner's threshold, and the share of reachable pairs whose estimated visits exceed this
        threshold.

        The result is None if the learner has no threshold.
        """
        if isinstance(self.learner, DecisionPoints):
            sigma = laws[VISITS].std()
            threshold = max(
                STANDS_OUT["laplace" if "laplace" in laws[VISITS].family else "gaussian"] * sigma, 10.0
            )
        elif isinstance(self.learner, tabular.APVI | tabular.DPAPVI):
            noise = self.learner._noise(laws, self.kind.layout)
            sigma, threshold = noise.sigma, float(self.learner._threshold(noise))
        else:
            return None
        spread = math.sqrt(self.visits * (1.0 - 1.0 / self.reached) + sigma**2)
        share = float(ndtr((self.visits - threshold) / spread)) if spread else float(self.visits > threshold)
        by_chance = float(ndtr(-threshold / sigma)) if sigma else 0.0
        return _Support(threshold, share, by_chance)


def _of_counts(
    setting: _Setting, privatizer: Central | NoPrivacy, known: Mapping[str, Any], epsilons: Sequence[float],
    randomness: Randomness, measure: bool,
) -> SchemaForecast:  # fmt: skip
    """Return the forecast for a learner that reads counts."""
    query = setting.kind.query
    guarantee, laws = _started(privatizer, query, randomness)
    needed, found = setting.needed(laws), setting.support(laws)
    most = setting.most_needed(needed)
    layout, rewards = query.layout, 0 if query.known_rewards else query.layout.rows
    supported = None if found is None else found.share * setting.reached * query.slots
    return SchemaForecast(
        **known,
        guarantee=guarantee,
        delta_verdict=_verdict(guarantee, setting.users),
        noise=tuple(_family(name, law, query) for name, law in laws.items()),
        needed_for_transitions=needed[0],
        needed_for_rewards=needed[1],
        visits_needed=most,
        users_needed=most * setting.reached / setting.visited,
        pairs=query.slots * setting.rows,
        threshold=None if found is None else found.threshold,
        visits_per_pair=setting.visits,
        supported=supported,
        supported_share=None if found is None else found.share,
        chance_supported=None if found is None else found.by_chance,
        cells=query.cells,
        memory_bytes=query.slots * (4 * layout.rows * layout.states + 8 * rewards),
        file_bytes=round(sum(_cell_bytes(law) * _cells(name, query) for name, law in laws.items())),
        noise_seconds=_seconds(laws, query, randomness)
        if measure and guarantee.epsilon is not None
        else None,
        others=tuple(_others(setting, privatizer, guarantee, epsilons)),
    )


def _started(
    privatizer: Central | NoPrivacy, query: CountQuery, randomness: Randomness
) -> tuple[Guarantee, Mapping[str, NoiseDistribution]]:
    """Start a session without users, and return its guarantee and its noise distributions."""
    session = privatizer.stored(query, randomness)
    try:
        return session.guarantee, session.laws
    finally:
        session.close()


def _others(
    setting: _Setting, privatizer: Central | NoPrivacy, guarantee: Guarantee, epsilons: Sequence[float]
) -> list[OtherEpsilon]:
    if isinstance(privatizer, NoPrivacy):
        return []
    found = []
    delta = guarantee.delta or None
    for epsilon in epsilons:
        other = replace(privatizer, epsilon=epsilon, delta=delta, rho=None, mu=None)
        _, laws = _started(other, setting.kind.query, Seeded(0))
        needed, support = setting.most_needed(setting.needed(laws)), setting.support(laws)
        found.append(
            OtherEpsilon(
                epsilon=float(epsilon),
                delta=guarantee.delta,
                std=laws[TRANSITIONS].std(),
                visits_needed=needed,
                users_needed=needed * setting.reached / setting.visited,
                supported_share=None if support is None else support.share,
            )
        )
    return found


# ------------------------------------------------------------------------------ linear sums


def _of_sums(
    kind: LinearSums, privatizer: Any, known: Mapping[str, Any], epsilons: Sequence[float],
    randomness: Randomness,
) -> SchemaForecast:  # fmt: skip
    """Return the forecast for a linear learner, which reads sums of features.

    The forecast states the guarantee and the largest noise of each kind of sum.
    """
    guarantee, noise = _asked(kind, privatizer, randomness)
    if guarantee.epsilon is None:
        raise ValueError(
            f"learner = {checks.said(kind.learner)}: is not private, it has no noise to forecast"
        )
    others = []
    for epsilon in epsilons:
        other = {"epsilon": float(epsilon), "delta": guarantee.delta, "rho": None, "mu": None}
        # every private learner has these fields
        learner: Any = replace(kind.learner, **other)  # type: ignore[arg-type]
        _, sums = _asked(kind_of(kind.schema, learner), privatizer, Seeded(0))
        others.append(OtherEpsilon(float(epsilon), guarantee.delta, sums[0].std, None, None, None))
    cells, layout = sum(one.cells for one in noise), kind.layout
    return SchemaForecast(
        **known,
        guarantee=guarantee,
        delta_verdict=_verdict(guarantee, known["users"]),
        noise=noise,
        pairs=layout.horizon * layout.rows,
        cells=cells,
        file_bytes=8 * cells,
        others=tuple(others),
        needed_for_transitions=None,
        needed_for_rewards=None,
        visits_needed=None,
        users_needed=None,
        threshold=None,
        visits_per_pair=None,
        supported=None,
        supported_share=None,
        chance_supported=None,
        memory_bytes=None,
        noise_seconds=None,
    )


def _asked(kind: Kind, privatizer: Any, randomness: Randomness) -> tuple[Guarantee, tuple[FamilyNoise, ...]]:
    """Start a session of linear queries without users, and return its guarantee and its noise."""
    assert isinstance(kind, LinearSums)
    with kind.start(privatizer, randomness) as session:
        guarantee, records = session.guarantee, session.records
    return guarantee, tuple(one for record in records for one in _sums(kind, record))


def _sums(kind: LinearSums, record: MechanismRecord) -> list[FamilyNoise]:
    size, states = kind.features.dimension, kind.layout.states
    cells = {
        "gram": size * size, "response": size, "successors": size * states, "rewards": size, "start": states,
    }  # fmt: skip
    scales: dict[str, list[float]] = {}
    for name, scale in record.scales.items():
        scales.setdefault(name.split(".", 1)[1].split("[")[0], []).append(scale)
    std, wide = (math.sqrt(2.0), math.log(20.0)) if record.norm == "l1" else (1.0, float(ndtri(0.975)))
    return [
        FamilyNoise(name, record.noise, std * max(own), wide * max(own), len(own) * cells[name])
        for name, own in scales.items()
    ]


def _verdict(guarantee: Guarantee, users: int) -> str:
    if guarantee.epsilon is None:
        return "none"
    try:
        return check_delta(guarantee.delta, users)
    except ValueError:
        return "refused"


def _cells(name: str, query: CountQuery) -> int:
    return math.prod(query.row_families[name])


def _family(name: str, law: Any, query: CountQuery) -> FamilyNoise:
    alone = replace(law, cells=1, rows=1, row_size=1) if law.std() else law
    return FamilyNoise(name, law.family, law.std(), alone.bound(0.05), _cells(name, query))


def _cell_bytes(law: Any) -> float:
    """Return an estimate of the number of bytes that one cell needs in the file of the release.

    For noise on a grid, the estimate is the entropy of the noise in bytes. For continuous noise, it is 8. For
    exact sums, it is 1.
    """
    if not law.std():
        return 1.0
    if law.unit is None:
        return 8.0
    wide = 2 * math.e if "laplace" in law.family else math.sqrt(2 * math.pi * math.e)
    return max(0.125, math.log2(1.0 + wide * law.scale / law.unit) / 8)


def _seconds(laws: Mapping[str, Any], query: CountQuery, randomness: Randomness) -> float:
    """Return the estimated time in seconds to draw all noise. A sample of each distribution is timed."""
    coins: Any = SecureRng() if isinstance(randomness, Secure) else SeededRng(randomness.keys.noise, 0)
    total = 0.0
    for name, law in laws.items():
        draw = coins.laplace if "laplace" in law.family else coins.normal
        grid = None if law.unit is None else round(1 / law.unit)
        draw(law.scale, 2, grid)  # compiles the sampler, so that compilation is not timed
        size = min(_TIMED, _cells(name, query))
        begin = perf_counter()
        draw(law.scale, size, grid)
        total += (perf_counter() - begin) / size * _cells(name, query)
    return total
