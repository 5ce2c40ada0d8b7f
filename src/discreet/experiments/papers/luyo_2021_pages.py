"""Luyo et al. 2021: what a reproduction's numbers say, as claims, tables, a figure and a page.

Everything here is a function of the document that ``reproduce`` writes; no number or verdict is typed in.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from discreet.experiments import plots
from discreet.experiments.papers.written import write_pages
from discreet.experiments.price_pages import markdown
from discreet.experiments.statistics import number

Document = Mapping[str, Any]
Table = Sequence[Sequence[str]]
NAME = "luyo-2021"
# Issue 5: (largest R(4000), largest last slope) of the specification's table 11.2; None: no slope is asked.
GOALS: Mapping[str, tuple[float, float | None]] = {
    "JDP 10": (135.0, 0.015), "JDP 1": (520.0, 0.06), "LDP 10": (540.0, None),
}  # fmt: skip
PRINTED = ("JDP{}, as printed", "JDP{}, as printed, bonus 0", "LDP{}, as printed")
_SAME = 0.05  # relative difference of every run's final regret up to which two settings count as one


def mixture_rows(document: Document) -> dict[str, Document]:
    """Curves of the mixtures by name."""
    return {row["curve"]: row for row in document["mixture"]["rows"]}


def clearly_below(one: Document, other: Document) -> bool:
    """Whether the final regret is smaller by two standard errors of the difference."""
    return bool(other["final"] - one["final"] > 2 * math.hypot(one["error"], other["error"]))


def paired(one: Document, other: Document) -> tuple[float, float]:
    """(mean, standard error) of the difference of final regrets, run by run."""
    difference = (np.array(one["finals"]) - np.array(other["finals"])).ravel()
    return float(difference.mean()), float(difference.std(ddof=1) / math.sqrt(difference.size))


def batch_rows(document: Document, epsilon: float | None) -> list[Document]:
    """Curves of the linear MDPs with one budget, in the order of B."""
    return [row for row in document["lsvi"]["rows"] if row["epsilon"] == epsilon]


def claims(document: Document) -> list[dict[str, Any]]:
    """Every claim with its verdict and the numbers that decide it."""
    found: list[dict[str, Any]] = []

    def add(claim: str, holds: bool, numbers: str) -> None:
        found.append({"claim": claim, "holds": bool(holds), "numbers": numbers})

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
        all(clearly_below(rows[a], rows[b]) for a, b in itertools.pairwise(ordered)),
        finals(ordered),
    )
    ordered = ("JDP 10", "LDP 10", "LDP 1")
    add(
        "ours: JDP 10 < LDP 10 < LDP 1, each by two standard errors",
        all(clearly_below(rows[a], rows[b]) for a, b in itertools.pairwise(ordered)),
        finals(ordered),
    )
    for name in ("JDP 10", "JDP 10, tree", "JDP 1", "JDP 1, tree", "LDP 10", "LDP 1"):
        most = min(loses.values()) * users
        add(
            f"ours, {name}: below every policy that needs no data", rows[name]["final"] < most,
            f"{number(rows[name]['final'])} against {number(most)}",
        )  # fmt: skip
    if not document["quick"]:
        for name, (most, steepest) in GOALS.items():
            for words in ("", ", tree") if name.startswith("JDP") else ("",):
                row = rows[name + words]
                asked = f"R ≤ {most:g}" + ("" if steepest is None else f", last slope ≤ {steepest:g}")
                add(
                    f"ours, {name}{words}: {asked}",
                    row["final"] <= most and (steepest is None or row["slope"] <= steepest),
                    f"{number(row['final'])}, slope {row['slope']:.3f}",
                )
    for row in mixture["rows"]:
        if row["group"] == "ours":
            add(
                f"ours, {row['curve']}: fitted growth at most the theory's", row["exponent"] <= row["theory"],
                f"{row['exponent']:.2f} against {row['theory']:g}",
            )  # fmt: skip
    for name in ("none", "JDP 10", "JDP 1"):
        mean, error = paired(rows[f"{name}, VTR+"], rows[name])
        add(
            f"VTR+ is better than VTR, {name} (two standard errors of the paired difference)",
            mean < -2 * error, f"{mean:+.1f} ± {error:.1f}",
        )  # fmt: skip
    best: dict[float | None, int] = {}
    for epsilon in (None, 10.0, 1.0):
        found_rows = batch_rows(document, epsilon)
        best[epsilon] = min(found_rows, key=lambda row: row["final"])["batches"]
        said = ", ".join(number(row["final"]) for row in found_rows)
        if epsilon is None:
            falls = all(clearly_below(b, a) for a, b in itertools.pairwise(found_rows))
            add("LSVI without privacy: more batches help, each time", falls, said)
        else:
            few, many = min(found_rows, key=lambda row: row["final"]), found_rows[-1]
            claim = f"LSVI, JDP {epsilon:g}: more batches hurt (most batches against the best number)"
            add(claim, clearly_below(few, many), said)
    add(
        "LSVI: the smaller ε, the fewer batches are best", best[1.0] < best[10.0] < best[None],
        ", ".join(f"{_budget(e)} B = {b}" for e, b in best.items()),
    )  # fmt: skip
    return found


def _budget(epsilon: float | None) -> str:
    return "no privacy" if epsilon is None else f"ε = {epsilon:g}"


# ---------------------------------------------------------------------------------------- tables
def claims_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """A line a claim."""
    lines = [("claim", "verdict", "numbers")]
    lines += [(one["claim"], "holds" if one["holds"] else "**fails**", one["numbers"]) for one in found]
    return lines


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
                f"{row['final']:,.0f} ± {row['error']:,.0f}", f"{row['slope']:.3f}",
                f"{row['exponent']:.2f} ({spread})", f"{row['theory']:g}",
            ))  # fmt: skip
    for name, loss in mixture["references"][groups[0]].items():
        half, all_ = number(loss * users / 2), f"{loss * users:,.0f}"
        lines.append((f"*{name}*", "no data", "—", half, all_, f"{loss:.3f}", "1", ""))
    return lines


def lsvi_table(document: Document) -> Table:
    """A line a budget: R(K) with the fitted growth, by B."""
    lsvi = document["lsvi"]
    users = int(lsvi["users"][-1])
    lines = [(f"R({users:,}) [growth]", *(f"B = {b}" for b in lsvi["batches"]), "theory, best B")]
    for epsilon in (None, 10.0, 1.0):
        found = batch_rows(document, epsilon)
        cells = [f"{row['final']:,.0f} ± {row['error']:,.0f} [{row['exponent']:.2f}]" for row in found]
        theory = "—" if found[0]["theory"] is None else f"{found[0]['theory']:g}"
        lines.append((_budget(epsilon), *cells, theory))
    for name, loss in lsvi["references"].items():
        lines.append((f"*{name}*", *(f"{loss * users:,.0f}" for _ in lsvi["batches"]), "1"))
    return lines


def summary(document: Document) -> list[tuple[str, Table]]:
    """What a terminal shows."""
    return [
        ("UCRL-VTR, as printed", mixture_table(document, ("printed",))),
        ("UCRL-VTR and UCRL-VTR+, our defaults", mixture_table(document, ("ours", "plus"))),
        ("LSVI-UCB, model form, by batches", lsvi_table(document)),
        ("Claims", claims_table(document["claims"])),
    ]


# ---------------------------------------------------------------------------------------- figure
def figure(document: Document) -> Any:
    """Regret against users, as printed and ours, and final regret against the number of batches."""
    mixture, lsvi = document["mixture"], document["lsvi"]
    drawn = plots.new_figure(11.0, 4.8)
    panels = drawn.subplots(1, 3)
    shades = dict(zip(lsvi["references"], ("-", "--", ":"), strict=True))
    titles = ("UCRL-VTR as printed", "our defaults, true ε")
    for axes, groups, title in zip(panels, (("printed",), ("ours", "plus")), titles, strict=False):
        chosen = [row for row in mixture["rows"] if row["group"] in groups]
        for i, row in enumerate(chosen):
            colour, line = plots.look(i)
            width = 2.6 - 1.8 * i / len(chosen)  # curves that lie on each other are all seen
            axes.plot(
                mixture["users"], row["mean"], color=colour, linestyle=line, linewidth=width,
                label=row["curve"],
            )  # fmt: skip
        for name, loss in mixture["references"][groups[0]].items():
            at = np.array(mixture["users"])
            axes.plot(at, loss * at, color="0.3", linestyle=shades[name], linewidth=0.8, label=name)
        axes.set_xlabel("users k")
        axes.set_ylabel("cumulative regret")
        axes.set_xscale("log")
        axes.set_title(title, fontsize=9, loc="left")
    axes = panels[2]
    for i, epsilon in enumerate((None, 10.0, 1.0)):
        found, (colour, line) = batch_rows(document, epsilon), plots.look(i)
        axes.errorbar(
            lsvi["batches"], [row["final"] for row in found], [2 * row["error"] for row in found],
            color=colour, linestyle=line, marker="o", markersize=3.5, capsize=2, label=_budget(epsilon),
        )  # fmt: skip
    for name, loss in lsvi["references"].items():
        most = loss * lsvi["users"][-1]
        axes.axhline(most, color="0.3", linestyle=shades[name], linewidth=0.8, label=name)
    axes.set_xscale("log")
    axes.set_xticks(lsvi["batches"], [str(b) for b in lsvi["batches"]])
    axes.minorticks_off()
    axes.set_xlabel("batches B")
    axes.set_ylabel(f"regret of {int(lsvi['users'][-1])} users")
    axes.set_title("LSVI-UCB, model form (± 2 standard errors)", fontsize=9, loc="left")
    for axes in panels:
        axes.set_yscale("log")
        axes.grid(True, color="0.9", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.14), fontsize=7, frameon=False, ncols=2,
        )  # fmt: skip
    return drawn


# ------------------------------------------------------------------------------------------ page
_HEAD = """\
# Luyo et al. 2021: private exploration with linear representations

