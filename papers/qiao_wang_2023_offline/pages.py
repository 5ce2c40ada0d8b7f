"""Qiao and Wang 2023, offline: what a reproduction's numbers say, as claims, tables, figures and a page.

Everything here is a function of what was run; no number or verdict is typed in.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from discreet.accounting import budget as budgets
from discreet.utils import plot_style as style
from discreet.utils.markdown_table import Table, markdown
from discreet.utils.plot_style import tidy
from papers.page import (
    OPEN,
    Claims,
    budget,
    claims_table,
    clearly_below,
    filled,
    papers,
    plus,
    power_of_ten,
    standard_error,
    tally,
)
from papers.qiao_wang_2023_offline.icu import METHODS, pooled_scale
from papers.qiao_wang_2023_offline.linear import RHOS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Document = Mapping[str, Any]
_PANEL_END = 1000  # the figure's last K
_BEST_PEVI, _BEST_VAPVI = "PEVI, own best c", "VAPVI, own best C"
FAMILIES = (
    "DP-VAPVI as printed", "DP-VAPVI, printed features", "DP-VAPVI, printed features, noise ÷ 100",
    "DP-PEVI", "model form",
)  # fmt: skip


def _name(family: str, rho: float) -> str:
    return f"{family}, ρ = {rho:g}"


# ----------------------------------------------------------------------------------------- claims
def linear_rows(document: Document) -> dict[str, Document]:
    """Curves by name."""
    return {row["curve"]: row for row in document["linear"]["rows"]}


def _means(document: Document, name: str) -> NDArray[np.float64]:
    """Of the figure's K, 5 to 1000."""
    inside = np.array(document["linear"]["users"]) <= _PANEL_END
    return np.array(linear_rows(document)[name]["mean"])[inside]


def approaches(document: Document, family: str) -> tuple[bool, str]:
    """Whether at rho = 25 half of the greatest distance to VAPVI is gone at K = 1000."""
    distance = _means(document, _name(family, RHOS[-1])) - _means(document, "VAPVI, C = 0.1")
    last, most = float(distance[-1]), float(distance.max())
    return last < 0.5 * most, f"{last:.2f} of at most {most:.2f}"


def ordered(document: Document, family: str) -> tuple[bool, str]:
    """Whether the gap at K = 1000 falls with rho, each time by two standard errors of the difference."""
    rows = [linear_rows(document)[_name(family, rho)] for rho in RHOS]
    at = [n for n in document["linear"]["users"] if n <= _PANEL_END]
    found = [(row["mean"][len(at) - 1], row["error"][len(at) - 1]) for row in rows]
    falls = all(clearly_below(*later, *one) for one, later in itertools.pairwise(found))
    return falls, " > ".join(f"{mean:.2f}" for mean, _ in found)


def beats_pevi(document: Document, family: str, against: str) -> tuple[bool, str]:
    """Whether the gap is below PEVI's at most of the points (K, rho) of the figure."""
    pevi = _means(document, against)
    below = np.array([_means(document, _name(family, rho)) < pevi for rho in RHOS])
    return bool(below.mean() > 0.5), f"{int(below.sum())} of {below.size}"


def agreement(document: Document) -> dict[str, Any]:
    """Cells that a second implementation computed too: how many, and how many within 2 and 5 errors."""
    zs = np.array([z for row in document["linear"]["rows"] if row["z"] for z in row["z"]])
    return {
        "cells": int(zs.size),
        "within_2": float((np.abs(zs) <= 2).mean()),
        "within_5": float((np.abs(zs) <= 5).mean()),
        "largest": float(np.abs(zs).max()),
    }


def beats_clinicians(values: Sequence[float], clinicians: float) -> bool:
    """Better on every cohort, and on average by more than two standard errors."""
    gains = np.array(values) - clinicians
    return bool(gains.min() > 0 and gains.mean() > 2 * standard_error(gains))


def enough(document: Document, method: str, epsilon: float | None, unsupported: str) -> int | None:
    """The smallest cohort from which on the policy beats the clinicians at every larger size, if any."""
    found: int | None = None
    rows = [
        row for row in document["icu"]["rows"]
        if (row["method"], row["epsilon"], row["unsupported"]) == (method, epsilon, unsupported)
    ]  # fmt: skip
    clinicians = document["icu"]["references"]["clinicians"]
    for row in sorted(rows, key=lambda row: -row["users"]):
        if not beats_clinicians(row["values"], clinicians):
            break
        found = row["users"]
    return found


