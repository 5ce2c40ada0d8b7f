"""The reproduction end to end in small, and what its claims are made of."""

import copy
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from papers.qiao_wang_2023_offline import NAME, STUDY, icu, linear, pages, tabular
from papers.study import Job, reproduce

USERS = (5, 1000)
TABULAR = ("DP-APVI as printed, rho=1", "DP-APVI, default, rho=1", "APVI, default")


def row(name: str, means: tuple[float, ...], error: float = 0.01, rho: float | None = None) -> dict[str, Any]:
    return {
        "curve": name, "family": name.split(",")[0], "constant": 0.1 if "own best" in name else None,
        "divided": 1.0, "rho": rho, "epsilon": rho, "mean": list(means), "error": [error] * len(means),
        "reference": None, "z": None,
    }  # fmt: skip


def document() -> dict[str, Any]:
    """Made by hand: as printed nothing is learned, all others learn, in the order of rho."""
    rows = [row(f"PEVI, c = {c}", (8.8, 0.5)) for c in (0.005, 0.01, 0.02)]
    rows += [row("VAPVI, C = 0.1", (3.8, 0.02)), row("PEVI, own best c", (3.9, 0.03))]
    rows.append(row("VAPVI, own best C", (3.7, 0.02)))
    for family in pages.FAMILIES:
        for i, rho in enumerate(linear.RHOS):
            last = 7.0 if family == pages.FAMILIES[0] else 0.4 - 0.1 * i
            rows.append(row(f"{family}, ρ = {rho:g}", (7.0, last), rho=rho))
    rows[0] |= {"reference": [8.77, 0.02], "z": [0.1, 2.5]}
    tabular = {name: {"mean": [1.25, 1.25], "error": [0.1, 0.1], "reference": None} for name in TABULAR}
    values = {"per step": [0.5, 0.6], "first visits": [0.71, 0.711]}
    sizes = [(n, e) for n in (100, 1000) for e in (1.0, None)]
    return {
        "linear": {
            "users": list(USERS), "instances": 2, "runs": 1, "rows": rows,
            "enumerated_rho": {"unit ball": 0.5, "as printed": 23.2},
        },
        "tabular": {"users": [100, 3000], "instances": 2, "runs": 1, "rows": tabular},
        "icu": {
            "references": {"clinicians": 0.7, "first admissible action": 0.75, "optimal": 0.8},
            "delta": 1e-8, "seeds": 2,
            "rows": [
                {"users": n, "epsilon": e, "method": method, "unsupported": unsupported,
                 "values": [v - (0.1 if n == 100 and e else 0) for v in found]}
                for n, e in sizes for method, found in values.items() for unsupported in icu.UNSUPPORTED
            ],
        },
    }  # fmt: skip


def verdicts(given: dict[str, Any]) -> dict[str, bool]:
    return {one["claim"]: one.get("holds", False) for one in pages.claims(given)}


def test_verdicts_follow_the_numbers() -> None:
    given = document()
    found = verdicts(given)
    printed, ours = pages.FAMILIES[0], "DP-PEVI"
    assert not found["95 % of the cells within 2 combined standard errors"]
    assert found["every cell within 5 combined standard errors of a second implementation's"]
    for claim in ("approaches VAPVI as K grows (ρ = 25)", "the larger ρ the better (K = 1000)"):
        assert found[f"{ours}: {claim}"]
        assert not found[f"{printed}: {claim}"]
    assert found[f"{ours}: below PEVI at c = 0.02 in most cases"]  # 8.8 > 7 at K = 5
    assert not found[f"{ours}: below PEVI at its own best c in most cases"]
    assert not found["DP-APVI as printed learns (ρ = 1)"]
    better = copy.deepcopy(given)
    pages.linear_rows(better)[f"{printed}, ρ = 25"]["mean"][1] = 0.05  # type: ignore[index]
    pages.linear_rows(better)["PEVI, c = 0.005"]["z"][1] = 5.1  # type: ignore[index]
    found = verdicts(better)
    assert found[f"{printed}: approaches VAPVI as K grows (ρ = 25)"]
    assert not found["every cell within 5 combined standard errors of a second implementation's"]


@pytest.mark.parametrize(
    ("values", "beats"),
    [
        ((0.71, 0.72, 0.73), True),
        ((0.71, 0.699, 0.73), False),
        ((0.7001, 0.9, 0.7001), False),
        ((0.8,), False),
    ],
)
def test_better_than_the_clinicians(values: tuple[float, ...], beats: bool) -> None:
    assert pages.beats_clinicians(values, 0.7) is beats


def test_enough_patients() -> None:
    given = document()
    assert pages.enough(given, "first visits", 1.0, "behaviour") == 1000
    assert pages.enough(given, "first visits", None, "behaviour") == 100
    assert pages.enough(given, "per step", None, "behaviour") is None
    assert pages.enough_table(given, "behaviour")[1] == ("ε = 1", "> 1,000", "1,000")


def test_the_page() -> None:
    """Figures are drawn but not rendered: that takes seconds."""
    given = document()
    given["claims"] = pages.claims(given)
    page = pages.page(given)
    assert {f"{stem}.png" for stem in STUDY.figures} >= set(re.findall(r"figures/([\w.-]+)", page))
    assert all(draw(given) is not None for draw in STUDY.figures.values())
    assert "| VAPVI, own best (0.1) C | not private |" in page
    assert "8.80 ± 0.01 [8.77]" in page
    assert "**+1.05 ± 0.05**" in page
    assert "{" not in page
    for line in page.splitlines():
        assert line.startswith("|") or len(line) <= 115
    assert not re.search(r"/(root|tmp|work|home)/", page)


def test_the_small_reproduction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.papers.test_qiao_wang_2023_icu import ward  # a small ward

    monkeypatch.setattr(icu, "icu", ward)
    monkeypatch.setattr(icu, "QUICK", icu.Size((300,), (1.0, None), seeds=2))
    study = replace(STUDY, figures={f"{NAME}-figure-1": pages.linear_figure})
    rows = {name: tabular.rows()[name] for name in TABULAR}
    monkeypatch.setattr(tabular, "rows", lambda: rows)
    size = linear.Size((1000,), instances=2, runs=1, tuning_instances=2, tuning_runs=1, grid=(0.1,))
    monkeypatch.setattr(linear, "QUICK", size)
    said: list[str] = []
    found = reproduce(study, Job(tmp_path, quick=True, say=said.append))
    stored = json.loads((tmp_path / "qiao-wang-2023-offline.json").read_text())
    assert stored == found
    assert {table["title"] for table in stored["tables"]} >= {"The paper's claims", "Figure 1: suboptimality"}
    assert all(len(line) == len(table["head"]) for table in stored["tables"] for line in table["rows"])
    assert sum(line.startswith(("holds:", "does not hold:", "cannot be told")) for line in said) == len(
        found["claims"]
    )
    assert (tmp_path / "figures" / "qiao-wang-2023-offline-figure-1.png").exists()


def test_without_the_data_of_icu_sepsis() -> None:
    given = document()
    del given["icu"]
    given["claims"] = pages.claims(given)
    assert "ICU" not in pages.page(given)
    assert [title for title, _ in pages.summary(given)][-1] == "DP-APVI on random MDPs"
