"""Bai et al. 2024: what a reproduction's numbers say, as claims, tables, a figure and a page.

Everything here is a function of the document that ``reproduce`` writes; no number or verdict is typed in. A
verdict is one of :data:`HOLDS`, :data:`FAILS` and :data:`OPEN`: a claim holds or fails if the number that
decides it is two standard errors (for ratios: a 95 % interval) on one side of its limit.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.experiments import plots, statistics
from discreet.experiments.papers.bai_2024 import (
    BATCHES,
    BY_EPSILON,
    CENTRAL,
    CHAIN,
    LOCAL,
    NONE,
    PRIVACY,
    PUBLISHED,
    SHUFFLE,
    SMALL,
    spread,
)
from discreet.experiments.papers.written import write_pages
from discreet.experiments.price_pages import markdown
from discreet.experiments.statistics import number

Document = Mapping[str, Any]
Row = Mapping[str, Any]
Table = Sequence[Sequence[str]]
NAME = "bai-2024"
HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot be told at this size"
STUDIES = (
    (SMALL, "sdp-pe"), (SMALL, "sdp-pe-om"), (SMALL, "noise-aware"), (CHAIN, "sdp-pe-om"),
    (CHAIN, "noise-aware"),
)  # fmt: skip
_LEARNED = 0.5  # share of uniform play's regret above which a learner counts as one that has not begun
_WITHIN = 1.1
_STUCK = 0.9  # share of uniform play's regret over that at the K before, above which runs are stuck


class Measured(NamedTuple):
    """A number with its standard error; ``why`` is given where there is none."""

    value: float
    error: float
    why: str = ""

    def __str__(self) -> str:
        return self.why or f"{self.value:.2f} ± {self.error:.2f}"


def below(found: Measured, limit: float) -> str:
    """Whether a number is below a limit, by two standard errors."""
    if found.why:
        return OPEN
    if found.value + 2 * found.error < limit:
        return HOLDS
    return FAILS if found.value - 2 * found.error > limit else OPEN


# --------------------------------------------------------------------------------------- numbers
def select(document: Document, study: tuple[str, str], privacy: str | None = None) -> list[Row]:
    """Lines of a study (scenario, learner), of one privatizer, ascending in K, then epsilon."""
    found = [
        row
        for row in document["rows"]
        if (row["scenario"], row["learner"]) == study and privacy in (None, row["privacy"])
    ]
    return sorted(found, key=lambda row: (row["users"], row["epsilon"] or 0.0))


def against_users(document: Document, study: tuple[str, str], privacy: str) -> list[Row]:
    """Lines at the common epsilon, ascending in K."""
    return [row for row in select(document, study, privacy) if row["epsilon"] in (None, document["epsilon"])]


def against_epsilon(document: Document, study: tuple[str, str], privacy: str) -> list[Row]:
    """Lines at the number of users at which epsilon is varied."""
    return [row for row in select(document, study, privacy) if row["users"] == document["swept"]]


def _finals(row: Row) -> NDArray[np.float64]:
    return np.array(row["finals"], np.float64)


def cost(document: Document, row: Row) -> Measured:
    """What privacy costs: regret less that of the same learner without privacy, run by run."""
    study = (row["scenario"], row["learner"])
    free = next(one for one in select(document, study, NONE) if one["users"] == row["users"])
    return Measured(*spread(_finals(row) - _finals(free)))


def growth(document: Document, study: tuple[str, str], privacy: str) -> Measured:
    """Exponent of the cost of privacy in K, over the two largest K."""
    rows = against_users(document, study, privacy)[-2:]
    if len(rows) < 2:
        return Measured(0.0, 0.0, "one K alone")
    if (most := max(row["share"] for row in rows)) > _LEARNED:
        return Measured(0.0, 0.0, f"not learned yet at both K: {most:.0%} of uniform play")
    return _slope([cost(document, row) for row in rows], [float(row["users"]) for row in rows])


def regret_growth(document: Document, study: tuple[str, str], privacy: str) -> Measured:
    """Exponent of the regret itself in K, over the two largest K."""
    rows = against_users(document, study, privacy)[-2:]
    if len(rows) < 2:
        return Measured(0.0, 0.0, "one K alone")
    found = [Measured(row["mean"], row["error"]) for row in rows]
    return _slope(found, [float(row["users"]) for row in rows])


def _slope(found: Sequence[Measured], at: Sequence[float]) -> Measured:
    """Weighted least squares of log value on log ``at``; errors by the delta method."""
    if any(one.value <= 2 * one.error for one in found):
        return Measured(0.0, 0.0, "within its error")
    if len(found) < 2:
        return Measured(0.0, 0.0, "too few points")
    x, y = np.log(np.array(at)), np.log([one.value for one in found])
    weight = 1.0 / np.maximum([one.error / one.value for one in found], 1e-6) ** 2
    x = x - (weight @ x) / weight.sum()
    slope, scale = float((weight * x) @ y / ((weight * x) @ x)), float((weight * x) @ x)
    return Measured(slope, 1.0 / math.sqrt(scale))


def epsilon_growth(document: Document, study: tuple[str, str], privacy: str) -> Measured:
    """Exponent of the cost in 1 / epsilon, over the epsilons at which the learner learns."""
    rows = [row for row in against_epsilon(document, study, privacy) if row["share"] <= _LEARNED]
    clear = [(row, cost(document, row)) for row in rows]
    clear = [(row, one) for row, one in clear if one.value > 2 * one.error]
    if len(clear) < 2:
        return Measured(0.0, 0.0, "fewer than two ε at which it learns at a clear cost")
    return _slope([one for _, one in clear], [1.0 / row["epsilon"] for row, _ in clear])


def relative(document: Document, study: tuple[str, str], privacy: str) -> Measured:
    """Logarithm of (R / R without privacy at the largest K) over (the same at the K before)."""
    rows, free = (against_users(document, study, p)[-2:] for p in (privacy, NONE))
    if len(rows) < 2:
        return Measured(0.0, 0.0, "one K alone")
    if (most := max(row["share"] for row in rows)) > _LEARNED:
        return Measured(0.0, 0.0, f"not learned yet at both K: {most:.0%} of uniform play")
    logs = [math.log(row["mean"] / one["mean"]) for row, one in zip(rows, free, strict=True)]
    errors = [row["error"] / row["mean"] for row in (*rows, *free)]
    return Measured(logs[1] - logs[0], math.sqrt(sum(e * e for e in errors)))


def ratio(row: Row, other: Row) -> statistics.Interval:
    """Ratio of mean regrets, with its interval."""
    return statistics.ratio_interval(_finals(row).ravel(), _finals(other).ravel())


def _said_ratio(found: statistics.Interval) -> str:
    interval = "" if found.low is None else f" [{found.low:.2f}, {found.high:.2f}]"
    return f"{found.estimate:.2f}{interval}"


# ----------------------------------------------------------------------------------------- claims
def claims(document: Document) -> list[dict[str, str]]:
    """Every claim with its verdict and the numbers that decide it."""
    found: list[dict[str, str]] = []

    def add(claim: str, verdict: str, numbers: str) -> None:
        found.append({"claim": claim, "verdict": verdict, "numbers": numbers})

    for study in STUDIES:
        grows = regret_growth(document, study, SHUFFLE)
        add(
            f"{title(study)}: regret under shuffle privacy grows slower than K (no regret)",
            below(grows, 1.0), f"exponent {grows}",
        )  # fmt: skip
    for study in STUDIES:
        _additive(document, study, add)
    for study in STUDIES:
        _beside(document, study, add)
    _kept(document, add)
    _calibration(document, add)
    return found


def title(study: tuple[str, str]) -> str:
    """A study in words."""
    return f"{study[1]}, {'small MDPs' if study[0] == SMALL else 'RiverSwim'}"


def _additive(document: Document, study: tuple[str, str], add: Any) -> None:
    mine, others = growth(document, study, SHUFFLE), growth(document, study, LOCAL)
    add(
        f"{title(study)}: the cost of shuffle privacy grows slower than √K (an additive term)",
        below(mine, 0.5), f"exponent {mine}",
    )  # fmt: skip
    falls = relative(document, study, SHUFFLE)
    rows, free = (against_users(document, study, p) for p in (SHUFFLE, NONE))
    said = ", ".join(number(row["mean"] / one["mean"]) for row, one in zip(rows, free, strict=True))
    add(
        f"{title(study)}: regret under shuffle over that without privacy falls with K (not a factor)",
        below(falls, 0.0), falls.why or f"{said}; last change of its logarithm {falls}",
    )  # fmt: skip
    apart = Measured(mine.value - others.value, math.hypot(mine.error, others.error), mine.why or others.why)
    add(
        f"{title(study)}: the cost grows slower in K under shuffle than under local privacy",
        below(apart, 0.0), f"shuffle: {mine}; local: {others}",
    )  # fmt: skip
    found = epsilon_growth(document, study, SHUFFLE)
    most = Measured(found.value, 0.0, found.why)
    verdict = OPEN if most.why else FAILS if found.value - 2 * found.error > 1.0 else HOLDS
    add(
        f"{title(study)}: the cost of shuffle privacy grows at most as 1 / ε (not refuted at two errors)",
        verdict, f"exponent {found}",
    )  # fmt: skip


def _beside(document: Document, study: tuple[str, str], add: Any) -> None:
    last = {p: rows[-1] for p in PRIVACY if (rows := against_users(document, study, p))}  # at the largest K
    mine, users = last[SHUFFLE], f"K = {last[SHUFFLE]['users']:,}"
    for privacy, words in ((BATCHES, "a trusted server's batches"), (CENTRAL, "a trusted server's best")):
        if privacy in last:
            found = ratio(mine, last[privacy])
            verdict = OPEN
            if found.low is not None and found.high is not None and mine["share"] <= _LEARNED:
                verdict = HOLDS if found.high <= _WITHIN else FAILS if found.low > _WITHIN else OPEN
            add(
                f"{title(study)}: shuffle is at most 10 % above {words}, {users}",
                verdict, f"ratio {_said_ratio(found)}",
            )  # fmt: skip
    for privacy, words in ((LOCAL, "local privacy"), (PUBLISHED, "the published calibration")):
        if privacy in last:
            found = ratio(mine, last[privacy])
            verdict = OPEN
            if found.low is not None and found.high is not None:
                verdict = HOLDS if found.high < 1.0 else FAILS if found.low > 1.0 else OPEN
            add(f"{title(study)}: shuffle (joint) is better than {words}, {users}", verdict,
                f"ratio {_said_ratio(found)}")  # fmt: skip
    least = min(document["references"][study[0]].values()) * mine["users"]
    add(
        f"{title(study)}: shuffle is below every policy that needs no data, {users}",
        below(Measured(mine["mean"], mine["error"]), least),
        f"{number(mine['mean'])} against {number(least)}",
    )  # fmt: skip


def _kept(document: Document, add: Any) -> None:
    every = max(row["left"] for row in document["proven"])  # nothing is removed before the noise allows it
    for privacy in dict.fromkeys(row["privacy"] for row in document["proven"]):
        rows = [r for r in document["proven"] if r["privacy"] == privacy and r["learner"] == "sdp-pe, theory"]
        if rows:
            _keeps(f"sdp-pe, bounds that hold, {privacy}", rows, every, add)
    tuned = [r for r in document["rows"] if r["learner"] == "sdp-pe"]
    for privacy in dict.fromkeys(row["privacy"] for row in tuned):
        rows = [row for row in tuned if row["privacy"] == privacy]
        _keeps(f"sdp-pe, tuned widths, {privacy}", rows, every, add)
    for row in document["proven"]:
        if row["learner"] == "sdp-pe, paper":
            add(
                f"sdp-pe as printed (C = 1), {row['privacy']}: removes a policy, K = {row['users']:,}",
                HOLDS if row["left"] < every else FAILS, f"{row['left']:.1f} of {every:.0f} left",
            )  # fmt: skip


def _keeps(words: str, rows: Sequence[Row], every: float, add: Any) -> None:
    optimal, runs = (sum(row["optimal"][i] for row in rows) for i in (0, 1))
    left = ", ".join(
        f"{row['left']:.1f}" for row in sorted(rows, key=lambda r: (r["epsilon"] or 0.0, r["users"]))
    )
    verdict = FAILS if optimal < runs else HOLDS if min(row["left"] for row in rows) < every else OPEN
    add(
        f"{words}: an optimal policy is left in every run (and others are not)", verdict,
        f"{optimal} of {runs} runs; left of {every:.0f}: {left}",
    )  # fmt: skip


def _calibration(document: Document, add: Any) -> None:
    def find(protocol: str) -> list[Row]:
        return [row for row in document["noise"] if row["protocol"].startswith(protocol)]

    published, joint, trusted = (
        find(p) for p in ("published", "joint, transitions alone", "trusted, transitions alone")
    )
    stated = document["epsilon"]
    true = max(row["true"] for row in published)
    add(
        "the published calibration buys its stated ε (with single bits; as integers it is not private)",
        HOLDS if abs(true - stated) < 0.01 * stated else FAILS,
        f"stated {stated:g}, true {true:.2g}",
    )
    both = list(zip(joint, trusted, strict=True))
    add(
        "noise of a counter under shuffle (joint, transitions alone): within 2 % of a trusted server's",
        HOLDS if all(a["std"] <= 1.02 * b["std"] for a, b in both) else FAILS,
        "; ".join(f"n = {a['users']:,}: {a['std']:.1f} and {b['std']:.1f}" for a, b in both),
    )
    full, local = find("joint, and centred rewards, equal"), find("local")
    add(
        "the published noise is more than that of the joint calibration, all families",
        HOLDS if all(a["std"] > b["std"] for a, b in zip(published, full, strict=True)) else FAILS,
        "; ".join(f"{a['std'] / b['std']:.0f} times" for a, b in zip(published, full, strict=True)),
    )
    add(
        "local privacy's noise grows with n, shuffle's does not",
        OPEN if len(local) < 2
        else HOLDS if local[-1]["std"] > 2 * local[0]["std"] and joint[-1]["std"] < 1.1 * joint[0]["std"]
        else FAILS,
        "; ".join(f"n = {a['users']:,}: {number(a['std'])} and {b['std']:.1f}"
                  for a, b in zip(local, joint, strict=True)),
    )  # fmt: skip


# ---------------------------------------------------------------------------------------- tables
def claims_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """A line a claim."""
    lines = [("claim", "verdict", "numbers")]
    for one in found:
        verdict = one["verdict"] if one["verdict"] == HOLDS else f"**{one['verdict']}**"
        lines.append((one["claim"], verdict, one["numbers"]))
    return lines


def _cell(row: Row) -> str:
    return f"{number(row['mean'])} ± {number(row['error'])} ({100 * row['share']:.3g} %)"


def _true(row: Row) -> str:
    """The true epsilon where it is clearly below the stated one."""
    clearly = row["epsilon_true"] < 0.95 * row["epsilon"]
    return f", true ε {row['epsilon_true']:.2g}" if clearly else ""


def users_table(document: Document, study: tuple[str, str]) -> Table:
    """A line a privatizer: regret by K, growth of the cost; policies without data last."""
    every = [row["users"] for row in against_users(document, study, NONE)]
    lines = [("", "true ε", *(f"R({k:,})" for k in every), "growth of R in K", "of the cost")]
    studies = [study, (study[0], "apeve")] if study[1] == "sdp-pe" else [study]
    for one in studies:
        for privacy in PRIVACY:
            if rows := against_users(document, one, privacy):
                true = [row["epsilon_true"] for row in rows]
                said = "—" if true[0] is None else f"{max(true):.3g}"
                name = privacy if one == study else f"{one[1]}, {privacy}"
                grows = "—" if privacy == NONE else str(growth(document, one, privacy))
                own = str(regret_growth(document, one, privacy))
                lines.append((name, said, *(_cell(row) for row in rows), own, grows))
    for name, loss in document["references"][study[0]].items():
        lines.append((f"*{name}*", "no data", *(number(loss * k) for k in every), "1", "—"))
    return lines


def epsilon_table(document: Document) -> Table:
    """A line a study and privatizer: regret by epsilon."""
    rows = [row for study in STUDIES for row in against_epsilon(document, study, SHUFFLE)]
    every = sorted({row["epsilon"] for row in rows})
    lines = [(
        f"R({document['swept']:,})", "", *(f"ε = {e:g}" for e in every), "no privacy",
        "growth of the cost in 1 / ε",
    )]  # fmt: skip
    for study in STUDIES:
        free = against_epsilon(document, study, NONE)
        for privacy in BY_EPSILON:
            cells = {
                row["epsilon"]: _cell(row) + _true(row) for row in against_epsilon(document, study, privacy)
            }
            lines.append((
                title(study), privacy, *(cells.get(e, "") for e in every), _cell(free[0]) if free else "",
                str(epsilon_growth(document, study, privacy)),
            ))  # fmt: skip
        for name, loss in document["references"][study[0]].items():
            flat = number(loss * document["swept"])
            lines.append((title(study), f"*{name}*", *(flat for _ in every), flat, "—"))
    return lines


def policies_table(document: Document) -> Table:
    """What is left of the listed policies."""
    lines = [
        ("sdp-pe", "privacy", "ε", "K", "runs", "optimal policy left", "policies left", "largest gap left")
    ]
    for row in (*document["proven"], *(r for r in document["rows"] if r["left"] is not None)):
        words = {"sdp-pe, theory": "bounds that hold", "sdp-pe, paper": "as printed"}
        kept, runs = row["optimal"]
        epsilon = "—" if row["epsilon"] is None else f"{row['epsilon']:g}"
        lines.append((
            words.get(row["learner"], f"{row['learner']}, tuned"), row["privacy"], epsilon,
            f"{row['users']:,}", str(runs), str(kept), f"{row['left']:.1f}", f"{row['worst']:.3f}",
        ))  # fmt: skip
    return lines


def noise_lines(document: Document) -> Table:
    """Protocols down, sizes across: standard deviation of a transition count, and of a reward."""
    sizes = list(dict.fromkeys(row["users"] for row in document["noise"]))
    lines: list[tuple[str, ...]] = [("protocol", *(f"n = {n:,}" for n in sizes), "true ε")]
    for name in dict.fromkeys(row["protocol"] for row in document["noise"]):
        cells, rows = [], [row for row in document["noise"] if row["protocol"] == name]
        for row in rows:
            words = f"{row['std']:,.1f}"
            words += f" (rewards {row['rewards']:,.1f})" if row["rewards"] is not None else ""
            cells.append(words + (f", {row['flips']:,} flips a user" if row["flips"] > 1 else ""))
        lines.append((name, *cells, f"{max(row['true'] for row in rows):.2g}"))
    return lines


def tuning_table(document: Document) -> Table:
    """A line a learner and privatizer: the knobs that won, and the scores."""
    lines = [("", "privacy", "knobs", "score", "worst of the grid")]
    for one in document["tuning"]:
        knobs = ", ".join(f"{name} {value:g}" for name, value in one["knobs"].items())
        study = (one["scenario"], one["learner"])
        lines.append((title(study), one["privacy"], knobs, number(one["score"]), number(one["worst"])))
    return lines


def summary(document: Document) -> list[tuple[str, Table]]:
    """What a terminal shows."""
    return [
        *((f"Regret: {title(study)}", users_table(document, study)) for study in STUDIES),
        ("Noise of a counter", noise_lines(document)),
        ("Claims", claims_table(document["claims"])),
    ]


# ---------------------------------------------------------------------------------------- figure
def figure(document: Document) -> Any:
    """A column a study: regret as a share of uniform play's, against K (above) and epsilon (below)."""
    drawn = plots.new_figure(11.0, 5.6)
    panels = drawn.subplots(2, len(STUDIES), sharey="col")
    for column, study in enumerate(STUDIES):
        for axes, lines, at in (
            (panels[0][column], against_users, "users"), (panels[1][column], against_epsilon, "epsilon"),
        ):  # fmt: skip
            for i, privacy in enumerate(PRIVACY):
                colour, line = plots.look(i)
                rows = lines(document, study, privacy)
                if not rows or (at == "epsilon" and privacy not in (NONE, *BY_EPSILON)):
                    continue
                share = [row["share"] for row in rows]
                errors = [2 * row["error"] * row["share"] / row["mean"] for row in rows]
                if at == "epsilon" and privacy == NONE:
                    axes.axhline(share[0], color=colour, linestyle=line, linewidth=1.2)
                    continue
                axes.errorbar(
                    [row[at] for row in rows], share, errors, color=colour, linestyle=line, marker="o",
                    markersize=3, linewidth=1.3, capsize=2, label=privacy,
                )  # fmt: skip
            loss = document["references"][study[0]]
            shades = dict(zip(loss, ("-", "--", ":"), strict=True))
            for name, value in loss.items():
                axes.axhline(
                    value / loss["uniform"], color="0.3", linestyle=shades[name], linewidth=0.8, label=name
                )
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.grid(True, color="0.9", linewidth=0.6)
            axes.spines[["top", "right"]].set_visible(False)
            words = f"users K (ε = {document['epsilon']:g})"
            axes.set_xlabel(words if at == "users" else f"ε (K = {document['swept']:,})", fontsize=8)
            axes.tick_params(labelsize=6)
        panels[0][column].set_title(title(study), fontsize=8, loc="left")
    for line in panels:
        line[0].set_ylabel("regret / uniform play's (± 2 s.e.)", fontsize=8)
    handles: dict[str, Any] = {}
    for axes in panels[0]:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    drawn.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=5, fontsize=8, frameon=False
    )
    return drawn