def claims(document: Document) -> list[dict[str, Any]]:
    """Every claim with its verdict and the numbers that decide it, the paper's with their place."""
    found = Claims()

    def add(claim: str, verdict: tuple[bool | str, str], source: str = "") -> None:
        found.add(claim, *verdict, source)

    _private(document, add)
    for family in FAMILIES:
        # "noise ÷ 100" asks what noise the claims would need; DP-PEVI and the model form are ours
        figure = "section 6, Figure 1" if family in FAMILIES[:2] else ""
        add(f"{family}: approaches VAPVI as K grows (ρ = 25)", approaches(document, family), figure)
        add(f"{family}: the larger ρ the better (K = 1000)", ordered(document, family), figure)
        for against in (_BEST_PEVI, "PEVI, c = 0.02"):
            pevi = "its own best c" if against == _BEST_PEVI else against.removeprefix("PEVI, ")
            add(
                f"{family}: below PEVI at {pevi} in most cases", beats_pevi(document, family, against), figure
            )
    same = agreement(document)
    words = f"{same['within_2']:.1%} of {same['cells']} within 2, largest {same['largest']:.1f}"
    add(
        "every cell within 5 combined standard errors of a second implementation's",
        (same["within_5"] == 1.0, words),
    )
    add("95 % of the cells within 2 combined standard errors", (same["within_2"] >= 0.95, words))
    for against in (_BEST_PEVI, "PEVI, c = 0.005", "PEVI, c = 0.01", "PEVI, c = 0.02"):
        below = _means(document, _BEST_VAPVI) <= _means(document, against)
        words = f"{int(below.sum())} of {below.size} K"
        add(f"VAPVI is at most {against} in most cases", (bool(below.mean() > 0.5), words))
    rows = document["tabular"]["rows"]
    printed = rows["DP-APVI as printed, rho=1"]["mean"]
    fell = f"suboptimality {printed[0]:.2f} → {printed[-1]:.2f}"
    add("DP-APVI as printed learns (ρ = 1)", (printed[-1] < 0.9 * printed[0], fell))
    bound = f"an upper bound; the printed penalty exceeds every value at these n, no data are used: {fell}"
    add("DP-APVI's cost of privacy is of lower order (ρ = 1)", (OPEN, bound), "Theorem 3.4")
    private, plain = rows["DP-APVI, default, rho=1"]["mean"], rows["APVI, default"]["mean"]
    late = [i for i, n in enumerate(document["tabular"]["users"]) if n >= 3000]
    ratios = [private[i] / plain[i] for i in late]
    add(
        "DP-APVI (our defaults, ρ = 1) within 1.5 × of APVI's gap from n = 3000 on",
        (max(ratios) <= 1.5, ", ".join(f"{ratio:.2f}" for ratio in ratios)),
    )
    return found.found


def _private(document: Document, add: Any) -> None:
    rows = linear_rows(document)
    ball, raw = (float(rows[_name(family, 1.0)]["rho"]) for family in FAMILIES[:2])
    table = float(document["linear"]["enumerated_rho"]["as printed"])
    claim = "DP-VAPVI with the noise as printed is ρ-zCDP"
    add(
        f"{claim}, features in the unit ball", (ball <= 1.0, f"stated 1, true {ball:.2f}"),
        "Lemma D.1, Theorem 4.1",
    )  # fmt: skip
    add(
        f"{claim}, features as printed for Figure 1",
        (
            raw <= 1.0,
            f"stated 1, true {raw:.1f} by the bound of the norms, {table:.1f} by the table of features: "
            "these have ‖φ‖² up to 7, the lemma supposes ‖φ‖ ≤ 1",
        ),
        "section 6, Appendix F",
    )


# ----------------------------------------------------------------------------------------- tables
def _cells(row: Document) -> list[str]:
    """Means with standard errors, and a second implementation's means in brackets where there are any."""
    cells = [plus(mean, error) for mean, error in zip(row["mean"], row["error"], strict=True)]
    wanted = row["reference"] or [None] * len(cells)
    return [
        cell if want is None else f"{cell} [{want:.2f}]" for cell, want in zip(cells, wanted, strict=True)
    ]


