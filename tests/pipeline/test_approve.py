"""Approval signs what was verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import discreet as dr
from discreet.pipeline import approve as approval
from discreet.pipeline import verify as verification
from discreet.reports.signature_file import SIGNATURES_NAME

from .verify.test_tampering import restore

pytestmark = pytest.mark.usefixtures("figures_are_sketched")


Signed = tuple[Path, str, str, dict[str, bytes]]


def test_what_is_signed_is_what_was_verified(signed: Signed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is exchanged while the folder is being verified is not signed."""
    folder, _, _, files = signed
    someone = dr.ledger.read_private_key(folder.parent / "other")

    def slow(*given: Any, **how: Any) -> list[verification.Check]:
        page = (folder / "officer.md").read_bytes()
        (folder / "officer.md").write_bytes(page.replace(b"Yes.", b"No."))
        return []

    try:
        monkeypatch.setattr(approval, "verify", slow)
        with pytest.raises(ValueError, match="was changed while it was verified"):
            dr.sign(folder, someone)
        assert (folder / SIGNATURES_NAME).read_bytes() == files[SIGNATURES_NAME]
        monkeypatch.undo()
        with pytest.raises(ValueError, match="must be a folder that"):
            dr.sign(folder / "none", someone)
    finally:
        restore(folder, files)
