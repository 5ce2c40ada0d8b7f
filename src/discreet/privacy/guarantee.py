"""Guarantees: computed from what the mechanisms did, printed as a sentence that a reviewer can check.

A :class:`MechanismRecord` says what one mechanism did to one user: the noise family, its scale per
family of the query, the joint sensitivity in units of that noise, and in how many noisy sums the
user can appear. :func:`guarantee_of` composes records on the same users:

- Laplace (also discrete, on its grid): epsilon = sum over records of levels * joint l1, because the
  densities of two neighbouring releases differ by exp(sum |shift| / b) at most;
- Gaussian: mu^2 = sum of levels * (joint l2)^2, exactly, also adaptively (privacy-mechanisms,
  1.1 b); rho = mu^2 / 2; epsilon at the asked delta by the exact curve;
- discrete Gaussian: rho = sum of levels * (joint l2)^2 / 2 (Canonne, Kamath and Steinke 2020), epsilon
  by the best Renyi order; mu-GDP is not proved for it and not claimed;
- a record that lists its ``exchanges`` (every way in which one user can move independent noises):
  epsilon at delta by numerical privacy-loss distributions (:mod:`discreet.privacy.calibration`), which
  is less than the closed form for discrete Gaussian noise and for Laplace noise at delta > 0.

``joint`` is ``query.sensitivity(norm, {family: 1 / scale})``: the supremum over replaced trajectories
of all families together, which for centred rewards is less than the sum of the families' own.
Users in disjoint batches need one record, of the batch that costs most (parallel composition). Where
batches of other people have mechanisms of different kinds (Laplace noise here, Gaussian noise there),
:func:`parallel` states the worst of their guarantees: epsilon and delta are the largest, and so are rho and
mu where every kind has them. That is sound also where policies and mechanisms of later batches depend on
earlier releases: given what was released before, an exchange changes the one batch that the user is in, and
all that follows is a function of its release and of other people's data.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from typing import Any, Literal, Protocol, get_args

from discreet.numerics import checks
from discreet.privacy import accounting, budget
from discreet.privacy.amplified_record import AmplifiedRecord
from discreet.privacy.binomial_record import BinomialRecord

NoiseFamily = Literal["laplace", "gaussian", "discrete_laplace", "discrete_gaussian"]
Trust = Literal["none", "joint", "central", "local", "shuffle"]
Source = Literal["secure", "seeded"]

__all__ = [
    "AmplifiedRecord", "BinomialRecord", "Guarantee", "MechanismRecord", "Record", "ReportRecord",
    "composable_from_dict", "guarantee_of", "no_guarantee", "parallel",
    "records_from_dict",
]  # fmt: skip

UNIT = "one user: one episode, the whole trajectory of states, actions and rewards"
NEIGHBOURS = "one user's whole trajectory is replaced by any other one; the number of users stays the same"


def unit_of(episodes: int) -> str:
    """Who is protected, if a user has at most so many episodes."""
    if episodes == 1:
        return UNIT
    return f"one user: up to {episodes} episodes, the whole trajectories of states, actions and rewards"


def neighbours_of(episodes: int) -> str:
    """Against which exchange."""
    if episodes == 1:
        return NEIGHBOURS
    return (
        f"all of one user's episodes, up to {episodes}, are replaced by any others, more or fewer; the "
        "number of users stays the same"
    )


def _episodes(unit: str) -> int:
    """The m of :func:`unit_of`, or ``ValueError``."""
    number = unit.removeprefix("one user: up to ").partition(" ")[0]
    episodes = int(number) if number.isascii() and number.isdigit() else 1
    if episodes < 1 or unit_of(episodes) != unit:
        raise ValueError("unit, neighbours: must be those that every sensitivity here is computed for")
    return episodes


_WORDS = {
    "laplace": "Laplace", "gaussian": "Gaussian",
    "discrete_laplace": "discrete Laplace", "discrete_gaussian": "discrete Gaussian",
}  # fmt: skip


class _Query(Protocol):
    def sensitivity(self, norm: Any, weight: Mapping[str, float]) -> float: ...


# ------------------------------------------------------------------------------ what was done


@dataclass(frozen=True)
class MechanismRecord:
    """What one mechanism did, in public numbers.

    Parameters
    ----------
    mechanism : str
        Its name in words, e.g. ``"binary tree over users"``.
    noise : str
        ``laplace``, ``gaussian``, ``discrete_laplace`` or ``discrete_gaussian``.
    scales : mapping
        Laplace scale b, or standard deviation sigma, of one draw, per family of the query, in the
        units of its values.
    sensitivities : mapping
        Each family's own replace-one sensitivity, l1 for Laplace and l2 for Gaussian noise.
    joint : float
        Joint sensitivity of all families in units of their noise, same norm.
    levels : int
        In how many noisy sums (tree nodes, messages, batches) the records of one user can be.
    exchanges : tuple
        Where epsilon is to be had from privacy-loss distributions: the coordinates that each way to
        exchange a user moves, ``levels`` included (:func:`discreet.privacy.calibration.exchanges`). Only
        valid for noise that is drawn after the user's record is in. Empty: closed forms.

    Raises
    ------
    ValueError
        On a value out of range, families that differ, or a joint sensitivity that cannot be: below
        the largest family's own, or above all families' together.
    """

    mechanism: str
    noise: NoiseFamily
    scales: Mapping[str, float]
    sensitivities: Mapping[str, float]
    joint: float
    levels: int = 1
    exchanges: tuple[tuple[accounting.Coordinate, ...], ...] = ()

    def __post_init__(self) -> None:
        checks.choice("noise", self.noise, get_args(NoiseFamily))
        scales = {name: checks.positive(f"scales[{name!r}]", b) for name, b in self.scales.items()}
        own = {name: checks.positive(f"sensitivities[{name!r}]", d) for name, d in self.sensitivities.items()}
        if not scales or set(scales) != set(own):
            raise ValueError(
                f"scales has families {sorted(scales)}: must be those of sensitivities, {sorted(own)}"
            )
        joint = checks.positive("joint", self.joint)
        parts = [own[name] / scales[name] for name in scales]
        most = sum(parts) if self.norm == "l1" else math.hypot(*parts)
        if not max(parts) * (1 - 1e-9) <= joint <= most * (1 + 1e-9):
            raise ValueError(
                f"joint = {joint!r}: must be in [{max(parts):g}, {most:g}], by the families' own"
            )
        object.__setattr__(self, "scales", scales)
        object.__setattr__(self, "sensitivities", own)
        object.__setattr__(self, "joint", joint)
        object.__setattr__(self, "levels", checks.integer("levels", self.levels, 1))

    @classmethod
    def of(
        cls,
        query: _Query,
        mechanism: str,
        noise: NoiseFamily,
        scales: Mapping[str, float],
        levels: int = 1,
        exchanges: tuple[tuple[accounting.Coordinate, ...], ...] = (),
        rounding: float = 0.0,
    ) -> MechanismRecord:
        """The record of a mechanism on ``query``: sensitivities, own and joint, are the query's.

        ``rounding`` : what arithmetic in fixed point adds to every family's own.
        """
        norm: Literal["l1", "l2"] = "l1" if noise.endswith("laplace") else "l2"
        own = {name: query.sensitivity(norm, {name: 1.0}) + rounding for name in scales}
        joint = joint_loss(query, norm, scales, rounding)
        return cls(mechanism, noise, scales, own, joint, levels, exchanges)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without loss: JSON writes a float with all digits that tell it from any other."""
        table = _plain_record(self, "noise")
        table["exchanges"] = [[list(coordinate) for coordinate in way] for way in self.exchanges]
        return table

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> MechanismRecord:
        """The record that :meth:`to_dict` wrote. Raises ``ValueError`` on a wrong key or type."""
        given = _record_fields(cls, "noise", table)
        given["scales"] = {str(name): _float(f"scales[{name!r}]", x) for name, x in given["scales"].items()}
        given["sensitivities"] = {
            str(name): _float(f"sensitivities[{name!r}]", x) for name, x in given["sensitivities"].items()
        }
        given["joint"] = _float("joint", given["joint"])
        given["exchanges"] = tuple(tuple(_coordinate(one) for one in way) for way in given["exchanges"])
        return cls(**given)

    @property
    def norm(self) -> Literal["l1", "l2"]:
        """The norm in which the sensitivities are."""
        return "l1" if self.noise.endswith("laplace") else "l2"

    @property
    def loss(self) -> float:
        """levels * joint (Laplace: its epsilon), or sqrt(levels) * joint (Gaussian: its mu)."""
        return self.levels * self.joint if self.norm == "l1" else math.sqrt(self.levels) * self.joint

    def __str__(self) -> str:
        letter = "b" if self.norm == "l1" else "sigma"
        parts = ", ".join(
            f"{name} {letter} = {scale:.6g} ({self.norm} sensitivity {self.sensitivities[name]:.6g})"
            for name, scale in self.scales.items()
        )
        times = f"{self.levels}" if self.norm == "l1" else f"sqrt({self.levels})"
        symbol = {"laplace": "epsilon", "gaussian": "mu"}[self.noise.removeprefix("discrete_")]
        if self.noise == "discrete_gaussian":
            symbol = "sqrt(2 rho)"
        return (
            f"{self.mechanism}: {_WORDS[self.noise]} noise, {parts}; joint {self.norm} in units of the noise "
            f"{self.joint:.6g}, a user in at most {self.levels} noisy sum{'s' if self.levels > 1 else ''}: "
            f"{symbol} = {times} x {self.joint:.6g} = {self.loss:.6g}"
        )


