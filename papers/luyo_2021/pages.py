"""Luyo et al. 2021: what a reproduction's numbers say, as claims, tables, a figure and a page.

Everything here is a function of what was run; no number or verdict is typed in.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from discreet.experiments.statistics import number
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
    reference_lines,
    standard_error,
    tally,
)

Document = Mapping[str, Any]
NAME = "luyo-2021"
PRINTED = ("JDP{}, as printed", "JDP{}, as printed, bonus 0", "LDP{}, as printed")
_SAME = 0.05  # relative difference of every run's final regret up to which two settings count as one


def mixture_rows(document: Document) -> dict[str, Document]:
    """Curves of the mixtures by name."""
    return {row["curve"]: row for row in document["mixture"]["rows"]}


def below(one: Document, other: Document) -> bool:
    """Whether the final regret is smaller by two standard errors of the difference."""
    return clearly_below(one["final"], one["error"], other["final"], other["error"])


def paired(one: Document, other: Document) -> tuple[float, float]:
    """(mean, standard error) of the difference of final regrets, run by run."""
    difference = (np.array(one["finals"]) - np.array(other["finals"])).ravel()
    return float(difference.mean()), standard_error(difference)


def batch_rows(document: Document, epsilon: float | None) -> list[Document]:
    """Curves of the linear MDPs with one budget, in the order of B."""
    return [row for row in document["lsvi"]["rows"] if row["epsilon"] == epsilon]


def claims(document: Document) -> list[dict[str, Any]]:
    """Every claim with its verdict and the numbers that decide it."""
    found = Claims()
    add = found.add
    _of_the_paper(document, add)
    mixture, rows = document["mixture"], mixture_rows(document)
    users, loses = int(mixture["users"][-1]), mixture["references"]["ours"]

    def finals(names: Sequence[str]) -> str:
        return ", ".join(f"{name} {number(rows[name]['final'])}" for name in names)

    for words in PRINTED:
        difference = mixture["differences"][words]
        claim = f"{words.format('')}, uses its data: ε = 1 and ε = 10 differ by {_SAME:.0%} in some run"
        add(claim, difference > _SAME, f"at most {difference:.2%}")
        row = rows[words.format(" 10")]
        half = row["half"] / (users / 2)
        claim = f"{words.format(' 10')}, learns: its last slope is below half of its loss in the first half"
        add(claim, row["slope"] < half / 2, f"{row['slope']:.3f} against {half:.3f}")
    ordered = ("none", "JDP 10", "JDP 1")
    add(
        "ours: regret none < JDP 10 < JDP 1, each by two standard errors",
        all(below(rows[a], rows[b]) for a, b in itertools.pairwise(ordered)),
        finals(ordered),
    )
    ordered = ("JDP 10", "LDP 10", "LDP 1")
    add(
        "ours: JDP 10 < LDP 10 < LDP 1, each by two standard errors",
        all(below(rows[a], rows[b]) for a, b in itertools.pairwise(ordered)),
        finals(ordered),
    )
    for name in ("JDP 10", "JDP 10, tree", "JDP 1", "JDP 1, tree", "LDP 10", "LDP 1"):
        most = min(loses.values()) * users
        add(
            f"ours, {name}: below every policy that needs no data", rows[name]["final"] < most,
            f"{number(rows[name]['final'])} against {number(most)}",
        )  # fmt: skip
    for row in mixture["rows"]:
        if row["group"] == "ours":
            add(
                f"ours, {row['curve']}: fitted growth at most the theory's", row["exponent"] <= row["theory"],
                f"{row['exponent']:.2f} against {row['theory']:g}",
            )  # fmt: skip
    mean, error = paired(rows["none, VTR+"], rows["none"])
    add(
        "VTR+ is better than VTR, none (two standard errors of the paired difference)",
        mean < -2 * error, f"{mean:+.1f} ± {error:.1f}",
    )  # fmt: skip
    for epsilon in (None, 10.0, 1.0):
        found_rows = batch_rows(document, epsilon)
        said = ", ".join(number(row["final"]) for row in found_rows)
        if epsilon is None:
            falls = all(below(b, a) for a, b in itertools.pairwise(found_rows))
            add("LSVI without privacy: more batches help, each time", falls, said)
        else:
            few, many = min(found_rows, key=lambda row: row["final"]), found_rows[-1]
            claim = f"LSVI, JDP {epsilon:g}: more batches hurt (most batches against the best number)"
            add(claim, below(few, many), said)
    return found.found


def _of_the_paper(document: Document, add: Any) -> None:
    rows = mixture_rows(document)
    for trust, source in (("JDP", "Corollary 5"), ("LDP", "Corollary 6")):
        printed = [rows[f"{trust} {stated}, as printed"] for stated in (10, 1)]
        true = [float(row["epsilon_true"]) for row in printed]
        add(
            f"UCRL-VTR with the noise as printed is (ε, δ)-{trust}", true[0] <= 10 and true[1] <= 1,
            f"stated 10, true {true[0]:.3g}; stated 1, true {true[1]:.3g} (the paper: for ε below 1)",
            source,
        )  # fmt: skip
        add(
            f"its regret grows as K^{printed[1]['theory']:g} under {trust}", OPEN,
            f"an upper bound whose constants Õ hides; fitted growth as printed "
            f"{printed[0]['exponent']:.2f}: the asymptotics have not begun", source,
        )  # fmt: skip
    for name in ("JDP 10", "JDP 1"):
        mean, error = paired(rows[f"{name}, VTR+"], rows[name])
        add(
            f"under privacy the variance-aware form brings no advantage in the main term, {name}",
            mean > -2 * error, f"our defaults: regret of VTR+ less that of VTR {mean:+.1f} ± {error:.1f}",
            "section 3, Remark 6",
        )  # fmt: skip
    best = {e: min(batch_rows(document, e), key=lambda row: row["final"]) for e in (None, 10.0, 1.0)}
    for epsilon in (10.0, 1.0):
        add(
            f"LSVI-UCB's regret grows as K^0.6 with the best number of batches, {budget(epsilon)}", OPEN,
            f"fitted growth {best[epsilon]['exponent']:.2f} at B = {best[epsilon]['batches']}: in keeping "
            "with an upper bound, and no proof of it", "Theorem 8",
        )  # fmt: skip
    order = [best[e]["batches"] for e in (1.0, 10.0, None)]
    add(
        "the smaller ε, the fewer batches are best (B grows as (K ε)^(2/5))", order[0] < order[1] < order[2],
        ", ".join(f"{budget(e)} B = {row['batches']}" for e, row in best.items()), "Remark 3",
    )  # fmt: skip


# ---------------------------------------------------------------------------------------- tables
def mixture_table(document: Document, groups: Sequence[str]) -> Table:
    """A line a curve, the policies without data last."""
    mixture = document["mixture"]
    users = int(mixture["users"][-1])
    lines = [(
        "", "true ε", "seeds", f"R({users // 2:,})", f"R({users:,})", "last slope",
        "growth (by instance)", "theory",
    )]  # fmt: skip
    for row in mixture["rows"]:
        if row["group"] in groups:
            true = "—" if row["epsilon_true"] is None else f"{row['epsilon_true']:.3g}"
            spread = f"{min(row['exponents']):.2f} to {max(row['exponents']):.2f}"
            lines.append((
                row["curve"], true, str(row["seeds"]), number(row["half"]),
                plus(row["final"], row["error"], 0), f"{row['slope']:.3f}",
                f"{row['exponent']:.2f} ({spread})", f"{row['theory']:g}",
            ))  # fmt: skip
    losses = mixture["references"][groups[0]]
    halves, wholes = reference_lines(losses, users / 2), reference_lines(losses, users, plain=True)
    for half, whole, loss in zip(halves, wholes, losses.values(), strict=True):
        lines.append((half[0], "no data", "—", half[1], whole[1], f"{loss:.3f}", "1", ""))
    return lines


def lsvi_table(document: Document) -> Table:
    """A line a budget: R(K) with the fitted growth, by B."""
    lsvi = document["lsvi"]
    users = int(lsvi["users"][-1])
    lines = [(f"R({users:,}) [growth]", *(f"B = {b}" for b in lsvi["batches"]), "theory, best B")]
    for epsilon in (None, 10.0, 1.0):
        found = batch_rows(document, epsilon)
        cells = [f"{plus(row['final'], row['error'], 0)} [{row['exponent']:.2f}]" for row in found]
        theory = "—" if found[0]["theory"] is None else f"{found[0]['theory']:g}"
        lines.append((budget(epsilon), *cells, theory))
    every = [users] * len(lsvi["batches"])
    return [*lines, *((*line, "1") for line in reference_lines(lsvi["references"], *every, plain=True))]


def summary(document: Document) -> list[tuple[str, Table]]:
    """What a terminal shows."""
    return [
        ("UCRL-VTR, as printed", mixture_table(document, ("printed",))),
        ("UCRL-VTR and UCRL-VTR+, our defaults", mixture_table(document, ("ours", "plus"))),
        ("LSVI-UCB, model form, by batches", lsvi_table(document)),
        ("The paper's claims", claims_table(papers(document["claims"]))),
        ("Claims about what was measured", claims_table(papers(document["claims"], ours=True))),
    ]


# ---------------------------------------------------------------------------------------- figure
def figure(document: Document) -> Any:
    """Regret against users, as printed and ours, and final regret against the number of batches."""
    mixture, lsvi = document["mixture"], document["lsvi"]
    drawn = style.new_figure(11.0, 4.8)
    panels = drawn.subplots(1, 3)
    shades = dict(zip(lsvi["references"], ("-", "--", ":"), strict=True))
    titles = ("UCRL-VTR as printed (± 2 standard errors)", "our defaults, true ε")
    for axes, groups, title in zip(panels, (("printed",), ("ours", "plus")), titles, strict=False):
        chosen = [row for row in mixture["rows"] if row["group"] in groups]
        for i, row in enumerate(chosen):
            colour, line = style.look(i)
            width = 2.6 - 1.8 * i / len(chosen)  # curves that lie on each other are all seen
            axes.plot(
                mixture["users"], row["mean"], color=colour, linestyle=line, linewidth=width,
                label=row["curve"],
            )  # fmt: skip
            bars = style.error_bars(row["mean"][-1], 2 * row["error"], True)[:, None]
            axes.errorbar(mixture["users"][-1:], row["mean"][-1:], bars, color=colour, capsize=2)
        for name, loss in mixture["references"][groups[0]].items():
            at = np.array(mixture["users"])
            axes.plot(at, loss * at, color="0.3", linestyle=shades[name], linewidth=0.8, label=name)
        tidy(axes, "xy", title, x="users k", y="cumulative regret")
    axes = panels[2]
    for i, epsilon in enumerate((None, 10.0, 1.0)):
        found, (colour, line) = batch_rows(document, epsilon), style.look(i)
        finals = [row["final"] for row in found]
        axes.errorbar(
            lsvi["batches"], finals, style.error_bars(finals, [2 * row["error"] for row in found], True),
            color=colour, linestyle=line, marker="o", markersize=3.5, capsize=2, label=budget(epsilon),
        )  # fmt: skip
    for name, loss in lsvi["references"].items():
        most = loss * lsvi["users"][-1]
        axes.axhline(most, color="0.3", linestyle=shades[name], linewidth=0.8, label=name)
    words = f"regret of {int(lsvi['users'][-1])} users"
    tidy(axes, "xy", "LSVI-UCB, model form (± 2 standard errors)", x="batches B", y=words)
    axes.set_xticks(lsvi["batches"], [str(b) for b in lsvi["batches"]])
    axes.minorticks_off()
    for axes in panels:
        axes.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.14), fontsize=7, frameon=False, ncols=2,
        )  # fmt: skip
    return drawn


# ------------------------------------------------------------------------------------------ page
def page(document: Document) -> str:
    """The page of the documentation."""
    mixture, lsvi, found = document["mixture"], document["lsvi"], document["claims"]
    rows, users = mixture_rows(document), int(mixture["users"][-1])
    apart, loses = mixture["differences"], mixture["references"]["printed"]
    cost = {name: row["final"] / users for name, row in rows.items()}
    joint, greedy, local = (apart[words] for words in PRINTED)
    ignores = "So the printed algorithm ignores its data:"
    if max(joint, greedy) > _SAME:
        ignores = "The policies of no data beside it:"
    return filled(
        Path(__file__).with_name("page.md"),
        users=users, delta=power_of_ten(document["delta"]), instances=len(mixture["instances"]),
        paper_tally=tally(papers(found)), paper_claims=markdown(claims_table(papers(found))),
        our_tally=tally(papers(found, ours=True)),
        our_claims=markdown(claims_table(papers(found, ours=True))),
        printed_seeds=rows["JDP 1, as printed"]["seeds"], seeds=rows["JDP 1"]["seeds"],
        printed_table=markdown(mixture_table(document, ("printed",))),
        ours_table=markdown(mixture_table(document, ("ours", "plus"))),
        joint=joint, greedy=greedy, local=local, apart=1 + apart["JDP{}"],
        ignores=ignores,
        never=loses["never learning"], myopic=loses["myopic"], cost_joint=cost["JDP 10, as printed"],
        cost_greedy=cost["JDP 10, as printed, bonus 0"], cost_none=cost["none, as printed"],
        slope_none=rows["none, as printed"]["slope"], cost_local=cost["LDP 10, as printed"],
        worlds=lsvi["worlds"], lsvi_table=markdown(lsvi_table(document)),
        lsvi_myopic=lsvi["references"]["myopic"], lsvi_uniform=lsvi["references"]["uniform"],
        lsvi_least=min(row["final"] for row in lsvi["rows"]) / lsvi["users"][-1],
    )  # fmt: skip