def _truth(row: Document) -> str:
    if row["rho"] is None:
        return "not private"
    return f"ρ = {row['rho']:.4g}, ε = {row['epsilon']:.3g}"


def linear_table(document: Document) -> Table:
    """Gaps with standard errors, a second implementation's in brackets; the noise's true rho and epsilon."""
    linear = document["linear"]
    lines: list[Sequence[str]] = [("curve", "true budget", *(f"K = {n}" for n in linear["users"]))]
    for row in linear["rows"]:
        name = row["curve"]
        if row["constant"] is not None:
            name = name.replace("own best", f"own best ({row['constant']:g})")
        lines.append((name, _truth(row), *_cells(row)))
    return lines


def tabular_table(document: Document) -> Table:
    """DP-APVI and APVI on random MDPs, a second implementation's means in brackets."""
    tabular = document["tabular"]
    lines: list[Sequence[str]] = [("learner", *(f"n = {n:,}" for n in tabular["users"]))]
    lines += [(name.replace("rho=", "ρ = "), *_cells(row)) for name, row in tabular["rows"].items()]
    return lines


def _points(values: Sequence[float], clinicians: float) -> str:
    if not values:
        return "—"
    gains = 100 * (np.array(values) - clinicians)
    text = f"{gains.mean():+.2f} ± {standard_error(gains):.2f}"
    return f"**{text}**" if beats_clinicians(values, clinicians) else text


def _methods(document: Document) -> list[str]:
    present = {row["method"] for row in document["icu"]["rows"]}
    return [method for method in METHODS if method in present]


def icu_table(document: Document, unsupported: str) -> Table:
    """Survival above the clinicians' in percentage points; bold where it beats them."""
    icu = document["icu"]
    rows = [row for row in icu["rows"] if row["unsupported"] == unsupported]
    cells = {(row["users"], row["epsilon"], row["method"]): row["values"] for row in rows}
    methods, clinicians = _methods(document), icu["references"]["clinicians"]
    lines: list[Sequence[str]] = [("patients", "budget", *methods)]
    for users, epsilon in dict.fromkeys((row["users"], row["epsilon"]) for row in rows):
        lines.append(
            (
                f"{users:,}",
                budget(epsilon),
                *(_points(cells.get((users, epsilon, method), ()), clinicians) for method in methods),
            )
        )
    return lines


def enough_table(document: Document, unsupported: str) -> Table:
    """The smallest cohort tried from which on the policy beats the clinicians."""
    rows = document["icu"]["rows"]
    most = max(row["users"] for row in rows)
    methods = _methods(document)
    lines: list[Sequence[str]] = [("budget", *methods)]
    for epsilon in dict.fromkeys(row["epsilon"] for row in rows):
        sizes = [enough(document, method, epsilon, unsupported) for method in methods]
        lines.append((budget(epsilon), *(f"> {most:,}" if n is None else f"{n:,}" for n in sizes)))
    return lines


def references_table(document: Document) -> Table:
    """Values of policies that need no data."""
    references = document["icu"]["references"]
    clinicians = references["clinicians"]
    return [
        ("policy", "survival within 20 steps", "above the clinicians, points"),
        *((name, f"{v:.4f}", f"{100 * (v - clinicians):+.2f}") for name, v in references.items()),
    ]


def noise_table(document: Document) -> Table:
    """Standard deviations of one count by what is asked (rewards public; H = 20, S = 716)."""
    horizon, states = 20, 716
    lines: list[Sequence[str]] = [
        ("budget", "a step's count", "sum of 20 released steps", "pooled before the noise", "first visits")
    ]
    for epsilon in dict.fromkeys(row["epsilon"] for row in document["icu"]["rows"]):
        if epsilon is not None:
            mu = budgets.gdp_mu(epsilon, document["icu"]["delta"])
            step = math.sqrt(4 * horizon) / mu
            summed = pooled_scale("sum of the released steps", horizon, states, epsilon)
            scales = (step, math.sqrt(horizon) * step, summed)
            first = pooled_scale("first visits", horizon, states, epsilon)
            lines.append((budget(epsilon), *(f"{scale:.1f}" for scale in (*scales, first))))
    return lines


