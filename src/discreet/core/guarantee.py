"""Guarantees, computed only from the records of mechanisms.

A :class:`Guarantee` contains numbers that this module computes, and the records that determine the numbers.
The numbers are computed again whenever a guarantee is constructed. The sentences are built from the numbers
by :mod:`discreet.accounting.text.guarantee_sentences`. No number is read from a sentence.

A :class:`MechanismRecord` describes the effect of one mechanism on one user. The record contains the kind of
noise, the scale for each family of the query, the joint sensitivity in units of the noise, and the number of
noisy sums that can contain the user. :func:`guarantee_of` composes records on the same users:

- Laplace (also discrete, on its grid): epsilon = sum over records of levels * joint l1, because the
  densities of two neighbouring releases differ by at most exp(sum |shift| / b);
- Gaussian: mu^2 = sum of levels * (joint l2)^2, exactly and adaptively
  (:mod:`discreet.core.correlated_noise`, b). Rho is mu^2 / 2. The exact curve gives epsilon at the requested
  delta;
- discrete Gaussian: rho = sum of levels * (joint l2)^2 / 2 (Canonne, Kamath and Steinke 2020). The best Renyi
  order gives epsilon. mu-GDP is not proved for discrete noise and not claimed;
- a record that lists its ``exchanges`` (every way in which replacing one user can change coordinates with
  independent noise): numerical privacy-loss distributions give epsilon at delta
  (:mod:`discreet.accounting.pld_calibration`). This epsilon is less than that of the closed form for discrete
  Gaussian noise and for Laplace noise at delta > 0.

``joint`` is ``query.sensitivity(norm, {family: 1 / scale})``: the supremum over replaced trajectories of the
change in all families together. For centred rewards it is less than the sum of the sensitivities of the
families. If users are in disjoint batches, one record is enough: that of the batch with the largest loss
(parallel composition). Batches of disjoint users may have mechanisms with different noise (for example
Laplace noise and Gaussian noise). :func:`parallel` then states the worst of their guarantees. Epsilon and
delta are the largest values of any mechanism. The same holds for rho and mu if every mechanism has them. The
guarantee is also valid if policies and mechanisms of later batches depend on earlier releases. Given the
earlier releases, replacing a user changes only the user's batch. Everything after that batch is a function of
its release and of other users' data.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast, get_args

from discreet.core import checks
from discreet.core import epsilon_conversions as conversions
from discreet.core.events import (
    MechanismRecord,
    NoiseFamily,
    Source,
    Trust,
    joint_loss,
)
from discreet.core.registry import is_record, parts
from discreet.core.short_repr import brief

if TYPE_CHECKING:
    from discreet.core.protocols import Composable, Record

__all__ = [
    "Guarantee", "MechanismRecord", "NoiseFamily", "Trust", "guarantee_of",
    "joint_loss", "no_guarantee", "parallel",
]  # fmt: skip

_NUMBERS = ("epsilon", "delta", "rho", "mu")


@dataclass(frozen=True)
class Guarantee:
    """Privacy statement, computed by functions of this module and never entered by hand.

    Parameters
    ----------
    trust : party that sees raw data (trust model). "joint": the server that users interact
        with. "central": the curator of an offline data set; all other parties see only the release. "local":
        no party sees raw data. "none": there is no guarantee.
    epsilon, delta : true values for the noise that the records describe. If epsilon is None, there is no
        guarantee.
    rho, mu : parameters of zCDP and Gaussian DP, or None if no such parameter is proved.
    epsilon_nominal : requested epsilon. It differs from ``epsilon`` with calibration "published".
    episodes : largest number m of episodes of one user. The neighbouring relation replaces all of them. With
        a server, the user takes part at most m times.
    users_public : True if the number of users is public.
    randomness : "secure" (operating system, exact) or "seeded" (simulation only).
    records : records of the mechanisms, all on the same users.
    kinds : pairs (text that names the users, their guarantee). Set instead of ``records`` if batches of
        disjoint users have different mechanisms.
    reason : reason why there is no guarantee, as text. Set instead of ``records`` and ``kinds``.

    Raises
    ------
    ValueError
        If a number does not follow from ``records`` or ``kinds``. An epsilon of numerical accounting is
        recomputed unless this process has cached it (in a new process, loading dp-accounting takes a second).
    """

    __repr__ = brief

    trust: Trust
    epsilon: float | None
    delta: float
    rho: float | None
    mu: float | None
    epsilon_nominal: float | None
    episodes: int
    users_public: bool
    randomness: Source
    records: tuple[Record, ...] = ()
    kinds: tuple[tuple[str, Guarantee], ...] = ()
    reason: str | None = None

    def __post_init__(self) -> None:
        checks.choice("trust", self.trust, get_args(Trust))
        checks.choice("randomness", self.randomness, get_args(Source))
        checks.flag("users_public", self.users_public)
        checks.integer("episodes", self.episodes, 1)
        if self.epsilon_nominal is not None:
            checks.real("epsilon_nominal", self.epsilon_nominal, 0.0)
        object.__setattr__(self, "records", tuple(self.records))
        object.__setattr__(self, "kinds", tuple(self.kinds))
        if (bool(self.records), bool(self.kinds), self.reason is not None).count(True) != 1:
            raise ValueError("records, kinds, reason: exactly one of them must say what the numbers are of")
        if self.reason is not None:
            true: _Four = (None, 0.0, None, None)
        elif self.trust == "none":
            raise ValueError("trust = 'none': must promise nothing, and give a reason")
        else:
            _check_alike(self, self.kinds)
            true = _worst(self.kinds) if self.kinds else _composed(self.records, self.delta, self.randomness)
        # a relative tolerance, because another machine may have computed the numbers
        near = 1e-6 if any(record.numerical for record in self.records) else 1e-9
        for name, one in zip(_NUMBERS, true, strict=True):
            own = getattr(self, name)
            if own is None or one is None:
                fits = own is one
            else:
                fits = math.isclose(checks.real(name, own, 0.0), one, rel_tol=near)
            if not fits:
                raise ValueError(f"{name} = {checks.said(own)}: must be {one!r}, which the mechanisms give")

    @property
    def exceeds(self) -> Mapping[str, float] | None:
        """Bound on the probability that the privacy loss of one user exceeds epsilon.

        The value is ``{"epsilon": epsilon, "at_most": bound}``, or None without a guarantee. The privacy loss
        of an outcome is the logarithm of the ratio of its probabilities with one record and with another. The
        bound is rounded up to three digits.
        """
        return parts().exceedance.exceeds(self)

    @property
    def rests_on(self) -> tuple[str, ...]:
        """Declarations that the numbers depend on, as text. Empty if this library derived the numbers."""
        own = [text for record in self.records for text in getattr(record, "rests_on", ())]
        return tuple(dict.fromkeys([*own, *(text for _, one in self.kinds for text in one.rests_on)]))

    @property
    def unit(self) -> str:
        """Protected unit, as text."""
        return parts().sentences.unit(self.episodes)

    @property
    def neighbours(self) -> str:
        """Neighbouring relation, as text."""
        return parts().sentences.neighbours(self.episodes, self.trust)

    @property
    def composition(self) -> tuple[str, ...]:
        """One line per mechanism, with the numbers that lead to the guarantee."""
        return parts().sentences.composition(self)

    @property
    def statement(self) -> str:
        """Whole privacy statement, as text."""
        return parts().sentences.statement(self)

    def __str__(self) -> str:
        return self.statement

    @property
    def holds_if_seed_is_guessed(self) -> bool:
        """True if epsilon also holds against attackers who guess or try seeds. False for seeded noise."""
        return self.epsilon is not None and self.randomness == "secure"

    def to_dict(self) -> dict[str, Any]:
        """Return the guarantee as plain values: numbers, inputs and sentences. None becomes JSON null."""
        return parts().plain.of_guarantee(self)

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Guarantee:
        """Return the guarantee from the ``table`` that :meth:`to_dict` wrote. The numbers are computed again.

        Raises ``ValueError`` for a missing or unknown key, for a number that does not follow from the
        mechanisms, and for a sentence that does not match the numbers.
        """
        plain = parts().plain
        found = cls(**plain.guarantee_fields(table, cls.from_dict))
        plain.check_sentences(found, table)
        return found


_NO_NOISE = "exact sums of users' trajectories are released, without noise"


def no_guarantee(randomness: Source, *, reason: str = _NO_NOISE, episodes: int = 1) -> Guarantee:
    """Return the guarantee object of a mechanism without protection. ``reason`` states why there is none."""
    return Guarantee("none", None, 0.0, None, None, None, episodes, True, randomness, reason=reason)


def guarantee_of(
    trust: Trust,
    records: Sequence[Record],
    *,
    randomness: Source,
    delta: float | None = None,
    epsilon_nominal: float | None = None,
    users_public: bool = True,
    episodes: int = 1,
) -> Guarantee:
    """Return the guarantee of mechanisms that all processed the same users.

    Parameters
    ----------
    trust : "joint", "central", "local" or "shuffle"
    records : at least one. All have Laplace noise, or all have Gaussian noise (discrete or not).
    randomness : "seeded" or "secure"; secure noise must be discrete, since the last bits of floating-point
        noise leak information.
    delta : for Gaussian noise, the delta in (0, 1) at which epsilon is stated. None or 0 for Laplace noise,
        whose guarantee is pure.
    epsilon_nominal : requested epsilon, or None.
    episodes : largest number m of episodes of one user. The sensitivities in the records must be for m
        episodes.

    Raises
    ------
    ValueError If records have different kinds of noise, if ``delta`` is not valid for this noise (see above),
        or if secure randomness is combined with continuous noise.
    """
    checks.choice("trust", trust, ("joint", "central", "local", "shuffle"))
    if epsilon_nominal is not None:
        epsilon_nominal = conversions.check_epsilon(epsilon_nominal, "epsilon_nominal")
    numbers = _composed(tuple(records), delta, randomness)
    return Guarantee(trust, *numbers, epsilon_nominal, episodes, users_public, randomness, tuple(records))


def parallel(kinds: Sequence[tuple[str, Guarantee]]) -> Guarantee:
    """Return the worst guarantee of mechanisms on disjoint users, each of whom is in exactly one mechanism.

    Parameters
    ----------
    kinds : at least one (text, guarantee). The text names the users, such as ``"40 users, one step"``. All
        guarantees have the same trust model, randomness, unit and nominal epsilon.

    Raises
    ------
    ValueError
        If guarantees have different trust models, randomness or units.
    """
    kinds = tuple(kinds)
    if not kinds:
        raise ValueError("kinds is empty: must hold at least one guarantee")
    first = kinds[0][1]
    _check_alike(first, kinds)
    nothing = next((one for _, one in kinds if one.epsilon is None), None)
    if nothing is not None or all(one == first for _, one in kinds):
        return nothing or first
    return Guarantee(
        first.trust,
        *_worst(kinds),
        first.epsilon_nominal,
        first.episodes,
        first.users_public,
        first.randomness,
        kinds=kinds,
    )


# ------------------------------------------------------------------------------ numbers

_Four = tuple[float | None, float, float | None, float | None]
"""The four numbers epsilon, delta, rho and mu of a guarantee."""


def _composed(records: tuple[Record, ...], delta: float | None, randomness: Source) -> _Four:
    """Return the numbers of the guarantee for mechanisms on the same users at this delta.

    The module docstring describes the computation.
    """
    for record in records:
        if not is_record(record):
            raise ValueError(
                f"records hold {checks.said(record)}: must be records of a mechanism of this library"
            )
    norms = {record.norm for record in records}
    if len(norms) != 1:
        raise ValueError(
            f"records hold {len(records)} mechanisms of {len(norms)} kinds: must be at least one, "
            "and all Laplace or all Gaussian"
        )
    continuous = [record.noise for record in records if record.noise in ("laplace", "gaussian")]
    if randomness == "secure" and continuous:
        raise ValueError(f"noise = {continuous[0]!r}: secure randomness must draw discrete noise")
    if any(record.numerical for record in records):
        if len(records) > 1:
            raise ValueError("records: one that lists exchanges or shuffled batches must be the only one")
        delta = conversions.check_delta(delta)
        (record,) = records
        epsilon = record.epsilon(delta)
        if not math.isfinite(epsilon):
            raise ValueError(f"records: these batches give no epsilon at delta = {delta:g}")
        rho = 0.5 * cast("Composable", record).loss ** 2 if record.norm == "l2" else None
        return epsilon, delta, rho, None
    losses = [cast("Composable", record).loss for record in records]
    if norms == {"l1"}:
        if delta:
            raise ValueError(
                f"delta = {delta!r}: must be 0 or None for Laplace noise, whose guarantee is pure"
            )
        return math.fsum(losses), 0.0, None, None
    delta = conversions.check_delta(delta)
    squared = math.fsum(loss**2 for loss in losses)
    if len(continuous) == len(records):
        mu = math.sqrt(squared)
        return conversions.gdp_epsilon(mu, delta), delta, 0.5 * squared, mu
    return conversions.zcdp_epsilon(0.5 * squared, delta), delta, 0.5 * squared, None


def _worst(kinds: Sequence[tuple[str, Guarantee]]) -> _Four:
    """Return the maximum of each number over the guarantees; None if a guarantee does not have it."""
    tables = [[getattr(one, name) for _, one in kinds] for name in _NUMBERS]
    epsilon, delta, rho, mu = (None if None in table else max(table) for table in tables)
    if epsilon is None or delta is None:
        raise ValueError("kinds: every one must promise something")
    return epsilon, delta, rho, mu


def _check_alike(first: Guarantee, kinds: Sequence[tuple[str, Guarantee]]) -> None:
    for words, one in kinds:
        checks.exactly(f"kinds: {words!r}", one, Guarantee)
        for name in ("trust", "randomness", "episodes", "users_public", "epsilon_nominal"):
            if getattr(one, name) != getattr(first, name):
                raise ValueError(
                    f"kinds: {name} of {words!r} is {getattr(one, name)!r}, not {getattr(first, name)!r}"
                )
