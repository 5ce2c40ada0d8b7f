r"""Before spending: what a release under a schema would say, without reading data.

Noise. The session that ``learn`` would start is started (it needs no data and no number of users) and
asked for its laws; then it is closed. A count's 95 % interval is the exact quantile of one cell's law.

How many visits a pair needs. Say the learner estimates, from n visits of (h, s, a), the mean of a value
function V over the next state. Its sampling error has standard deviation sqrt(Var_P(V) / n); noise of
standard deviation sigma in each of the S counts adds sigma ||V - P V||_2 / n, independently. Where the
row's successors differ in value as much as all states do, Var_P(V) = ||V - P V||_2^2 / S, and

    total / sampling = sqrt(1 + S sigma^2 / n).                                                       (1)

Privacy costs at most a share c of the statistical error, total <= (1 + c) sampling, from

    n >= S sigma^2 / ((1 + c)^2 - 1)                                                                  (2)

visits on. For a mean reward, with reward sums of noise sigma_r and rewards of variance 1/12 (uniform in
their range), in the same way n >= 12 sigma_r^2 / ((1 + c)^2 - 1). If both hold, so does the bound for
the sum of the two, whose variances add. The noise of the visits in the denominator only enters times the
centred mean, to second order. (2) is for counts as released: learners that truncate at 0 and project do
better where few successors occur, and worse where those that do occur are alike in value. If only k next
states of a row occur and a projection could find them all, k stands for S in (2): ``successors``, an
optimistic bound.

How many users. An episode visits one pair a step, so with visits spread evenly over the R' reachable
pairs of a step (a share of the R admissible ones, all unless said otherwise) R' n users are needed.
People's behaviour never is that even; this is a lower bound for a learner that is to know every pair.

Support. A pair is supported if its estimated visits exceed the learner's threshold T. With N users,
spread evenly, they are normal about lambda = N / R' with variance lambda (1 - 1/R') + sigma_v^2, sigma_v
the noise of the learner's estimate (before its projection).

Other epsilons are forecast with continuous noise (closed forms); exact discrete noise differs by about 1
%.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from scipy.special import ndtr

from discreet.core import checks
from discreet.core.counts import CENTERED_REWARDS, TRANSITIONS, CountQuery
from discreet.core.guarantee import Guarantee
from discreet.core.noise.seeds import SeededCoins
from discreet.core.randomness import Randomness, Secure, SecureCoins, Seeded
from discreet.core.shown import brief
from discreet.data.schema import Schema
from discreet.offline.tabular import DPAPVI
from discreet.privatizers.central import Central
from discreet.privatizers.none import NoPrivacy
from discreet.protocol import NoiseLaw
from discreet.stored.statement import check_delta

if TYPE_CHECKING:
    from discreet.experiments.datasets import OfflineLearner

__all__ = [
    "EPSILONS",
    "FamilyNoise",
    "OtherEpsilon",
    "SchemaForecast",
    "forecast_learn",
    "visits_needed",
]

EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_REWARD_VARIANCE = 1 / 12
_TIMED = 2**16  # draws from which the rate of noise is measured


@dataclass(frozen=True)
class FamilyNoise:
    """Noise of one released table.

    std : of one cell. half_width : a cell is within it of the truth with probability 0.95 or more.
    cells : of all steps.
    """

    family: str
    law: str
    std: float
    half_width: float
    cells: int


@dataclass(frozen=True)
class OtherEpsilon:
    """What another epsilon would do at the same delta: fields as in :class:`SchemaForecast`."""

    epsilon: float
    delta: float
    std: float
    visits_needed: float
    users_needed: float
    supported_share: float


@dataclass(frozen=True, eq=False)
class SchemaForecast:
    """What is known of a release before anybody's data are read; made by :func:`forecast_learn`.

    dataset : its name in the schema. users, episodes_per_user : what was asked about, at least 1.
    guarantee : what the release will state. delta_verdict : of
    :func:`discreet.stored.statement.check_delta`, or ``"refused"``, or ``"none"`` without privacy.
    noise : by table. share : stated share c of the statistical error. successors : k in (2), S at most.
    needed_for_transitions, needed_for_rewards, visits_needed : visits of a pair at a step from which on
    privacy costs no more than that; the larger of both.
    users_needed : if visits are spread evenly over the reachable pairs of a step.
    pairs : admissible (h, s, a). reachable : the share of them that people's behaviour reaches, as told.
    cells : counters that get noise.
    threshold : visits above which the learner trusts a pair. visits_per_pair : of the users, evenly.
    supported, supported_share : how many reachable (h, s, a) are then expected above the threshold.
    chance_supported : probability that a pair which nobody visits is above it.
    memory_bytes : of the exact counts while data are read. file_bytes : of release.parquet, about.
    noise_seconds : to draw the noise on one core of this machine, from a sample; None if not measured.
    others : other epsilons.
    """

    __repr__ = brief

    dataset: str
    users: int
    episodes_per_user: int
    guarantee: Guarantee
    delta_verdict: str
    noise: tuple[FamilyNoise, ...]
    share: float
    successors: int
    needed_for_transitions: float
    needed_for_rewards: float
    visits_needed: float
    users_needed: float
    pairs: int
    reachable: float
    threshold: float
    visits_per_pair: float
    supported: float
    supported_share: float
    chance_supported: float
    cells: int
    memory_bytes: int
    file_bytes: int
    noise_seconds: float | None
    others: tuple[OtherEpsilon, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
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
        """What to print: a label and a text each."""
        percent = f"{100 * self.share:g} %"
        found = [
            (
                "data set",
                f"{self.dataset}, {self.users:,} users, at most {self.episodes_per_user} episodes each",
            ),
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
        found += [
            (
                f"visits of a pair until privacy costs at most {percent} of the statistical error",
                f"{self.visits_needed:,.0f} at a step (transitions to {self.successors} next states "
                f"{self.needed_for_transitions:,.0f}, rewards {self.needed_for_rewards:,.0f})",
            ),
            (
                "users for that, spread evenly over "
                + ("all pairs" if self.reachable == 1 else f"{self.reachable:g} of the pairs"),
                f"{self.users_needed:,.0f}",
            ),
            (
                f"pairs supported (above {self.threshold:.4g} visits) with {self.users:,} users, evenly",
                f"{self.supported:,.0f} of {self.reachable * self.pairs:,.0f} "
                f"({100 * self.supported_share:.1f} %), {self.visits_per_pair:,.4g} visits each; a pair that "
                f"nobody visits passes with probability {self.chance_supported:.2g}",
            ),
            (
                "size",
                f"{self.cells:,} cells, {_bytes(self.memory_bytes)} of memory, release about "
                f"{_bytes(self.file_bytes)}"
                + ("" if self.noise_seconds is None else f", noise about {self.noise_seconds:.2g} s"),
            ),
        ]
        return found

    def epsilon_rows(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Head and body of the table of other epsilons."""
        head = ("ε", "δ", "std of a count", "visits of a pair", "users, evenly", "supported")
        return head, [
            (
                f"{one.epsilon:g}",
                f"{one.delta:g}",
                f"{one.std:.4g}",
                f"{one.visits_needed:,.0f}",
                f"{one.users_needed:,.0f}",
                f"{100 * one.supported_share:.1f} %",
            )
            for one in self.others
        ]


