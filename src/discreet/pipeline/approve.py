"""Approval of a release: verify the folder, then sign it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from discreet.core import checks
from discreet.ledger.signatures import Kind, PrivateKey
from discreet.pipeline.state_codebook import verify_codebook
from discreet.pipeline.verify import verify
from discreet.reports.codebook_page import FACTS, codebook_signed
from discreet.reports.signature_file import (
    SIGNATURES_NAME,
    content_of,
    read_signatures,
    signed_hashes,
    text_of_signatures,
)
from discreet.reports.statement import PAGES, LedgerLike, file_hash
from discreet.reports.statement_page import JSON_NAME
from discreet.reports.statement_schema import SIGNATURES_SCHEMA, read_json, violations
from discreet.utils.atomic_file import write_aside


def _hashes(folder: Path, names: Sequence[str]) -> dict[str, str] | None:
    try:
        return signed_hashes(folder, names)
    except OSError:
        return None  # `verify` reports that a file is missing


def _wrong_of_run(folder: Path, ledger: LedgerLike | None, learner: Any) -> str:
    return next((one.name for one in verify(folder, ledger, learner=learner) if not one.ok), "")


def _wrong_of_fit(folder: Path, ledger: Any) -> str:
    try:
        verify_codebook(folder, ledger)
    except (ValueError, OSError) as error:
        return str(error)
    return ""


def sign(
    folder: str | Path, key: PrivateKey, *, name: str = "", ledger: LedgerLike | None = None,
    learner: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """Verify the folder of a release and sign it. Returns the entry added to ``signatures.json``.

    Parameters
    ----------
    folder : folder made by :func:`discreet.pipeline.learn.learn` or
        :func:`discreet.pipeline.state_codebook.fit_codebook`. Fill in the free lines of the pages before you
        sign: any later change invalidates the signature.
    key : private key, as returned by :func:`discreet.ledger.signatures.read_private_key`
    name : name of the holder of the key, one line. A key does not identify its holder, so the name is only a
        declaration
    ledger, learner : passed to :func:`discreet.pipeline.verify.verify`, which describes them

    Raises
    ------
    ValueError
        If verification fails, or the folder was already signed with this key. In this case nothing is
        written.
    """
    folder = Path(folder)
    if not isinstance(key, PrivateKey):
        raise ValueError(f"key = {checks.said(key)}: must be a PrivateKey, as read_private_key gives it")
    fitted = (folder / FACTS).is_file() and not (folder / JSON_NAME).exists()
    names = codebook_signed() if fitted else (JSON_NAME, *PAGES)
    kind: Kind = "discreet codebook, 1" if fitted else "discreet statement, 1"
    before = _hashes(folder, names)
    wrong = _wrong_of_fit(folder, ledger) if fitted else _wrong_of_run(folder, ledger, learner)
    if wrong:
        raise ValueError(f"folder = {str(folder)!r}: does not verify ({wrong}), and was not signed")
    entries = read_signatures(folder)
    if any(one["key"] == key.public for one in entries):
        raise ValueError(f"key: has signed {str(folder)!r} already")
    one: dict[str, Any] = {
        "name": name,
        "key": key.public,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "fingerprint": file_hash(folder / FACTS) if fitted else read_json(folder / JSON_NAME)["fingerprint"],
        "files": signed_hashes(folder, names),
    }
    if one["files"] != before:
        raise ValueError(f"folder = {str(folder)!r}: was changed while it was verified, and was not signed")
    one["signature"] = key.sign(kind, content_of(one))
    text = text_of_signatures([*entries, one])
    broken = next(violations({"format": "discreet signatures", "version": 1, "signatures": [one]},
                             SIGNATURES_SCHEMA), None)  # fmt: skip
    if broken is not None:
        raise ValueError(f"name = {checks.said(name)}: must be one line of at most 500 characters ({broken})")
    write_aside(folder / SIGNATURES_NAME, text.encode())
    return one
