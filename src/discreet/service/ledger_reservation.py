"""Reservation of a study's cost in the ledger. It is made once, before noise is drawn.

**Once.** The reservation is identified by the study's identity. Two processes that start at the same time use
the same reservation. If a database is lost before it published anything, its replacement uses the same
reservation. Before release 1 is published, the reservation is marked with a name of the database. A database
that is created after the mark is charged again, because the publications of the first database cannot be
revoked. If two databases use the same reservation, the second one to publish is rejected.

**Local trust.** Each message reveals information to the server when it arrives. Therefore the reservation is
marked before the first plan opens, and every other database is charged again.
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
    """Reserve the whole study's cost in the ledger, before noise is drawn.

    Returns the position of the reservation and the identity of the ledger, or None if the study has no
    ledger.
    """
    if study.ledger is None:
        return None
    guarantee = study.guarantee
    with _opened(study) as ledger:
        made = ledger.reserve(
            study.ledger["dataset"],
            guarantee.records,  # type: ignore[arg-type]  # a ledger refuses other types
            delta=guarantee.delta,
            users=study.users,
            purpose=f"service, study {study.identity[:32]}",
            once=True,
        )
        return {
            "dataset": made.dataset, "number": made.number, "hash": made.hash, "identity": ledger.identity,
        }  # fmt: skip


def publish(study: Study, entry: Mapping[str, Any] | None, ties: bytes) -> None:
    """Mark the study's reservation, unless this database has already marked it.

    Has no effect if the study has no ledger.

    The mark contains the study's identity, but no digest of the release. A draw that is not stored is
    repeated, so no record may reveal the first draw. Raises ``LedgerError`` if the ledger cannot be written,
    or another database of this study has published.

    Parameters
    ----------
    entry : result of :func:`reserve`.
    ties : random bytes that only this database has.
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
                "its first release: begin again with an empty database, which is charged again"
            )