def summary(document: Document) -> Iterator[tuple[str, Table]]:
    """Tables for a terminal: title and rows."""
    yield "The paper's claims", claims_table(papers(document["claims"]))
    yield "Claims about what was measured", claims_table(papers(document["claims"], ours=True))
    yield "Figure 1: suboptimality", linear_table(document)
    yield "DP-APVI on random MDPs", tabular_table(document)
    if "icu" in document:
        yield (
            "ICU-Sepsis, clinicians where unsupported (points of survival)",
            icu_table(document, "behaviour"),
        )


# ---------------------------------------------------------------------------------------- figures
def _curve(axes: Axes, document: Document, name: str, number: int, label: str) -> None:
    row = linear_rows(document)[name]
    users, colour = document["linear"]["users"], style.look(number)
    mean, error = np.array(row["mean"]), 2 * np.array(row["error"])
    axes.plot(users, mean, color=colour[0], linestyle=colour[1], linewidth=1.4, label=label)
    axes.fill_between(users, mean - error, mean + error, color=colour[0], alpha=0.15, linewidth=0)


def linear_figure(document: Document) -> Any:
    """Both panels of Figure 1 in one, four times: as stated, printed features, noise / 100, ours."""
    rows = linear_rows(document)
    figure = style.new_figure(13.0, 8.0)
    panels = np.ravel(figure.subplots(2, 2, sharex=True, sharey=True))
    titles = (
        "DP-VAPVI, the noise as stated, features in the unit ball",
        "DP-VAPVI, the same noise on the features as printed",
        "the latter with all noise divided by 100",
        "DP-PEVI (ours)",
    )
    for axes, family, title in zip(panels, FAMILIES, titles, strict=False):
        _curve(axes, document, "PEVI, c = 0.02", 7, "PEVI, c = 0.02 (not private)")
        _curve(axes, document, _BEST_PEVI, 4, "PEVI, its best c (not private)")
        _curve(axes, document, _BEST_VAPVI, 6, "VAPVI, its best C (not private)")
        for number, rho in enumerate(RHOS):
            truth = rows[_name(family, rho)]["rho"]
            said = f"stated ρ = {rho:g}, true ρ ≤ {truth:.3g}"
            _curve(axes, document, _name(family, rho), number, said)
        tidy(axes, "x", title)
        axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    for axes in panels[2:]:
        axes.set_xlabel("K (episodes)")
    for axes in panels[::2]:
        axes.set_ylabel("suboptimality v* - v")
    return figure


