"""Users who return: one pseudonym takes part at most m times, at least s releases apart.

The operator gives each person a pseudonym, which the operator's system knows, and asks for a ticket for it.
The database keeps the HMAC-SHA256 of the pseudonym under a random key, the number of times that the person
took part, and the batch of the last time. Each database has another key. All tickets of a pseudonym belong to
the same person.

**When a person took part.** An answer counts, and a withdrawal counts. A reservation that ends without an
answer does not count. A withdrawn message counts in the batch in which it was.

**Check.** The limits are checked in the transaction that gives a place, and not when the answer arrives. A
place is refused if the person has an open reservation, took part m times, or if the open batch is less than s
batches after the last one. A reservation is resolved in the batch that is open then, which is not earlier
than the batch in which the place was given. A person has at most one open reservation. Therefore the batches
with messages of one person are at most m, and at least s apart. This is what the guarantee needs
(:mod:`discreet.core.correlated_noise.decaying_sum`, users who return). The number of an open batch never
decreases, because a withdrawal does not change the number of resolved reservations.

**Assumption.** One person has one pseudonym. The guarantee is for all records of one pseudonym.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["MOST_LETTERS", "Participation", "Returning", "code_of", "least_persons", "pseudonym_of"]

MOST_LETTERS = 200  # largest number of characters of a pseudonym
# printable characters without an image: joiners, fillers and variation selectors
_INVISIBLE = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


@dataclass(frozen=True)
class Participation:
    """Limits of one person.

    most : largest number m of times that a person takes part. separation : least difference s between the
    numbers of two batches with the person.
    """

    most: int = 1
    separation: int = 1


def pseudonym_of(value: Any) -> str:
    """Return the form of a pseudonym that is the same for all spellings of one name.

    Compatible characters (Unicode's form NFKC) and upper and lower case are not distinguished. Two forms of
    one name would otherwise be two persons, whose participations are counted apart.

    Raises ``ValueError`` unless the value is a text of 1 to 200 printable characters, all of them visible,
    without spaces at its ends. The message does not contain the value.
    """
    text = value if isinstance(value, str) else ""
    for _ in range(2):  # lower case can have another normal form
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    plain = text.isprintable() and text == text.strip() and not _INVISIBLE.search(text)
    if not 0 < len(text) <= MOST_LETTERS or not plain or value != value.strip():
        raise ValueError(
            f"persons: each must be a text of 1 to {MOST_LETTERS} printable characters, without spaces at "
            "its ends"
        )
    return text


def code_of(key: bytes, pseudonym: str) -> bytes:
    """Return the code of a pseudonym: its HMAC-SHA256 under the key of the database."""
    return hmac.digest(key, pseudonym.encode(), hashlib.sha256)


def least_persons(sizes: Sequence[int], limits: Participation) -> int:
    """Return the least number of persons that can fill batches of these sizes.

    Any ``separation`` consecutive batches have different persons. If the persons take part in turns, this
    number is also sufficient.
    """
    windows = (sum(sizes[first : first + limits.separation]) for first in range(len(sizes)))
    return max(-(-sum(sizes) // limits.most), max(windows, default=0))


@dataclass
class Returning:
    """Persons of the tickets in one transaction.

    limits : limits of a person. rows : for each person, ``taken`` and ``last_batch``. reserved : for each
    person, the tickets with an open reservation.
    """

    limits: Participation = field(default_factory=Participation)
    rows: Mapping[int, dict[str, Any]] = field(default_factory=dict)
    reserved: Mapping[int, set[int]] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)

    def is_foreign(self, ticket: Mapping[str, Any]) -> bool:
        """Return True if a ticket without a person cannot be used, because persons can return."""
        return self.limits.most > 1 and ticket["person"] is None

    def refusal(self, ticket: Mapping[str, Any], batch: int) -> tuple[int | None] | None:
        """Return None if the person can take a place while ``batch`` is open.

        Otherwise, returns the number of the release from which the person can take one. This number is None
        if it is not known, or if there is none.
        """
        person = ticket["person"]
        if person is None:
            return None
        row = self.rows[person]
        if self.reserved.get(person) or row["taken"] >= self.limits.most:
            return (None,)
        if row["last_batch"] is None:
            return None
        first = int(row["last_batch"]) + self.limits.separation
        return (first,) if batch < first else None

    def reserve(self, ticket: Mapping[str, Any]) -> None:
        """Note that a ticket has an open reservation now."""
        if ticket["person"] is not None:
            self.reserved[ticket["person"]].add(ticket["id"])

    def take_part(self, ticket: Mapping[str, Any], batch: int) -> None:
        """Count that the person took part in ``batch``. The reservation of the ticket is no longer open."""
        person = ticket["person"]
        if person is None:
            return
        row = self.rows[person]
        row["taken"], row["last_batch"] = row["taken"] + 1, batch
        self.reserved[person].discard(ticket["id"])
        self.changed.add(person)