# ------------------------------------------------------------------------------------------ page
_HEAD = """\
# Bai et al. 2024: policy elimination under shuffle privacy

*No-regret Exploration in Shuffle Private Reinforcement Learning* (Bai, Talebi, Zhao, Cheng and Chen
2024): SDP-PE, regret bounds and no experiments. Here its learner, as repaired
([elimination](../elimination.md)), its efficient variant SDP-PE-OM and the noise-aware learner are run
under the [shuffle model](../shuffle.md), a trusted server, local privacy and no privacy, at the
same true ε; where a protocol guarantees clearly more than was asked for, its true ε is beside it.

```
discreet reproduce {name} --out results/{name}
```

writes this page, its figure and every number on it (`{name}.json`; finished cells are kept under `data`,
so that a run that was stopped goes on; about {minutes} minutes of one core). δ = {delta}. Noise is drawn
from seeds: simulation."""
_WORLDS = """\
*Small MDPs*: {worlds} random ones, S = 3, A = 2, H = 4, transitions of their own at each step (2^10
policies, all listed), {seeds} seeds on each. *RiverSwim*: S = 6, A = 2, H = 20, Bernoulli rewards,
{chain} seeds; its 2^115 or so policies cannot be listed, so no `sdp-pe` there. Every K is a run of its
own, as learners are told their K. Errors are standard errors over seeds, worlds being fixed; in brackets
the share of uniform play's regret.

*none*: exact sums. *central*: a trusted server, `Central()`, which may correlate its noise over time;
*central, batches*: one that gives each batch noise of its own, as a shuffler must, the learner having the
knobs of shuffle and every cell the noise that it has under shuffle. A batch of `sdp-pe` stands alone, so that
*central* differs from *central, batches* there by its own knobs and shares only. [Shuffle](../shuffle.md)
compares the two for `noise-aware` over 1,024 seeds. *shuffle*: single bits, joint
calibration; *published*: the paper's closed form at a stated ε of {epsilon:g}; *amplified*: reports of
one random step. *local*: at the same (ε, δ).

Three policies need no data, and stand in every table and panel: uniformly random play, which is also
what an eliminating learner deploys on average while it has removed nothing; *myopic*, the largest mean
reward of the moment (it knows the rewards; the learners do not); *never learning*, what the noise-aware
learner plays under shuffle before the first user."""
_MEASURES = """\
*The cost of privacy* is regret less that of the same learner without privacy, run by run. If privacy is
an additive term, the cost does not grow with K (up to logarithms) and regret over that without privacy
falls to 1; if it is a factor, the cost grows as regret does, √K in the bounds. *Growth* is the exponent
over the two largest K (over all ε at which something is learned, for 1 / ε). None is given where
regret at either K is above {learned:.0%} of uniform play's, or where the cost is within two standard
errors of 0. The theorems are upper bounds over all worlds for widths that hold; these are tuned learners
on a few worlds, so that an exponent below the theory's is no proof of it."""
_CLAIMS = """\
{holds} claims hold, {fails} do not, {open} cannot be told at this size, of {all}. Each verdict is computed
from the tables below, at two standard errors or a 95 % interval: of so many, one or two may be chance."""
_TUNING = """\
## Tuning

`width_scale` and `explore_share` of the eliminating learners, `replan_growth` of the noise-aware one:
the same grid for every privatizer, at ε = {epsilon:g} alone, {seeds} seeds, on worlds that are not
reported: {small} (other seeds of the small MDPs) at K = {users}, and for RiverSwim {chain} at the last
K. The score is the geometric mean of regret over uniform play's. The widths that win are far below 1, so
that no theorem covers these learners; privacy does not depend on them. `apeve` has its own grid of
`explore_share`, since its first stage has about 2 √K users. *published* and
*amplified* are tuned like the others. So few seeds make a rough choice: that of two privatizers one has
better knobs is part of the difference between them, except between *shuffle* and *central, batches*."""
_POLICIES = """\
## What elimination keeps

*Bounds that hold*: `SDPPE(preset="theory")`, everybody explores. *As printed*: `preset="paper"`, ξ_b
with C = 1. *Largest gap left*: V* − V of the worst policy that is left, over all runs. Keeping an
optimal policy means little where nothing was removed."""
_NOISE = """\
## Noise of a counter, by protocol

Standard deviation of one transition count of a batch of n people (in brackets: of a reward) at
({epsilon:g}, {delta}), H = 20, S = 6, A = 2, all honest. *True ε* is what the noise that is drawn
guarantees. Local: the sum of n reports, which grows as √n."""


