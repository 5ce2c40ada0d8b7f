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


@dataclass(frozen=True)
class ReportRecord:
    """Public numbers of the randomized responses that one user sends about the user's own records.

    Parameters
    ----------
    mechanism : str
        Name of the mechanism, as text.
    reports : int
        Number m of records that one user reports. Each record is randomized independently.
    alphabets : mapping
        Mapping from the name of an alphabet to (kind, number d of elements, size w, own, other). A response
        of kind ``"subset"`` is a set of w of the d elements. It contains the user's element with probability
        own / 2^53, and the other members are uniformly distributed. A response of kind ``"unary"`` has one
        bit for each element. The bit is 1 with probability own / 2^53 for the user's element, and with
        probability other / 2^53 for every other element. Each response is about one alphabet. This alphabet
        is drawn at random, independently of the data.

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
        """Return the record as values that JSON stores without loss."""
        table = plain_record(self, "reports")
        table["alphabets"] = {name: list(alphabet) for name, alphabet in self.alphabets.items()}
        return table

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> ReportRecord:
        """Return the record that :meth:`to_dict` wrote. Raises ``ValueError`` for a wrong key or type."""
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
        """Name of the protection: ``"reports"`` for randomized responses."""
        return "reports"

    @property
    def numerical(self) -> bool:
        """False, because epsilon has a closed form."""
        return False

    @property
    def levels(self) -> int:
        """Number of messages of a user, which is 1."""
        return 1

    def ratio(self, name: str) -> Fraction:
        """Return the exact largest likelihood ratio of one response about the alphabet ``name``."""
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
        """Epsilon of one user: number of responses times the logarithm of the largest likelihood ratio."""
        return self.reports * max(map(_log, map(self.ratio, self.alphabets)))

    def epsilon(self, delta: float) -> float:
        """Return the pure epsilon, which is the same for every delta."""
        return self.loss

    def line(self, delta: float) -> str:
        """Return a line of text about the responses and their pure epsilon. ``delta`` is not used."""
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
        """Return a sentence about the message and the party that draws the responses."""
        who = f"A device sends {self.mechanism}"
        if trust != "local":
            who = (
                f"The trusted server draws {self.mechanism} from each trajectory, once and with coins of "
                "their own, adds them up, and keeps nothing else of it; there is no other noise"
            )
        return f"{who}; a step, and what a report is about, are drawn without looking at the data."


def _log(ratio: Fraction) -> float:
    """Return the logarithm of a rational number of any size. The result is also accurate near 1."""
    if ratio < 2:
        return math.log1p(float(ratio - 1))
    return math.log(ratio.numerator) - math.log(ratio.denominator)


def composable_from_dict(plain: Sequence[Mapping[str, Any]]) -> tuple[MechanismRecord | ReportRecord, ...]:
    """Return the records of releases about the same users, from the values that ``to_dict`` returned.

    Stored releases and their ledger use this function. In addition to the errors of
    :func:`records_from_dict`, it raises ``ValueError`` for records of shuffled batches. Such a record
    describes only the users of its batch, and the ledger does not compute the total loss of several batches.
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
