"""Records: what mechanisms did to one user, in public numbers; and what a guarantee claims, all in numbers.

Nothing here is text but the names of mechanisms: :mod:`discreet.privacy.wording` makes sentences of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any, Literal, Protocol, get_args

from discreet.numerics import checks
from discreet.numerics.shown import brief
from discreet.privacy.amplified_record import AmplifiedRecord
from discreet.privacy.binomial_record import BinomialRecord

__all__ = [
    "AmplifiedRecord", "BinomialRecord", "Coordinate", "MechanismRecord", "NoiseFamily", "PrivacyClaim",
    "Record", "ReportRecord", "Source", "Trust", "composable_from_dict", "joint_loss", "records_from_dict",
]  # fmt: skip

NoiseFamily = Literal["laplace", "gaussian", "discrete_laplace", "discrete_gaussian"]
Trust = Literal["none", "joint", "central", "local", "shuffle"]
Source = Literal["secure", "seeded"]
Coordinate = tuple[str, float, float, int]
"""(noise family, scale, absolute shift, how many such coordinates), discrete ones in units of their grid.

``"pure"`` stands for any mechanism that is (shift / scale)-DP: randomized response dominates them all.
"""


class _Fixed(dict[str, Any]):
    """A mapping that no one changes: a release shows its guarantee's records to whoever reads it."""

    def _refused(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a record is fixed: its mappings cannot be changed")

    __setitem__ = __delitem__ = __ior__ = update = pop = popitem = clear = setdefault = _refused

    def __reduce__(self) -> tuple[type[_Fixed], tuple[dict[str, Any]]]:
        return _Fixed, (dict(self),)


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

    __repr__ = brief

    mechanism: str
    noise: NoiseFamily
    scales: Mapping[str, float] = field(hash=False)
    sensitivities: Mapping[str, float] = field(hash=False)
    joint: float
    levels: int = 1
    exchanges: tuple[tuple[Coordinate, ...], ...] = ()

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
        object.__setattr__(self, "scales", _Fixed(scales))
        object.__setattr__(self, "sensitivities", _Fixed(own))
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
        exchanges: tuple[tuple[Coordinate, ...], ...] = (),
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
    def numerical(self) -> bool:
        """Is epsilon to be had from privacy-loss distributions of its exchanges?"""
        return bool(self.exchanges)

    @property
    def loss(self) -> float:
        """levels * joint (Laplace: its epsilon), or sqrt(levels) * joint (Gaussian: its mu)."""
        return self.levels * self.joint if self.norm == "l1" else math.sqrt(self.levels) * self.joint


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

    __repr__ = brief

    mechanism: str
    reports: int
    alphabets: Mapping[str, tuple[str, int, int, int, int]] = field(hash=False)

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
        object.__setattr__(self, "alphabets", _Fixed(self.alphabets))

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
    def numerical(self) -> bool:
        """Epsilon has a closed form."""
        return False

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


def _coordinate(plain: Any) -> Coordinate:
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


@dataclass(frozen=True)
class PrivacyClaim:
    """What is claimed, and of what: the fields of a :class:`~discreet.privacy.guarantee.Guarantee`."""

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
    kinds: tuple[tuple[str, PrivacyClaim], ...] = ()
    reason: str | None = None