def _said(words: str, **values: Any) -> str:
    """A template with its values, paragraphs wrapped anew."""
    parts = words.format(**values).split("\n\n")
    wrapped = [
        part if part.startswith(("#", "```")) else textwrap.fill(part, 115, break_on_hyphens=False)
        for part in parts
    ]
    return "\n\n".join(wrapped)


def _ahead(document: Document) -> str:
    """Which learner is ahead under shuffle, at the largest K."""
    parts = []
    for scenario, place in ((SMALL, "the small MDPs"), (CHAIN, "RiverSwim")):
        rows = [against_users(document, study, SHUFFLE)[-1] for study in STUDIES if study[0] == scenario]
        rows.sort(key=lambda row: row["mean"])
        said = ", ".join(f"{row['learner']} {number(row['mean'])}" for row in rows)
        parts.append(f"on {place} (K = {rows[0]['users']:,}) {said}")
    return "Under shuffle, least regret first: " + "; ".join(parts) + "."


def _upside_down(document: Document) -> str:
    """Where privacy seems to help, or a learner without privacy does not learn on, in words."""
    said = []
    for study in STUDIES:
        rows = [(p, against_users(document, study, p)[-1]) for p in BY_EPSILON]
        *_, before, free = [None, *against_users(document, study, NONE)]
        better = [p for p, row in rows if (high := ratio(row, free).high) is not None and high < 1.0]
        if better:
            said.append(
                f"{title(study)} has less regret at K = {free['users']:,} under {' and '.join(better)} than "
                f"without privacy, where its regret grows as K to the "
                f"{regret_growth(document, study, NONE)}: with the knobs tuned for no noise it does not "
                "find optimal policies in all runs. Its cost of privacy says nothing then."
            )
        elif before is not None and free["share"] > _STUCK * before["share"]:
            said.append(
                f"{title(study)} has {before['share']:.2%} of uniform play's regret at K = "
                f"{before['users']:,} without privacy and still {free['share']:.2%} at K = {free['users']:,}"
                ": some runs keep a policy that is not optimal. Its cost of privacy says nothing then."
            )
    return " ".join(said)


