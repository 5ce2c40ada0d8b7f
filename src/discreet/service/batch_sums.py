"""Messages from a shuffler to the service. They contain sums of whole batches, never the message of one user.

The shuffler and the service read the same study file, so both know every batch of the schedule. They know the
number of users of the batch, and the smallest number of messages that a released sum must contain. They also
know the form of the batch's messages (:class:`ShuffledBatches`). Only the number of the session is sent with
the plans. For each batch the shuffler sends the following content, signed with the key that the study names::

    {"identity": "...", "turn": 3, "form": "...",

    "users": 18, "absent": 2, "counts": "..."}

The sum contains the messages of ``users`` users. The other ``absent`` users of the batch sent no message in
time. ``counts`` contains 64-bit integers in base64, in the form of
:class:`~discreet.mechanisms.shuffle.shuffle_session.Counted`,
:class:`~discreet.mechanisms.shuffle.amplified_session.Histogram` or
:class:`~discreet.mechanisms.shuffle.skellam_session.BatchSum`. ``counts`` is null if fewer messages
arrived than the guarantee of the batch requires. In this case, no sum of these messages is ever released.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import numpy as np

from discreet.ledger.signatures import PrivateKey, is_valid
from discreet.mechanisms.shuffle.amplified_session import Histogram, ReportShuffler
from discreet.mechanisms.shuffle.shuffle_mechanisms import AmplifiedMechanism, FlipMechanism
from discreet.mechanisms.shuffle.shuffle_session import Counted, Shuffler
from discreet.mechanisms.shuffle.skellam_session import BatchSum, SkellamMechanism, SumShuffler
from discreet.service.study_config import Study

__all__ = ["ShuffledBatches", "opened_sum", "sum_of", "written_sum"]

AnyShuffler = Shuffler | ReportShuffler | SumShuffler
AnySum = Counted | Histogram | BatchSum

_SHUFFLERS: Mapping[type, Any] = {
    FlipMechanism: Shuffler,
    AmplifiedMechanism: ReportShuffler,
    SkellamMechanism: SumShuffler,
}


class ShuffledBatches:
    """Batches of a study with shuffle trust.

    - session : number of the study's session.
    """

    def __init__(self, study: Study, session: int) -> None:
        self._mechanism: Any = study.mechanism
        self._session = session
        self._kind = _SHUFFLERS[type(study.mechanism)]

    def check(self, before: int, users: list[int]) -> None:
        """Raise ``ValueError`` unless the plans together form exactly one batch of the schedule.

        Parameters
        ----------
        before : number of users of all earlier plans.
        users : number of users of each plan.
        """
        ends, at = self._mechanism.ends, before
        first = int(np.searchsorted(ends, before, side="right"))
        for number in users:
            if int(np.searchsorted(ends, at, side="right")) != first:
                raise ValueError(
                    "plans: users of one release are in several batches, which the service does not support"
                )
            at += number
        if at not in ends:
            raise ValueError(f"plans: end after {at} users, inside a batch, whose flips would be missing")

    def shuffler(self, before: int) -> AnyShuffler:
        """Return an empty shuffler for the batch that begins after ``before`` users."""
        batch = int(np.searchsorted(self._mechanism.ends, before, side="right"))
        found: AnyShuffler = self._kind.of_batch(self._mechanism, batch, self._session)
        return found

    def form(self, before: int) -> bytes:
        """Return the published form of the batch that begins after ``before`` users."""
        return self.shuffler(before).device.to_bytes()


def _packed(found: AnySum) -> str:
    tables: tuple[Any, ...]
    match found:
        case Counted():
            tables = (found.ones,)
        case Histogram():
            tables = found.reports, found.moves, found.bits
        case BatchSum():
            tables = (found.cells,)
    content = b"".join(np.ascontiguousarray(one, "<i8").tobytes() for one in tables)
    return base64.b64encode(content).decode()


def _unpacked(shuffler: AnyShuffler, users: int, text: str) -> AnySum:
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("counts: must be base64") from None
    shapes: list[tuple[int, ...]]
    if isinstance(shuffler, Shuffler):
        shapes = [(shuffler.form.begins[-1],)]
    elif isinstance(shuffler, SumShuffler):
        shapes = [(shuffler.query.cells,)]
    else:
        steps, layout = shuffler.reports.horizon, shuffler.layout
        shapes = [(steps, 2), (steps, layout.rows, layout.states), (steps, layout.rows, 2)]
    sizes = [int(np.prod(shape)) for shape in shapes]
    if len(content) != 8 * sum(sizes):
        raise ValueError(f"counts: must be {sum(sizes)} integers of 64 bits")
    flat, tables, at = np.frombuffer(content, "<i8").astype(np.int64), [], 0
    for shape, size in zip(shapes, sizes, strict=True):
        tables.append(flat[at : at + size].reshape(shape))
        at += size
    if isinstance(shuffler, Shuffler):
        each = np.repeat([family.messages for family in shuffler.form.families], shuffler.form.counters)
        return Counted(tables[0], users * each)
    if isinstance(shuffler, SumShuffler):
        return BatchSum(users, tables[0])
    return Histogram(users, *tables)


def sum_of(key: PrivateKey, identity: str, turn: int, shuffler: AnyShuffler, people: int) -> dict[str, Any]:
    """Return the shuffler's signed sum of a batch of ``people`` users, and delete the batch's messages."""
    came = shuffler.received
    counts = None if came < shuffler.least else _packed(shuffler.output())
    content = {
        "identity": identity, "turn": turn, "form": shuffler.device.digest.hex(), "users": came,
        "absent": people - came, "counts": counts,
    }  # fmt: skip
    return {"content": content, "signature": key.sign("discreet shuffler, 1", content)}


def written_sum(table: Any, key: str) -> dict[str, Any]:
    """Check the signature of a signed sum with the public key ``key``, and return the content.

    Raises ``PermissionError`` if the signature is not valid, and ``ValueError`` if ``table`` does not have
    the form of a signed sum.
    """
    if (
        not isinstance(table, dict)
        or set(table) != {"content", "signature"}
        or type(table["content"]) is not dict
    ):
        raise ValueError("must hold content and signature, and nothing else")
    content: dict[str, Any] = table["content"]
    try:
        good = is_valid(key, "discreet shuffler, 1", content, table["signature"])
    except (ValueError, TypeError, RecursionError):
        good = False
    if not good:
        raise PermissionError("is not signed by the study's shuffler")
    return content


def opened_sum(content: dict[str, Any], identity: str, shuffler: AnyShuffler, people: int) -> AnySum | None:
    """Return the sum that is encoded in the content of a signed sum; None if no sum was released.

    shuffler : empty shuffler for the batch.

    Raises ``ValueError`` if ``people`` users of this batch cannot produce this sum.
    """
    if set(content) != {"identity", "turn", "form", "users", "absent", "counts"}:
        raise ValueError("content: must hold identity, turn, form, users, absent and counts")
    if content["identity"] != identity or content["form"] != shuffler.device.digest.hex():
        raise ValueError("content: is of another study or batch")
    users, absent, counts = content["users"], content["absent"], content["counts"]
    if (
        type(users) is not int
        or type(absent) is not int
        or min(users, absent) < 0
        or users + absent != people
    ):
        raise ValueError(f"content: users and absent must be of {people} users")
    if counts is None:
        if users >= shuffler.least:
            raise ValueError("content.counts: is missing, although enough messages arrived")
        return None
    if users < shuffler.least or not isinstance(counts, str):
        raise ValueError(f"content.counts: must be of {shuffler.least} messages at least")
    found = _unpacked(shuffler, users, counts)
    shuffler.add_counted(found, people)  # type: ignore[arg-type]
    return found