_DELTA = {
    "pure": "delta = 0",
    "small": "{0:.2g} times 1/users, below a tenth",
    "warn": "{0:.2g} TIMES 1/USERS: should be at most a tenth",
    "refused": "{0:.2g} TIMES 1/USERS: WILL BE REFUSED",
    "none": "no guarantee",
}


def _bytes(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


def visits_needed(share: float, successors: int, std: float, reward_std: float = 0.0) -> tuple[float, float]:
    """(2): visits of a pair from which on noise raises the error by at most ``share``; transitions, rewards.

    share : above 0. successors : S, or fewer. std, reward_std : of one transition cell, of one reward cell.
    """
    slack = (1.0 + checks.positive("share", share)) ** 2 - 1.0
    return (
        checks.integer("successors", successors, 1) * checks.real("std", std, 0.0) ** 2 / slack,
        checks.real("reward_std", reward_std, 0.0) ** 2 / _REWARD_VARIANCE / slack,
    )


def forecast_learn(
    schema: Schema,
    users: int,
    privatizer: Central | NoPrivacy,
    learner: OfflineLearner | None = None,
    *,
    share: float = 0.1,
    successors: int | None = None,
    reachable: float = 1.0,
    epsilons: Sequence[float] = EPSILONS,
    randomness: Randomness | None = None,
    measure: bool = True,
) -> SchemaForecast:
    """What learning from so many users would give, by the schema alone.

    Parameters
    ----------
    schema : Schema
    users : expected number of people, at least 1; each with one episode.
    privatizer : Central, or NoPrivacy.
    learner : of counts, with ``query(spec)``; default ``DPAPVI()``.
    share : c > 0, the share of the statistical error that privacy may cost.
    successors : how many next states of a pair really occur, if it is known: 1 to S, default S.
    reachable : in (0, 1], the share of the admissible pairs that people's behaviour reaches.
    epsilons : of the table of alternatives, at the same delta.
    randomness : default ``Secure()``, as ``learn`` uses.
    measure : draw a sample of noise to tell the time that it takes.

    Raises
    ------
    ValueError
        On a number out of range, a learner that asks for something else than counts, or a budget that
        cannot be met.
    """
    users = checks.integer("users", users, 1)
    reachable = checks.real("reachable", reachable, 0.0, 1.0, open_low=True)
    learner = DPAPVI() if learner is None else learner
    query = learner.query(schema.spec(users))
    if not isinstance(query, CountQuery):
        raise ValueError(f"learner = {checks.said(learner)}: must be one that learns from counts")
    query = replace(query, episodes=schema.episodes_per_user)
    randomness = Secure() if randomness is None else randomness
    states = schema.layout.states
    successors = states if successors is None else checks.integer("successors", successors, 1, states)
    setting = _Setting(schema, users, learner, query, share, successors, reachable)
    guarantee, laws = _started(privatizer, query, randomness)
    layout, rewards = schema.layout, 0 if query.known_rewards else schema.layout.rows
    needed, found = setting.needed(laws), setting.support(laws)
    return SchemaForecast(
        dataset=schema.dataset,
        users=users,
        episodes_per_user=schema.episodes_per_user,
        guarantee=guarantee,
        delta_verdict=_verdict(guarantee, users),
        noise=tuple(_family(name, law, query) for name, law in laws.items()),
        share=share,
        successors=setting.successors,
        needed_for_transitions=needed[0],
        needed_for_rewards=needed[1],
        visits_needed=max(needed),
        users_needed=max(needed) * setting.reached,
        pairs=layout.horizon * layout.rows,
        reachable=reachable,
        threshold=found.threshold,
        visits_per_pair=found.visits,
        supported=found.share * setting.reached * layout.horizon,
        supported_share=found.share,
        chance_supported=found.by_chance,
        cells=query.cells,
        memory_bytes=layout.horizon * (4 * layout.rows * layout.states + 8 * rewards),
        file_bytes=round(sum(_cell_bytes(law) * _cells(name, query) for name, law in laws.items())),
        noise_seconds=_seconds(laws, query, randomness)
        if measure and guarantee.epsilon is not None
        else None,
        others=tuple(_others(setting, privatizer, guarantee, epsilons)),
    )


@dataclass(frozen=True)
class _Support:
    threshold: float
    visits: float
    share: float
    by_chance: float


@dataclass(frozen=True, eq=False)
class _Setting:
    """What does not change with epsilon."""

    schema: Schema
    users: int
    learner: Any
    query: CountQuery
    share: float
    successors: int
    reachable: float

    @property
    def reached(self) -> float:
        """Pairs of a step that behaviour reaches: at least one."""
        return max(1.0, self.reachable * self.schema.layout.rows)

    def needed(self, laws: Mapping[str, NoiseLaw]) -> tuple[float, float]:
        """(2), for transitions and rewards."""
        reward = laws[CENTERED_REWARDS].std() if CENTERED_REWARDS in laws else 0.0
        return visits_needed(self.share, self.successors, laws[TRANSITIONS].std(), reward)

    def support(self, laws: Mapping[str, NoiseLaw]) -> _Support:
        """Which share of the reachable pairs is above the learner's threshold."""
        noise = self.learner._noise(laws, self.schema.layout)
        threshold = float(self.learner._threshold(noise))
        visits = self.users / self.reached
        spread = math.sqrt(visits * (1.0 - 1.0 / self.reached) + noise.sigma**2)
        share = float(ndtr((visits - threshold) / spread)) if spread else float(visits > threshold)
        by_chance = float(ndtr(-threshold / noise.sigma)) if noise.sigma else 0.0
        return _Support(threshold, visits, share, by_chance)


def _started(
    privatizer: Central | NoPrivacy, query: CountQuery, randomness: Randomness
) -> tuple[Guarantee, Mapping[str, NoiseLaw]]:
    """Guarantee and laws of a session that sees nobody."""
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
        _, laws = _started(other, setting.query, Seeded(0))
        needed = max(setting.needed(laws))
        found.append(
            OtherEpsilon(
                epsilon=float(epsilon),
                delta=guarantee.delta,
                std=laws[TRANSITIONS].std(),
                visits_needed=needed,
                users_needed=needed * setting.reached,
                supported_share=setting.support(laws).share,
            )
        )
    return found


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
    """Of a cell in the file: the entropy of noise on a grid; all of continuous noise; a byte if exact."""
    if not law.std():
        return 1.0
    if law.unit is None:
        return 8.0
    wide = 2 * math.e if "laplace" in law.family else math.sqrt(2 * math.pi * math.e)
    return max(0.125, math.log2(1.0 + wide * law.scale / law.unit) / 8)


def _seconds(laws: Mapping[str, Any], query: CountQuery, randomness: Randomness) -> float:
    """Time for all noise, from a sample of each law."""
    coins: Any = SecureCoins() if isinstance(randomness, Secure) else SeededCoins(randomness.keys.noise, 0)
    total = 0.0
    for name, law in laws.items():
        draw = coins.laplace if "laplace" in law.family else coins.normal
        grid = None if law.unit is None else round(1 / law.unit)
        draw(law.scale, 2, grid)  # compiles what is to be compiled
        size = min(_TIMED, _cells(name, query))
        begin = perf_counter()
        draw(law.scale, size, grid)
        total += (perf_counter() - begin) / size * _cells(name, query)
    return total