*Differentially Private Exploration in Reinforcement Learning with Linear Representation*, [arXiv
2112.01585](https://arxiv.org/abs/2112.01585): UCRL-VTR and UCRL-VTR+ on linear mixtures (JDP, LDP) and
batched LSVI-UCB on linear MDPs (JDP). The paper's results are regret bounds; here
the algorithms are run.

```
discreet reproduce {name} --out results/{name}
```

writes this page, its figure and every number on it (`{name}.json`; finished curves are kept under `data`,
so that a run that was stopped goes on; about five minutes of one core). K = {users:,}, δ = {delta}. Noise is
drawn from seeds: simulation."""
_REFERENCES = """\
Three policies need no data, and stand in every table and panel: uniformly random play; *myopic*, the
largest mean reward of the moment (it knows the rewards, as UCRL-VTR does here, and LSVI-UCB does not);
*never learning*, what the learner plays before the first user. A private
learner that does not beat them has learned nothing that they do not know."""
_MEASURES = """\
*Last slope*: regret per user over the last eighth. *Growth*: slope of log R(k) against log k over the
second half of a run, of the mean over all runs, and its range over instances. The theory's exponent is that
of the bound on R(K), for learners told their K, over all worlds: a smaller fitted one contradicts nothing,
a larger one says that the asymptotics have not begun."""
_PRINTED = """\
## As printed

`UCRLVTR(preset="paper")` with `calibration="published"`: raw targets, the paper's noise, ridge, bonus and a
plan for every user; *bonus 0* is the same without its bonus. {instances} instances of `linear-mixture` (S =
8, A = 4, H = 5, d = 5), {seeds} seeds each, fewer than below since each run plans for every user. *True ε*
is what the noise that was drawn guarantees."""
_OURS = """\
## Our defaults, at a true ε

Span targets, geometric schedule, exact accounting; {seeds} seeds on each of the same instances. The plain
rows have `release="auto"`, noise correlated over releases, in floating point; *tree* is what exact noise
(`Secure()`) allows. The bonus is scaled down: no theorem covers these settings, and privacy does not depend
on them."""
_LSVI = """\
## Batches

`LSVIUCB(response="model")` on {worlds} random linear MDPs (S = 6, A = 3, H = 4, d = 4; one run each), equal
batches, every batch a sum with noise of its own (`release="batches"`), rewards unknown. The paper's bound
K^(3/5) is for B chosen by K and ε; for a fixed B no sublinear bound exists."""


def _said(words: str, **values: Any) -> str:
    """A template with its values, paragraphs wrapped anew."""
    parts = words.format(**values).split("\n\n")
    wrapped = [
        part if part.startswith(("#", "```")) else textwrap.fill(part, 115, break_on_hyphens=False)
        for part in parts
    ]
    return "\n\n".join(wrapped)


def _printed_words(document: Document) -> str:
    mixture, rows = document["mixture"], mixture_rows(document)
    users, apart = int(mixture["users"][-1]), mixture["differences"]
    loses = mixture["references"]["printed"]
    cost = {name: row["final"] / users for name, row in rows.items()}
    joint, greedy, local = (apart[words] for words in PRINTED)
    same = max(joint, greedy) <= _SAME
    return (
        f"Between ε = 1 and ε = 10 no run of the printed JDP changes its final regret by more than "
        f"{joint:.1%} ({greedy:.1%} without the bonus); of ours the "
        f"regret at ε = 1 is up to {1 + apart['JDP{}']:.1f} times that at ε = 10. "
        + ("So the printed algorithm ignores its data: " if same else "The policies of no data beside it: ")
        + f"a user costs {cost['JDP 10, as printed']:.3f}, under the policy of before the first user "
        f"{loses['never learning']:.3f}; without the bonus {cost['JDP 10, as printed, bonus 0']:.3f}, under "
        f"the myopic policy {loses['myopic']:.3f}. Its noise is so large that the ridge that makes up for "
        "it drowns the data. Privacy is not all of it: with the printed bonus and no noise a user costs "
        f"{cost['none, as printed']:.3f}, {rows['none, as printed']['slope']:.3f} in the last eighth. LDP as "
        f"printed costs {cost['LDP 10, as printed']:.3f} at a stated ε = 10, and no run's "
        f"regret at ε = 1 differs by more than {local:.1%}."
    )


def _lsvi_words(document: Document) -> str:
    loss, last = document["lsvi"]["references"], document["lsvi"]["users"][-1]
    least = min(row["final"] for row in document["lsvi"]["rows"]) / last
    return (
        f"The myopic policy, which knows the rewards, loses only {loss['myopic']:.3f} a user in these "
        f"worlds, the best of the learners, which must find them out, {least:.3f}; uniform "
        f"play {loss['uniform']:.3f}."
    )


def page(document: Document) -> str:
    """The page of the documentation."""
    mixture, lsvi, found = document["mixture"], document["lsvi"], document["claims"]
    rows, holds = mixture_rows(document), sum(one["holds"] for one in found)
    delta = f"{document['delta']:.0e}".replace("e-0", "e-")
    parts = [
        _said(_HEAD, name=NAME, users=int(mixture["users"][-1]), delta=delta),
        _said(_REFERENCES),
        _said(_MEASURES),
        "## What holds",
        f"{holds} of {len(found)} claims hold; each verdict is computed from the tables below.",
        markdown(claims_table(found)),
        f"![Regret as printed, ours, and by batches](../figures/{NAME}.png)",
        _said(
            _PRINTED, instances=len(mixture["instances"]), seeds=rows["JDP 1, as printed"]["seeds"],
        ),
        markdown(mixture_table(document, ("printed",))),
        textwrap.fill(_printed_words(document), 115, break_on_hyphens=False),
        _said(_OURS, seeds=rows["JDP 1"]["seeds"]),
        markdown(mixture_table(document, ("ours", "plus"))),
        _said(_LSVI, worlds=lsvi["worlds"]),
        markdown(lsvi_table(document)),
        textwrap.fill(_lsvi_words(document), 115, break_on_hyphens=False),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def write(document: Document, out: Path) -> list[Path]:
    """The page and its figure."""
    return write_pages(page(document), {NAME: figure(document)}, out, NAME)
