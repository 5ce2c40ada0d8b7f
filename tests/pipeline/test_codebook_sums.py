"""Sums of a codebook: exact counts in what is published are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from discreet.core.rng import Seeded
from discreet.pipeline import state_codebook as codebook
from discreet.pipeline.codebook_sums import CodebookQuery
from discreet.pipeline.state_codebook import fit_codebook, verify_codebook

from .test_state_codebook import TEXT, people


@pytest.fixture
def declared(tmp_path: Path) -> Path:
    path = tmp_path / "P.toml"
    path.write_text(TEXT)
    return path


def test_exact_counts_in_centres_are_refused(
    declared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fit that moves centres by the exact number of people, or that keeps them by it."""
    exact, moved, noised = list[np.ndarray](), CodebookQuery.moved, codebook._noised

    def kept(asked: CodebookQuery, sums: np.ndarray, sigma: int, source: Any) -> np.ndarray:
        exact.append(sums)
        return noised(asked, sums, sigma, source)

    def by_exact_counts(
        self: CodebookQuery, centres: np.ndarray, released: np.ndarray, sigma: int
    ) -> np.ndarray:
        return moved(self, centres, np.column_stack([released[:, :-1], exact[-1][:, -1]]), sigma)

    def kept_by_exact_counts(
        self: CodebookQuery, centres: np.ndarray, released: np.ndarray, sigma: int
    ) -> np.ndarray:
        seen = exact[-1][:, -1:] > 0
        return np.where(seen, moved(self, centres, released, 0), centres)

    asked: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "ledger": None, "rounds": 2, "anyway": True}
    asked["centres"] = 30  # some hold few people
    for number, planted in enumerate((by_exact_counts, kept_by_exact_counts)):
        out = tmp_path / str(number)
        with monkeypatch.context() as patched:
            patched.setattr(codebook, "_noised", kept)
            patched.setattr(CodebookQuery, "moved", planted)
            fit_codebook(people(3000), declared, out, randomness=Seeded(3), **asked)
        with pytest.raises(ValueError, match=r"codebook\.csv: does not follow from the noisy sums"):
            verify_codebook(out)
    fit_codebook(people(3000), declared, tmp_path / "fine", randomness=Seeded(3), **asked)
    assert verify_codebook(tmp_path / "fine") == ()


def test_a_start_made_of_people_is_no_halton_sequence(
    declared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All numbers of such a fit follow from its start and its noisy sums; the start itself is a record."""
    with monkeypatch.context() as patched:
        table = np.array([[4.0, -9.0], [1.0, 1.0], [4.0, 9.0]])
        patched.setattr(CodebookQuery, "halton", lambda self: self.start_text(table))
        fit_codebook(
            people(3000), declared, tmp_path / "out", ledger=None, centres=3, epsilon=1.0, delta=1e-6,
            randomness=Seeded(1),
        )  # fmt: skip
        assert verify_codebook(tmp_path / "out") == ()
    with pytest.raises(ValueError, match=r"start\.csv: is not the Halton sequence"):
        verify_codebook(tmp_path / "out")


@pytest.mark.parametrize("what", [{"centres": 3}, {"quantiles": ("x", 4)}])
def test_an_exact_histogram_as_shares_is_refused(
    declared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: dict[str, Any]
) -> None:
    exact, noised, shares = list[np.ndarray](), codebook._noised, CodebookQuery.shares

    def kept(asked: CodebookQuery, sums: np.ndarray, sigma: int, source: Any) -> np.ndarray:
        exact.append(sums)
        return noised(asked, sums, sigma, source)

    with monkeypatch.context() as patched:
        patched.setattr(codebook, "_noised", kept)
        patched.setattr(CodebookQuery, "shares", lambda self, released: shares(self, exact[-1]))
        fit_codebook(
            people(3000), declared, tmp_path / "out", ledger=None, epsilon=1.0, delta=1e-6,
            randomness=Seeded(1), **what,
        )  # fmt: skip
    with pytest.raises(ValueError, match="shares: do not follow from the noisy sums"):
        verify_codebook(tmp_path / "out")