def icu_figure(document: Document) -> Any:
    """Survival against the size of the cohort, a panel a budget; None without ICU-Sepsis."""
    if "icu" not in document:
        return None
    icu = document["icu"]
    epsilons = list(dict.fromkeys(row["epsilon"] for row in icu["rows"]))
    figure = style.new_figure(3.2 * len(epsilons) + 0.8, 4.4)
    panels = np.ravel(figure.subplots(1, len(epsilons), sharey=True))
    for axes, epsilon in zip(panels, epsilons, strict=True):
        for number, method in enumerate(_methods(document)):
            rows = [
                row for row in icu["rows"]
                if (row["epsilon"], row["method"], row["unsupported"]) == (epsilon, method, "behaviour")
            ]  # fmt: skip
            colour, line = style.look(number)
            means = [float(np.mean(row["values"])) for row in rows]
            errors = [2 * float(np.nan_to_num(standard_error(row["values"]))) for row in rows]
            axes.errorbar(
                [row["users"] for row in rows], means, errors, color=colour, linestyle=line, marker="o",
                markersize=3.5, capsize=2, label=method,
            )  # fmt: skip
        for name, dashes in (("optimal", "-"), ("clinicians", "--"), ("first admissible action", ":")):
            axes.axhline(icu["references"][name], color="0.3", linestyle=dashes, linewidth=0.8, label=name)
        axes.set_xscale("log")
        axes.set_xlabel("patients")
        axes.set_title(budget(epsilon), fontsize=9, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("survival within 20 steps (± 2 standard errors)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", fontsize=8, frameon=False, ncols=4)
    return figure


def tabular_figure(document: Document) -> Any:
    """DP-APVI and APVI on random MDPs."""
    tabular = document["tabular"]
    figure = style.new_figure(8.0, 4.6)
    axes = figure.add_subplot()
    ends: list[tuple[float, str, str]] = []
    for number, (name, row) in enumerate(tabular["rows"].items()):
        colour, line = style.look(number)
        said = name.replace("rho=", "ρ = ")
        axes.plot(tabular["users"], row["mean"], color=colour, linestyle=line, linewidth=1.2, label=said)
        style.draw_interval(axes, tabular["users"], row["mean"], 2 * np.array(row["error"]), colour, True)
        ends.append((row["mean"][-1], said, colour))
    tidy(axes, "xy", x="n (trajectories)", y="suboptimality v* - v (± 2 standard errors)")
    if not style.label_ends(axes, ends, 7.0, 48):
        figure.legend(loc="outside right upper", fontsize=7, frameon=False)
    return figure


# ------------------------------------------------------------------------------------------- page
def _linear_words(document: Document) -> str:
    """Which of the paper's claims hold where, from the verdicts."""

    def shape(family: str) -> str:
        near = "approaches VAPVI" if approaches(document, family)[0] else "does not approach VAPVI"
        falls = "improves with ρ" if ordered(document, family)[0] else "is not ordered by ρ"
        last = _means(document, _name(family, RHOS[-1]))[-1]
        return f"{near} (gap {last:.2f} at K = {_PANEL_END} and ρ = {RHOS[-1]:g}) and {falls}"

    printed, raw, divided, ours, _ = FAMILIES
    ahead = (_means(document, _BEST_VAPVI) < _means(document, _BEST_PEVI)).sum()
    against = beats_pevi(document, ours, _BEST_PEVI)[1], beats_pevi(document, ours, "PEVI, c = 0.02")[1]
    return (
        f"With the stated noise, DP-VAPVI {shape(printed)}. On the features as printed, at a true ρ far "
        f"above the stated one, it {shape(raw)}. With all noise divided by 100, which is no privacy, it "
        f"{shape(divided)}. DP-PEVI has one noisy Gram matrix and one noisy response per step, with one "
        f"joint sensitivity and noise scaled to the range of the released values. At the true ρ it "
        f"{shape(ours)}. VAPVI with its best C has less suboptimality than PEVI with its best c at {ahead} "
        f"of {_means(document, _BEST_PEVI).size} K; with other constants the difference depends on the "
        f"constant. DP-PEVI has less suboptimality than PEVI with c = 0.02 at {against[1]} points (K, ρ), "
        f"and than PEVI with its best c at {against[0]}."
    )


def _cohorts(icu: Document) -> str:
    """How many cohorts the means are over."""
    sizes = sorted({len(row["values"]) for row in icu["rows"]})
    return f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"


def page(document: Document) -> str:
    """The page of the documentation."""
    linear, tabular = document["linear"], document["tabular"]
    rows, same, found = linear_rows(document), agreement(document), document["claims"]
    here = Path(__file__).parent
    patients = ""
    if "icu" in document:
        patients = filled(
            here / "icu.md", delta=power_of_ten(document["icu"]["delta"]), seeds=_cohorts(document["icu"]),
            references_table=markdown(references_table(document)),
            noise_table=markdown(noise_table(document)),
            enough_table=markdown(enough_table(document, "behaviour")),
            icu_table=markdown(icu_table(document, "behaviour")),
            policy_table=markdown(icu_table(document, "policy")),
        )  # fmt: skip
    return filled(
        here / "page.md",
        paper_tally=tally(papers(found)), paper_claims=markdown(claims_table(papers(found))),
        our_tally=tally(papers(found, ours=True)),
        our_claims=markdown(claims_table(papers(found, ours=True))),
        instances=linear["instances"], runs=linear["runs"], cells=same["cells"], share=same["within_2"],
        all5=same["within_5"], contract=rows[_name(FAMILIES[1], 1.0)]["rho"],
        enumerated=linear["enumerated_rho"]["as printed"], ball=rows[_name(FAMILIES[0], 1.0)]["rho"],
        linear_words=_linear_words(document), linear_table=markdown(linear_table(document)),
        tabular_instances=tabular["instances"], tabular_runs=tabular["runs"],
        tabular_table=markdown(tabular_table(document)), icu=patients,
    )  # fmt: skip