def joint_loss(
    query: _Query, norm: Literal["l1", "l2"], scales: Mapping[str, float], rounding: float = 0.0
) -> float:
    """Joint sensitivity of all families in units of their noise; ``rounding`` adds to each family's change.

    With rounding the smaller of two bounds by the triangle inequality: over (change, rounding), and over
    families. Halved when all scales are doubled, with rounding too.
    """
    joint = query.sensitivity(norm, {name: 1.0 / scale for name, scale in scales.items()})
    if not rounding:
        return joint
    add = math.fsum if norm == "l1" else lambda parts: math.hypot(*parts)
    apart = add([(query.sensitivity(norm, {name: 1.0}) + rounding) / scale for name, scale in scales.items()])
    return min(joint + add([rounding / scale for scale in scales.values()]), apart)


@dataclass(frozen=True)
class ReportRecord:
    """What randomized reports of a user's own records did, in public numbers.

    Parameters
    ----------
    mechanism : str
        Its name in words.
    reports : int
        m, how many records of one user are reported, each by independent coins.
    alphabets : mapping
        Name to (kind, elements d, size w, own, other): ``"subset"`` reports w of the d elements, the own
        one with probability own / 2^53, uniform otherwise; ``"unary"`` reports a bit for each element,
        1 with probability own / 2^53 for the user's own one and other / 2^53 for every other. A report
        is about one of the alphabets, chosen by coins that see no data.

    Raises
    ------
    ValueError
        On numbers out of range.
    """

    mechanism: str
    reports: int
    alphabets: Mapping[str, tuple[str, int, int, int, int]]

    def __post_init__(self) -> None:
        checks.integer("reports", self.reports, 1)
        if not self.alphabets:
            raise ValueError("alphabets is empty: must hold at least one")
        for name, (kind, elements, size, own, other) in self.alphabets.items():
            checks.choice(f"alphabets[{name!r}]", kind, ("subset", "unary"))
            checks.integer("elements", elements, 1)
            checks.integer("own", own, 1, 2**53 - (elements > 1))
            if kind == "unary":
                checks.integer("other", other, 1, 2**53 - 1)
            else:
                checks.integer("size", size, 1, max(1, elements - 1))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without loss."""
        table = _plain_record(self, "reports")
        table["alphabets"] = {name: list(alphabet) for name, alphabet in self.alphabets.items()}
        return table

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> ReportRecord:
        """The record that :meth:`to_dict` wrote. Raises ``ValueError`` on a wrong key or type."""
        given = _record_fields(cls, "reports", table)
        alphabets = {}
        for name, alphabet in given["alphabets"].items():
            kind, *numbers = alphabet
            if len(numbers) != 4 or any(type(number) is not int for number in numbers):
                raise ValueError(f"alphabets[{name!r}] = {alphabet!r}: must be a kind and four integers")
            alphabets[str(name)] = (kind, *numbers)
        return cls(**{**given, "alphabets": alphabets})

    @property
    def norm(self) -> Literal["l1"]:
        """Losses of independent reports add, as those of Laplace noise."""
        return "l1"

    @property
    def noise(self) -> str:
        """What hides the records."""
        return "reports"

    @property
    def levels(self) -> int:
        """One message."""
        return 1

    def ratio(self, name: str) -> Fraction:
        """The largest likelihood ratio of one report about this alphabet, exactly."""
        kind, elements, size, own, other = self.alphabets[name]
        if elements == 1:
            return Fraction(1)
        if kind == "unary":
            odds = Fraction(own * (2**53 - other), other * (2**53 - own))
        else:
            odds = Fraction(own * (elements - size), (2**53 - own) * size)
        return max(odds, 1 / odds)

    @property
    def loss(self) -> float:
        """Epsilon: reports times ln of the largest ratio."""
        return self.reports * max(map(_log, map(self.ratio, self.alphabets)))

    def __str__(self) -> str:
        parts = []
        for name, (kind, elements, size, own, other) in self.alphabets.items():
            q = f", q = {other / 2**53:.6g}" if kind == "unary" else f", {size} of {elements} reported"
            parts.append(f"{name} (d = {elements}{q}, p = {own / 2**53:.6g})")
        return (
            f"{self.mechanism}: {', '.join(parts)}; largest ln of a likelihood ratio "
            f"{self.loss / self.reports:.6g}, {self.reports} independent report{'s'[: self.reports - 1]} "
            f"a user: epsilon = {self.reports} x {self.loss / self.reports:.6g} = {self.loss:.6g}"
        )


Record = MechanismRecord | ReportRecord | BinomialRecord | AmplifiedRecord
"""What one mechanism did. The last two: to the users of one batch that a shuffler let out."""

_SHAPES = {"scales": dict, "sensitivities": dict, "alphabets": dict, "exchanges": list, "mechanism": str}


def _plain_record(record: MechanismRecord | ReportRecord, kind: str) -> dict[str, Any]:
    table: dict[str, Any] = {"kind": kind}
    for item in fields(record):
        value = getattr(record, item.name)
        table[item.name] = dict(value) if isinstance(value, Mapping) else value
    return table


def _record_fields(cls: type, kind: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """The table without its kind, if it has exactly the keys of the class, and containers in place."""
    names = {"kind", *(item.name for item in fields(cls))}
    wrong = names.symmetric_difference(table)
    if wrong:
        raise ValueError(f"record: key {min(wrong)!r} is {'missing' if min(wrong) in names else 'unknown'}")
    checks.choice("record: kind", table["kind"], (kind,))
    for name, shape in _SHAPES.items():
        if name in table and not isinstance(table[name], shape):
            raise ValueError(f"record: {name} = {checks.said(table[name])}: must be a {shape.__name__}")
    return {name: value for name, value in table.items() if name != "kind"}


def _float(name: str, value: Any) -> float:
    if type(value) is not float:
        raise ValueError(f"record: {name} = {checks.said(value)}: must be a floating-point number")
    return value


def _coordinate(plain: Any) -> accounting.Coordinate:
    types = [type(part) for part in plain] if isinstance(plain, list) else []
    if types != [str, float, float, int]:
        raise ValueError(
            f"record: exchanges hold {checks.said(plain)}: must be [noise, scale, shift, count] each"
        )
    noise, scale, shift, count = plain
    return noise, scale, shift, count


def records_from_dict(plain: Sequence[Mapping[str, Any]]) -> tuple[Record, ...]:
    """The records whose ``to_dict`` these are, equal to the last bit.

    Raises ``ValueError`` on a kind, a key or a type that no record has.
    """
    kinds: dict[Any, type[Record]] = {
        "noise": MechanismRecord, "reports": ReportRecord, "flips": BinomialRecord,
        "amplified": AmplifiedRecord,
    }  # fmt: skip
    found = []
    for table in plain:
        if not isinstance(table, Mapping):
            raise ValueError(f"records hold {checks.said(table)}: must be tables")
        kind = checks.choice("record: kind", table.get("kind"), kinds)
        found.append(kinds[kind].from_dict(table))
    return tuple(found)


def composable_from_dict(plain: Sequence[Mapping[str, Any]]) -> tuple[MechanismRecord | ReportRecord, ...]:
    """:func:`records_from_dict` of what is composed on one population: stored releases and their ledger.

    Raises ``ValueError`` on records of shuffled batches too: each speaks of the users of one batch, and what
    several of them cost together is not computed here.
    """
    found = []
    for record in records_from_dict(plain):
        if not isinstance(record, MechanismRecord | ReportRecord):
            raise ValueError(
                f"records hold a {type(record).__name__}: must be MechanismRecord or ReportRecord; batches "
                "of the shuffle model have a guarantee of their own, which no ledger composes"
            )
        found.append(record)
    return tuple(found)


def _log(ratio: Fraction) -> float:
    """ln of a rational of any size, accurate also near 1."""
    if ratio < 2:
        return math.log1p(float(ratio - 1))
    return math.log(ratio.numerator) - math.log(ratio.denominator)


# ------------------------------------------------------------------------------ what it means


@dataclass(frozen=True)
class Guarantee:
    """A privacy statement: computed by :func:`guarantee_of`, never typed in.

    trust : who sees raw data ("joint": the server, which people interact with; "central": the keeper of
        stored data, and everybody else sees the release; "local": nobody; "none": no promise).
    epsilon, delta : true values of this object's own noise; epsilon None: no guarantee.
    rho, mu : zCDP and Gaussian-DP parameters, None where there is none.
    epsilon_nominal : what the user typed; differs under calibration "published".
    unit, neighbours : what is protected, against which exchange.
    users_public : the number of users is treated as known to all.
    randomness : "secure" (operating system, exact) or "seeded" (simulation only).
    composition : one line per mechanism, with the numbers that led here.
    statement : the whole in words.
    """

    trust: Trust
    epsilon: float | None
    delta: float
    rho: float | None
    mu: float | None
    epsilon_nominal: float | None
    unit: str
    neighbours: str
    users_public: bool
    randomness: Source
    composition: tuple[str, ...]
    statement: str

    def __post_init__(self) -> None:
        checks.choice("trust", self.trust, get_args(Trust))
        checks.choice("randomness", self.randomness, get_args(Source))
        checks.real("delta", self.delta, 0.0, 1.0, open_high=True)
        checks.flag("users_public", self.users_public)
        for name in ("epsilon", "rho", "mu", "epsilon_nominal"):
            value = getattr(self, name)
            if value is not None:
                checks.real(name, value, 0.0)
        if self.epsilon is None and (self.rho is not None or self.mu is not None):
            raise ValueError("epsilon = None: there is no guarantee, so rho and mu must be None")
        if self.trust == "none" and self.epsilon is not None:
            raise ValueError(f"epsilon = {self.epsilon!r}: must be None under trust 'none'")
        object.__setattr__(self, "composition", tuple(self.composition))
        self._check_numbers()

    def _check_numbers(self) -> None:
        """Refuse numbers that do not follow from each other and from the lines that claim to lead to them.

        What a reader of a stored guarantee relies on cannot be changed in one place; who rewrites all of it
        consistently is stopped by no check of the text, only by recomputing it from the mechanism.
        """
        if self.epsilon is None:
            if not self.statement.startswith(_NOTHING):
                raise ValueError(f"statement: must begin with {_NOTHING!r} where epsilon is None")
            return
        if not self.composition:
            raise ValueError("composition is empty: a guarantee is computed from mechanisms, never typed in")
        *lines, total = self.composition
        if total.endswith(_WORST):
            self._check_worst(lines, total)
            return
        losses = [_last_number(line) for line in lines]
        if self.mu is not None and (self.rho is None or not _close(self.rho, 0.5 * self.mu**2)):
            raise ValueError(f"rho = {self.rho!r}: must be mu^2 / 2 = {0.5 * self.mu**2!r}")
        if total.endswith(_NUMERICAL):
            # recomputed from the mechanism by accounting.verify; here: never above the closed form
            told = math.fsum(losses) if self.rho is None else math.hypot(*losses)
            above = told if self.rho is None else budget.zcdp_epsilon(self.rho, self.delta)
            epsilon = self.epsilon if 0 < self.epsilon <= above * (1 + 1e-6) else math.nan
        elif self.rho is None:
            told, epsilon = math.fsum(losses), self.epsilon
        else:
            told = math.hypot(*losses)
            epsilon = (
                budget.zcdp_epsilon(self.rho, self.delta)
                if self.mu is None
                else budget.gdp_epsilon(self.mu, self.delta)
            )
        loss = self.epsilon if self.rho is None else math.sqrt(2 * self.rho)
        if total.endswith(_NUMERICAL) and self.rho is None:
            loss = told
        elif self.rho is None and self.delta:
            raise ValueError(f"delta = {self.delta!r}: must be 0 for a pure epsilon")
        if not _close(epsilon, self.epsilon) or not _close(told, loss, 1e-4):
            raise ValueError(f"epsilon = {self.epsilon!r}: is not what rho, mu and composition give")
        numerical = total.endswith(_NUMERICAL)
        if total != _sum_line(len(lines), self.epsilon, self.delta, self.rho, self.mu, numerical):
            raise ValueError("composition: its last line does not state epsilon, delta, rho and mu")
        self._check_words()

    def _check_worst(self, lines: Sequence[str], total: str) -> None:
        """The same for batches of other people, each with an epsilon of its own."""
        assert self.epsilon is not None
        most = math.inf
        if self.mu is not None and (self.rho is None or not _close(self.rho, 0.5 * self.mu**2)):
            raise ValueError(f"rho = {self.rho!r}: must be mu^2 / 2 = {0.5 * self.mu**2!r}")
        if self.rho is not None:
            most = budget.zcdp_epsilon(self.rho, self.delta)
        if self.mu is not None:
            most = budget.gdp_epsilon(self.mu, self.delta)
        if not lines or max(map(_last_number, lines)) != self.epsilon or self.epsilon > most * (1 + 1e-6):
            raise ValueError(f"epsilon = {self.epsilon!r}: is not what rho, mu and composition give")
        if total != _worst_line(len(lines), self.epsilon, self.delta):
            raise ValueError("composition: its last line does not state epsilon and delta")
        self._check_words()

    def _check_words(self) -> None:
        assert self.epsilon is not None
        episodes = _episodes(self.unit)
        subject = f"{_subject(self.trust, episodes)} {_bound(self.epsilon, self.delta, self.rho, self.mu)}"
        if not (self.statement.startswith(subject) and self.statement.endswith(_SOURCES[self.randomness])):
            raise ValueError("statement: is not the one of this trust model, its numbers and its randomness")
        if self.neighbours != neighbours_of(episodes):
            raise ValueError("unit, neighbours: must be those that every sensitivity here is computed for")

    def __str__(self) -> str:
        return self.statement

    @property
    def holds_if_seed_is_guessed(self) -> bool:
        """Is epsilon a promise against who can guess, or try, seeds? Never of seeded noise: a simulation."""
        return self.epsilon is not None and self.randomness == "secure"

    def to_dict(self) -> dict[str, Any]:
        """Plain values under the names of the fields, in their order (None stands for JSON null).

        After ``randomness``: :attr:`holds_if_seed_is_guessed`, for readers who look at numbers alone.
        """
        table: dict[str, Any] = {}
        for item in fields(self):
            table[item.name] = getattr(self, item.name)
            if item.name == "randomness":
                table[_SEED] = self.holds_if_seed_is_guessed
        table["composition"] = list(self.composition)
        return table

    def to_json(self) -> str:
        """:meth:`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Guarantee:
        """The guarantee that :meth:`to_dict` wrote. Raises ``ValueError`` on a missing or foreign key.

        ``holds_if_seed_is_guessed`` may be missing, as it was from tables written before there was one.
        """
        names = {item.name for item in fields(cls)}
        said = table.get(_SEED)
        table = {name: value for name, value in table.items() if name != _SEED}
        wrong = names.symmetric_difference(table)
        if wrong:
            raise ValueError(
                f"guarantee: key {min(wrong)!r} is {'missing' if min(wrong) in names else 'unknown'}"
            )
        found = cls(**{**table, "composition": tuple(table["composition"])})
        if said is not None and said is not found.holds_if_seed_is_guessed:
            raise ValueError(
                f"{_SEED} = {checks.said(said)}: must be {found.holds_if_seed_is_guessed}, by epsilon and "
                f"randomness = {found.randomness!r}"
            )
        return found


def no_guarantee(
    randomness: Source,
    *,
    trust: Trust = "none",
    reason: str = "exact sums of users' trajectories are released, without noise",
    epsilon_nominal: float | None = None,
    composition: Sequence[str] = (),
    episodes: int = 1,
) -> Guarantee:
    """The statement of a baseline, or of a mechanism whose noise protects nobody (``reason`` says why)."""
    return Guarantee(
        trust=trust,
        epsilon=None,
        delta=0.0,
        rho=None,
        mu=None,
        epsilon_nominal=epsilon_nominal,
        unit=unit_of(episodes),
        neighbours=neighbours_of(episodes),
        users_public=True,
        randomness=randomness,
        composition=tuple(composition),
        statement=f"{_NOTHING} {reason}.",
    )


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
    """The guarantee of mechanisms that all touched the same users.

    Parameters
    ----------
    trust : "joint", "central", "local" or "shuffle"
    records : at least one; all Laplace, or all Gaussian (discrete or not).
    randomness : "seeded" or "secure"; secure noise must be discrete, since the last bits of floating-point
        noise leak.
    delta : in (0, 1), at which epsilon is stated, for Gaussian noise; None or 0 for Laplace noise,
        whose guarantee is pure.
    epsilon_nominal : what the user asked for, if it was an epsilon.
    episodes : m, how many episodes a user has at most; the records' sensitivities are for that many.

    Raises
    ------
    ValueError
        On a mixture of families, a delta that does not fit the noise, or secure randomness with
        continuous noise.
    """
    checks.choice("trust", trust, ("joint", "central", "local", "shuffle"))
    checks.choice("randomness", randomness, get_args(Source))
    records = tuple(records)
    norms = {record.norm for record in records}
    if len(norms) != 1:
        raise ValueError(
            f"records hold {len(records)} mechanisms of {len(norms)} kinds: must be at least one, "
            "and all Laplace or all Gaussian"
        )
    continuous = [r.noise for r in records if r.noise in ("laplace", "gaussian")]
    if randomness == "secure" and continuous:
        raise ValueError(f"noise = {continuous[0]!r}: secure randomness must draw discrete noise")
    if epsilon_nominal is not None:
        epsilon_nominal = budget.check_epsilon(epsilon_nominal, "epsilon_nominal")
    rho = mu = None
    numbered = [record for record in records if isinstance(record, MechanismRecord) and record.exchanges]
    numerical = bool(numbered)
    flips = [record for record in records if isinstance(record, BinomialRecord | AmplifiedRecord)]
    lossy = [record for record in records if isinstance(record, MechanismRecord | ReportRecord)]
    if (numerical or flips) and len(records) > 1:
        raise ValueError("records: one that lists exchanges or shuffled batches must be the only one")
    if flips:
        delta, numerical = budget.check_delta(delta), True
        epsilon = flips[0].epsilon(delta)
        if not math.isfinite(epsilon):
            raise ValueError(f"records: these batches give no epsilon at delta = {delta:g}")
    elif numerical:
        delta = budget.check_delta(delta)
        epsilon = accounting.worst_epsilon(numbered[0].exchanges, delta)
        rho = None if norms == {"l1"} else 0.5 * numbered[0].loss ** 2
    elif norms == {"l1"}:
        if delta:
            raise ValueError(
                f"delta = {delta!r}: must be 0 or None for Laplace noise, whose guarantee is pure"
            )
        epsilon, delta = math.fsum(record.loss for record in lossy), 0.0
    else:
        delta = budget.check_delta(delta)
        squared = math.fsum(record.loss**2 for record in lossy)
        rho = 0.5 * squared
        if len(continuous) == len(records):
            mu = math.sqrt(squared)
            epsilon = budget.gdp_epsilon(mu, delta)
        else:
            epsilon = budget.zcdp_epsilon(rho, delta)
    told = flips[0].describe(delta) if flips and delta else None
    lines = (
        *((told,) if told else map(str, records)),
        _sum_line(len(records), epsilon, delta, rho, mu, numerical),
    )
    return Guarantee(
        trust=trust,
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        mu=mu,
        epsilon_nominal=epsilon_nominal,
        unit=unit_of(episodes),
        neighbours=neighbours_of(episodes),
        users_public=users_public,
        randomness=randomness,
        composition=lines,
        statement=_statement(
            trust, records, epsilon, delta, rho, mu, epsilon_nominal, users_public, randomness, episodes
        ),
    )


def parallel(kinds: Sequence[tuple[str, Guarantee]]) -> Guarantee:
    """The guarantee of mechanisms on disjoint users, each of whom is in exactly one: that of the worst.

    Parameters
    ----------
    kinds : (words, guarantee), at least one; the words say which users, such as ``"40 users, one step"``.
        Of one trust model, randomness, unit and nominal epsilon.

    Raises
    ------
    ValueError
        On guarantees of different trust models, randomness or units.
    """
    kinds = tuple(kinds)
    if not kinds:
        raise ValueError("kinds is empty: must hold at least one guarantee")
    first = kinds[0][1]
    for words, one in kinds:
        for name in ("trust", "randomness", "unit", "neighbours", "users_public", "epsilon_nominal"):
            if getattr(one, name) != getattr(first, name):
                raise ValueError(
                    f"kinds: {name} of {words!r} is {getattr(one, name)!r}, not {getattr(first, name)!r}"
                )
    guarantees = [one for _, one in kinds]
    nothing = next((one for one in guarantees if one.epsilon is None), None)
    if nothing is not None or all(one == first for one in guarantees):
        return nothing or first
    epsilons = [float(one.epsilon) for one in guarantees if one.epsilon is not None]
    epsilon, delta = max(epsilons), max(one.delta for one in guarantees)
    rhos, mus = [one.rho for one in guarantees], [one.mu for one in guarantees]
    rho = None if None in rhos else max(x for x in rhos if x is not None)
    mu = None if None in mus else max(x for x in mus if x is not None)
    lines = [
        f"{words}: {'; '.join(one.composition[:-1])}; at delta {one.delta:g} epsilon = {one.epsilon!r}"
        for words, one in kinds
    ]
    episodes = _episodes(first.unit)
    sentences = [
        f"{_subject(first.trust, episodes)} {_bound(epsilon, delta, rho, mu)}",
        *_nominal(first.epsilon_nominal, epsilon),
        "People come in batches, each person in exactly one, and every batch has a mechanism of its own with "
        "randomness of its own: what is said here of all of them is true of the worst.",
        *_sentences_of_kinds(kinds),
        *_closing(delta, rho, mu, first.users_public, first.randomness, episodes),
    ]
    return Guarantee(
        trust=first.trust,
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        mu=mu,
        epsilon_nominal=first.epsilon_nominal,
        unit=first.unit,
        neighbours=first.neighbours,
        users_public=first.users_public,
        randomness=first.randomness,
        composition=(*lines, _worst_line(len(lines), epsilon, delta)),
        statement=" ".join(sentences),
    )


# ------------------------------------------------------------------------------ words

_NOTHING = "No privacy guarantee:"
_SEED = "holds_if_seed_is_guessed"
_SOURCES = {
    "seeded": "Noise from a seeded generator in floating point: for simulation only, "
    "whoever knows the seed can remove it.",
    "secure": "Noise drawn exactly, in integers, from the operating system's cryptographic source.",
}


def _close(a: float, b: float, relative: float = 1e-9) -> bool:
    return math.isclose(a, b, rel_tol=relative)


def _last_number(line: str) -> float:
    """The loss that a mechanism's line ends with."""
    try:
        return float(line.rpartition("= ")[2])
    except ValueError:
        raise ValueError(f"composition: {line!r} does not end with the loss of a mechanism") from None


_NUMERICAL = "by its privacy-loss distribution"
_WORST = "that of the worst"


def _worst_line(kinds: int, epsilon: float, delta: float) -> str:
    return f"{kinds} kinds of batches, each user in one: epsilon {epsilon:.6g} at delta {delta:g}, {_WORST}"


def _sum_line(
    mechanisms: int, epsilon: float, delta: float, rho: float | None, mu: float | None, numerical: bool
) -> str:
    sources = f"{mechanisms} mechanism{'s' if mechanisms > 1 else ''} on the same users"
    if numerical:
        return f"{sources}: epsilon {epsilon:.6g} at delta {delta:g} {_NUMERICAL}"
    if rho is None:
        return f"{sources}: epsilon adds to {epsilon:.6g}, delta 0"
    stated = f"epsilon {epsilon:.6g} at delta {delta:g}"
    if mu is None:
        return f"{sources}: rho adds to {rho:.6g}; {stated} by the best Renyi order"
    return f"{sources}: mu^2 adds to {mu:.6g}^2; {stated} by the exact Gaussian curve"


def _up(x: float, digits: int = 4) -> str:
    """``x`` with this many digits, rounded up (but for 1e-9 of it): no promise is below the truth."""
    if x == 0.0:
        return "0"
    exact = Decimal(x) * (1 - Decimal(10) ** -9)
    last_digit = Decimal(1).scaleb(exact.adjusted() + 1 - digits)
    return f"{float(exact.quantize(last_digit, ROUND_CEILING)):.{digits}g}"


def _factor(epsilon: float) -> str:
    return f"e^{_up(epsilon)} = {_up(math.exp(epsilon), 3)}" if epsilon < 16 else f"e^{_up(epsilon)}"


def _numbers(epsilon: float, delta: float, rho: float | None, mu: float | None) -> str:
    words = f"ε = {_up(epsilon)}, δ = {_up(delta, 3)}"
    if mu is not None and rho is not None:
        words += f"; μ = {_up(mu)} in Gaussian DP, ρ = {_up(rho)} in zCDP"
    elif rho is not None:
        words += f"; ρ = {_up(rho)} in zCDP"
    return words


def _subject(trust: Trust, episodes: int = 1) -> str:
    whole = "whole trajectory for another" if episodes == 1 else f"episodes (up to {episodes}) for any others"
    return {
        "joint": f"Joint differential privacy: exchanging any one user's {whole} "
        "changes the probability of anything that all other users see (every release, policy and action)",
        "central": "Differential privacy with a trusted keeper of the data: exchanging any one user's "
        f"{whole} changes the probability of anything that is released, or computed from it,",
        "local": "Local differential privacy: exchanging a user's whole trajectory for any other changes the "
        "probability of anything that leaves the user's device",
        "shuffle": "Shuffle differential privacy: exchanging any one user's whole trajectory for another "
        "changes the probability of any set of messages that leaves the shuffler",
    }[trust]


def _reporter(trust: Trust, reports: str) -> str:
    """Who randomizes a user's records, and what becomes of them."""
    if trust == "local":
        return f"A device sends {reports}"
    return (
        f"The trusted server draws {reports} from each trajectory, once and with coins of their own, adds "
        "them up, and keeps nothing else of it; there is no other noise"
    )


def _bound(epsilon: float, delta: float, rho: float | None, mu: float | None) -> str:
    slack = f", plus at most δ = {_up(delta, 3)}" if delta else ""
    return f"by a factor of at most {_factor(epsilon)}{slack} ({_numbers(epsilon, delta, rho, mu)})."


def _statement(
    trust: Trust,
    records: Sequence[Record],
    epsilon: float,
    delta: float,
    rho: float | None,
    mu: float | None,
    nominal: float | None,
    users_public: bool,
    randomness: Source,
    episodes: int,
) -> str:
    sentences = [
        f"{_subject(trust, episodes)} {_bound(epsilon, delta, rho, mu)}",
        *_nominal(nominal, epsilon),
    ]
    noisy = [record for record in records if isinstance(record, MechanismRecord)]
    noise = " and ".join(dict.fromkeys(_WORDS[record.noise] for record in noisy))
    sums = "; ".join(
        record.mechanism + (f", each user in at most {record.levels} noisy sums" if record.levels > 1 else "")
        for record in noisy
    )
    if noisy:
        sentences.append(f"Noise: {noise} in every cell ({sums}).")
    sentences += [
        f"{_reporter(trust, record.mechanism)}; a step, and what a report is about, are drawn without "
        "looking at the data."
        for record in records
        if isinstance(record, ReportRecord)
    ]
    sentences += [
        f"A device adds coin flips to every counter, visited or not ({record.mechanism}); the shuffler lets "
        "out each counter's sum over a batch and nothing that tells its senders apart."
        for record in records
        if isinstance(record, BinomialRecord)
    ]
    sentences += [
        f"A device sends {record.mechanism}, without a look at the data when it chooses what to report; the "
        "shuffler lets out how often each report came in a batch, and nothing of one with fewer users than "
        "were accounted for. That rests on those users' following the protocol; against the shuffler itself "
        f"a message is {_up(record.local)}-locally private."
        for record in records
        if isinstance(record, AmplifiedRecord)
    ]
    return " ".join([*sentences, *_closing(delta, rho, mu, users_public, randomness, episodes)])


def _nominal(nominal: float | None, epsilon: float) -> list[str]:
    """What the user typed, where the noise gives another epsilon."""
    # noise on a grid meets the budget with a little to spare: below a thousandth nobody needs to hear of it
    spared = nominal is not None and 0.999 * nominal <= epsilon <= nominal
    if nominal is None or spared or math.isclose(nominal, epsilon, rel_tol=1e-6):
        return []
    less = "more" if epsilon > nominal else "less"
    return [
        f"Nominal ε = {nominal:.6g}, but the noise of this calibration really gives ε = {epsilon:.6g}: "
        f"{less} privacy loss than the name says."
    ]


def _sentences_of_kinds(kinds: Sequence[tuple[str, Guarantee]]) -> list[str]:
    """Of which batches which mechanism is, as their own statements say it."""
    said: dict[str, list[str]] = {}
    for words, one in kinds:
        assert one.epsilon is not None
        episodes = _episodes(one.unit)
        ends = (one.delta, one.rho, one.mu, one.users_public, one.randomness, episodes)
        middle = one.statement.removesuffix(" ".join(_closing(*ends)))
        for sentence in (_subject(one.trust, episodes), _bound(one.epsilon, *ends[:3])):
            middle = middle.removeprefix(sentence).lstrip()
        for sentence in _nominal(one.epsilon_nominal, one.epsilon):
            middle = middle.removeprefix(sentence).lstrip()
        said.setdefault(middle.rstrip(), []).append(words)
    return [f"In {' and in '.join(words)}: {middle}" for middle, words in said.items()]


def _closing(
    delta: float, rho: float | None, mu: float | None, users_public: bool, randomness: Source, episodes: int
) -> list[str]:
    """What who takes part again loses, what is public, where the noise comes from."""
    sentences = []
    m = "m" if episodes == 1 else "g"
    if rho is None:
        again = f"{m} times this ε" + (f" and (e^{{{m}ε}} − 1) / (e^ε − 1) times this δ" if delta else "")
    else:
        again = f"{m} times this μ" if mu is not None else f"{m}² times this ρ"
    if episodes == 1:
        sentences.append(f"A user is one episode; who takes part m times has {again}.")
    else:
        sentences.append(f"A user is up to {episodes} episodes; g users together have {again}.")
    if users_public:
        sentences.append("The number of users is public.")
    sentences.append(_SOURCES[randomness])
    return sentences
