"""Pages about a fitted codebook: every fact of ``codebook.json`` stands on them, with its warnings."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from discreet.core.rng import Seeded
from discreet.ledger.ledger import Ledger
from discreet.pipeline.state_codebook import fit_codebook
from discreet.reports.codebook_page import FACTS, PAGES, codebook_signed, write_codebook_pages
from discreet.utils.document import text_of

from ..pipeline.test_state_codebook import TEXT, people

SEEDED = "SEEDED NOISE: for simulation only. Anyone who knows the seed can remove the noise."


def fit(folder: Path, **options: Any) -> Path:
    (folder / "P.toml").write_text(TEXT)
    fit_codebook(
        people(300), folder / "P.toml", folder / "out", rho=1.0, delta=1e-6, centres=3, rounds=2,
        **options,
    )  # fmt: skip
    return folder / "out"


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fit(tmp_path_factory.mktemp("codebook"), ledger=None, randomness=Seeded(1))


@pytest.fixture
def facts(fitted: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((fitted / FACTS).read_text("utf-8"))
    return found


def page(facts: dict[str, Any], name: str = "officer.md") -> str:
    return text_of(PAGES[name](facts, "0123abcd"))


def test_the_page_states_the_facts(facts: dict[str, Any]) -> None:
    facts["provenance"] = {"horizon": "protocol"}
    facts["declared"]["controller"] = "St Agnes"
    text = page(facts)
    assert text.startswith("# For the data protection officer: a codebook of ward\n")
    for line in (
        "- **Population (data set):** ward",
        "- **People:** 300 (each a patient); the number is public",
        "- **Controller:** St Agnes",
        "- **Purpose of this release:** codebook, centres of x, y",
        "- **What was fitted:** 3 centres, of x, y, in 2 noisy rounds",
        f"- **Effect of the noise:** {facts['forecast']['verdict']}",
        "- **Sources of public facts:** horizon: protocol",
        f"- **Date:** {facts['date']}",
        "| ε (epsilon) | 7.767 |",
        "| δ (delta) | 1e-06 |",
    ):
        assert line in text.splitlines()
    assert "whose fingerprint is 0123abcd." in text
    assert "'discreet discretize verify' recomputes the guarantee" in text


def test_quantiles_are_bins(facts: dict[str, Any]) -> None:
    facts["forecast"] |= {"what": "quantiles", "number": 4, "values": ["x"], "rounds": 1}
    assert "- **What was fitted:** 4 bins of equal shares, of x, in 1 noisy rounds" in page(facts)


def test_warnings_of_seeded_noise_without_a_ledger(facts: dict[str, Any]) -> None:
    warnings = [line for line in page(facts).splitlines() if line.startswith("- NO LEDGER")]
    assert warnings == [f"- {facts['warning']}"]
    assert f"- {SEEDED}" in page(facts)


def test_warnings_about_the_ledger(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger") as ledger:
        facts = json.loads((fit(tmp_path, ledger=ledger) / FACTS).read_text("utf-8"))
    for new, limit in ((True, None), (False, None), (True, 9.0), (False, 9.0)):
        facts["ledger"]["new"] = new
        facts["ledger"]["after"] |= {"limit_epsilon": limit, "limit_delta": 1e-5}
        text = page(facts)
        assert ("- NEW LEDGER: this is the first release in this ledger" in text) == new
        assert ("- NO LIMIT: the owner has set no limit" in text) == (limit is None)
        assert "NO LEDGER" not in text
        assert "SEEDED NOISE" not in text


def test_the_html_page_has_the_same_title_and_facts(facts: dict[str, Any]) -> None:
    text = page(facts, "officer.html")
    assert "<title>For the data protection officer: a codebook of ward</title>" in text
    for said in ("3 centres, of x, y, in 2 noisy rounds", SEEDED, "0123abcd"):
        assert said in text


def test_pages_are_written_with_the_hash_of_the_text(fitted: Path, tmp_path: Path) -> None:
    text = (fitted / FACTS).read_text("utf-8")
    write_codebook_pages(tmp_path, text)
    assert codebook_signed() == ("codebook.json", "officer.md", "officer.html")
    for name in codebook_signed()[1:]:
        assert (tmp_path / name).read_bytes() == (fitted / name).read_bytes()
        assert hashlib.sha256(text.encode()).hexdigest() in (tmp_path / name).read_text("utf-8")
