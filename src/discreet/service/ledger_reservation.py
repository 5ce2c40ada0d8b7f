"""A study in the ledger: reserved once before noise is drawn, marked before any result is visible.

**Once.** The reservation is found by the study's identity. Two processes that begin at once have the same
one. So has a database that was lost before anything of it was published. From release 1 the reservation is
marked with a name of the database. A database that is begun after that is charged again, because
publications of the first one cannot be revoked. If two databases hold one reservation, the second one to
publish is refused.

**Local trust.** Each message reveals information when it arrives, even to the server. So the reservation is
marked before the first plan is open, and a database that is begun after another one is charged again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from discreet.ledger.ledger import Ledger, LedgerError, Reservation
from discreet.service.study_config import Study

__all__ = ["publish", "reserve"]


def _opened(study: Study) -> Ledger:
    assert study.ledger is not None
    path = study.ledger.get("path")
    return Ledger.open(None if path is None else study.path(str(path)))


def reserve(study: Study) -> dict[str, Any] | None:
    """Reserve the whole study's cost in the ledger, before noise is drawn; None without a ledger."""
    if study.ledger is None:
        return None
    guarantee = study.guarantee
    with _opened(study) as ledger:
        made = ledger.reserve(
            study.ledger["dataset"],
            guarantee.records,  # type: ignore[arg-type]  # a ledger refuses others
            delta=guarantee.delta,
            users=study.users,
            purpose=f"service, study {study.identity[:32]}",
            once=True,
        )
        return {
            "dataset": made.dataset, "number": made.number, "hash": made.hash, "identity": ledger.identity,
        }  # fmt: skip


def publish(study: Study, entry: Mapping[str, Any] | None, ties: bytes) -> None:
    """Mark the study's reservation, unless this database did. No effect without a ledger.

    The mark holds the study's identity, and no digest of the release. A draw that is not stored is drawn
    again, and nothing may reveal it. Raises ``LedgerError`` if the ledger cannot be written, or another
    database published.

    Parameters
    ----------
    entry : from :func:`reserve`.
    ties : random bytes that only the database has.
    """
    if study.ledger is None or entry is None:
        return
    own = f"release of database {hashlib.sha256(ties).hexdigest()[:16]}"
    with _opened(study) as ledger:
        if ledger.identity != entry["identity"]:
            raise LedgerError(f"{ledger}: is not the ledger in which this study was reserved")
        number = int(entry["number"])
        marks = [one for one in ledger.entries() if one.reservation == number]
        if not marks:
            ledger.mark(Reservation(entry["dataset"], number, entry["hash"]), {own: study.identity})
        elif not any(own in one.files for one in marks):
            raise LedgerError(
                f"{ledger}: reservation {number} is that of another database of this study, which published "
                "its first release: begin again with an empty database, which is charged anew"
            )