def page(document: Document) -> str:
    """The page of the documentation."""
    found, rows = document["claims"], document["rows"]
    tally = {v: sum(one["verdict"] == v for one in found) for v in (HOLDS, FAILS, OPEN)}
    delta = f"{document['delta']:.0e}".replace("e-0", "e-")
    small = next(row for row in rows if row["scenario"] == SMALL)
    chain = next(row for row in rows if row["scenario"] == CHAIN)
    parts = [
        _said(_HEAD, name=NAME, minutes="nine", delta=delta),
        _said(
            _WORLDS, worlds=small["worlds"], seeds=small["seeds"], chain=chain["seeds"],
            epsilon=document["epsilon"],
        ),
        _said(_MEASURES, learned=_LEARNED),
        "## What holds",
        _said(_CLAIMS, holds=tally[HOLDS], fails=tally[FAILS], open=tally[OPEN], all=len(found)),
        markdown(claims_table(found)),
        textwrap.fill(f"{_ahead(document)} {_upside_down(document)}", 115, break_on_hyphens=False),
        f"![Regret against users and epsilon](../figures/{NAME}.png)",
    ]  # fmt: skip
    parts.append(f"## Regret against K, ε = {document['epsilon']:g}")
    for study in STUDIES:
        parts += [f"### {title(study)}", markdown(users_table(document, study))]
    parts += [
        "## Regret against ε",
        markdown(epsilon_table(document)),
        _said(_POLICIES),
        markdown(policies_table(document)),
        _said(_NOISE, epsilon=document["epsilon"], delta=delta),
        markdown(noise_lines(document)),
        _said(
            _TUNING, epsilon=document["epsilon"], seeds=document["tuning_seeds"],
            small=", ".join(document["training"][SMALL]), chain=" and ".join(document["training"][CHAIN]),
            users=" and ".join(f"{k:,}" for k in document["tuning_users"]),
        ),
        markdown(tuning_table(document)),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def write(document: Document, out: Path) -> list[Path]:
    """The page and its figure."""
    return write_pages(page(document), {NAME: figure(document)}, out, NAME)
