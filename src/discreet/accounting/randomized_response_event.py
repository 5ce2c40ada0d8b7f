"""Privacy record of randomized responses about a user's own data. All values are public."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from discreet.accounting.serialization import plain_record, record_fields, records_from_dict
from discreet.core import checks
from discreet.core.events import Fixed, MechanismRecord, Trust

__all__ = ["ReportRecord", "composable_from_dict"]


@dataclass(frozen=True)
class ReportRecord:
    """Public numbers of randomized responses about one user's own records.

    Parameters
    ----------
    mechanism : str
        Name of the mechanism, as text.
    reports : int
        m, the number of records of one user that are reported, each by independent random bits.
    alphabets : mapping
        Name to (kind, elements d, size w, own, other). ``"subset"`` reports w of the d elements. The user's
        element is among them with probability own / 2^53, and the others are uniform. ``"unary"`` reports a
        bit for each element, 1 with probability own / 2^53 for the user's own one and other / 2^53 for every
        other. A response is about one of the alphabets, which random bits choose independently of the data.

    Raises
    ------
    ValueError
        If a number is out of range.
    """

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
        object.__setattr__(self, "alphabets", Fixed(self.alphabets))

    def to_dict(self) -> dict[str, Any]:
        """Return the record as values that JSON can store, without loss."""
        table = plain_record(self, "reports")
        table["alphabets"] = {name: list(alphabet) for name, alphabet in self.alphabets.items()}
        return table

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> ReportRecord:
        """Return the record that :meth:`to_dict` wrote. Raises ``ValueError`` on a wrong key or type."""
        given = record_fields(cls, "reports", table)
        alphabets = {}
        for name, alphabet in given["alphabets"].items():
            kind, *numbers = alphabet
            if len(numbers) != 4 or any(type(number) is not int for number in numbers):
                raise ValueError(f"alphabets[{name!r}] = {alphabet!r}: must be a kind and four integers")
            alphabets[str(name)] = (kind, *numbers)
        return cls(**{**given, "alphabets": alphabets})

    @property
    def norm(self) -> Literal["l1"]:
        """``"l1"``: the losses of independent responses are summed, like those of Laplace noise."""
        return "l1"

    @property
    def noise(self) -> str:
        """Protection of the records, by name."""
        return "reports"

    @property
    def numerical(self) -> bool:
        """False: epsilon has a closed form."""
        return False

    @property
    def levels(self) -> int:
        """1: a user sends one message."""
        return 1

    def ratio(self, name: str) -> Fraction:
        """Return the largest likelihood ratio of one response about this alphabet, exactly."""
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
        """Epsilon: number of responses times ln of the largest ratio."""
        return self.reports * max(map(_log, map(self.ratio, self.alphabets)))

    def epsilon(self, delta: float) -> float:
        """Return the pure epsilon, for every delta."""
        return self.loss

    def line(self, delta: float) -> str:
        """Describe the responses with their pure loss; ``delta`` is not used."""
        parts = []
        for name, (kind, elements, size, own, other) in self.alphabets.items():
            q = f", q = {other / 2**53:.6g}" if kind == "unary" else f", {size} of {elements} reported"
            parts.append(f"{name} (d = {elements}{q}, p = {own / 2**53:.6g})")
        each, loss, m = f"{self.loss / self.reports:.6g}", f"{self.loss:.6g}", self.reports
        return (
            f"{self.mechanism}: {', '.join(parts)}; largest ln of a likelihood ratio {each}, {m} independent "
            f"report{'s'[: m - 1]} a user: epsilon = {m} x {each} = {loss}"
        )

    def sentence(self, trust: Trust) -> str:
        """Return a sentence that describes the message and the party that sends it."""
        who = f"A device sends {self.mechanism}"
        if trust != "local":
            who = (
                f"The trusted server draws {self.mechanism} from each trajectory, once and with coins of "
                "their own, adds them up, and keeps nothing else of it; there is no other noise"
            )
        return f"{who}; a step, and what a report is about, are drawn without looking at the data."


def _log(ratio: Fraction) -> float:
    """Return ln of a rational of any size, accurate also near 1."""
    if ratio < 2:
        return math.log1p(float(ratio - 1))
    return math.log(ratio.numerator) - math.log(ratio.denominator)


def composable_from_dict(plain: Sequence[Mapping[str, Any]]) -> tuple[MechanismRecord | ReportRecord, ...]:
    """Return the records of releases that are composed on one population, as :func:`records_from_dict`.

    Used for stored releases and their ledger. Records of shuffled batches also raise ``ValueError``: each of
    them describes only the users of its batch, and the total cost of several batches is not computed here.
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
