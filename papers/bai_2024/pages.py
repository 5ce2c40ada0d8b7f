"""Bai et al. 2024: what a reproduction's numbers say, as claims, tables, a figure and a page.

Everything here is a function of what was run; no number is typed in, and no verdict but that on integer
messages, which is a proof's. A
verdict is one of :data:`HOLDS`, :data:`FAILS` and :data:`OPEN`: a claim holds or fails if the number that
decides it is two standard errors (for ratios: a 95 % interval) on one side of its limit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.experiments import statistics
from discreet.experiments.statistics import number
from discreet.utils import plot_style as style
from discreet.utils.markdown_table import Table, markdown
from discreet.utils.plot_style import tidy
from papers.bai_2024.runs import (
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
from papers.page import (
    FAILS,
    HOLDS,
    OPEN,
    Claims,
    budget,
    claims_table,
    filled,
    papers,
    plus,
    power_of_ten,
    reference_lines,
    tally,
)

Document = Mapping[str, Any]
Row = Mapping[str, Any]
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
        return self.why or plus(self.value, self.error)


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


def _too_early(rows: Sequence[Row]) -> Measured | None:
    """Why nothing is said of a change between two K, if so."""
    if len(rows) < 2:
        return Measured(0.0, 0.0, "one K alone")
    if (most := max(row["share"] for row in rows)) > _LEARNED:
        return Measured(0.0, 0.0, f"not learned yet at both K: {most:.0%} of uniform play")
    return None


def growth(document: Document, study: tuple[str, str], privacy: str) -> Measured:
    """Exponent of the cost of privacy in K, over the two largest K."""
    rows = against_users(document, study, privacy)[-2:]
    if why := _too_early(rows):
        return why
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
    if why := _too_early(rows):
        return why
    logs = [math.log(row["mean"] / one["mean"]) for row, one in zip(rows, free, strict=True)]
    errors = [row["error"] / row["mean"] for row in (*rows, *free)]
    return Measured(logs[1] - logs[0], math.sqrt(sum(e * e for e in errors)))


def ratio(row: Row, other: Row) -> statistics.Interval:
    """Ratio of mean regrets, with its interval."""
    return statistics.ratio_interval(_finals(row).ravel(), _finals(other).ravel())


def _beside_limit(found: statistics.Interval, limit: float) -> str:
    """Whether a ratio is at most a limit, by its interval."""
    if found.low is None or found.high is None:
        return OPEN
    return HOLDS if found.high <= limit else FAILS if found.low > limit else OPEN


def _said_ratio(found: statistics.Interval) -> str:
    interval = "" if found.low is None else f" [{found.low:.2f}, {found.high:.2f}]"
    return f"{found.estimate:.2f}{interval}"


# ----------------------------------------------------------------------------------------- claims
def claims(document: Document) -> list[dict[str, Any]]:
    """Every claim with its verdict and the numbers that decide it."""
    found = Claims()
    add = found.add
    for study in STUDIES:
        grows = regret_growth(document, study, SHUFFLE)
        add(
            f"{title(study)}: regret under shuffle privacy grows slower than K (no regret)",
            below(grows, 1.0), f"exponent {grows}", _source(study, "Theorem 11"),
        )  # fmt: skip
    for study in STUDIES:
        _additive(document, study, add)
    for study in STUDIES:
        _beside(document, study, add)
    _kept(document, add)
    _calibration(document, add)
    return found.found


def _source(study: tuple[str, str], place: str) -> str:
    """Where the paper claims it of this learner: of SDP-PE alone."""
    return place if study[1] == "sdp-pe" else ""


def title(study: tuple[str, str]) -> str:
    """A study in words."""
    return f"{study[1]}, {'small MDPs' if study[0] == SMALL else 'RiverSwim'}"


def _additive(document: Document, study: tuple[str, str], add: Any) -> None:
    mine, others = growth(document, study, SHUFFLE), growth(document, study, LOCAL)
    add(
        f"{title(study)}: the cost of shuffle privacy grows slower than √K (an additive term)",
        below(mine, 0.5), f"exponent {mine}", _source(study, "Theorem 11, V-B"),
    )  # fmt: skip
    falls = relative(document, study, SHUFFLE)
    rows, free = (against_users(document, study, p) for p in (SHUFFLE, NONE))
    said = ", ".join(number(row["mean"] / one["mean"]) for row, one in zip(rows, free, strict=True))
    add(
        f"{title(study)}: regret under shuffle over that without privacy falls with K (not a factor)",
        below(falls, 0.0), falls.why or f"{said}; last change of its logarithm {falls}",
        _source(study, "Theorem 11, V-B"),
    )  # fmt: skip
    apart = Measured(mine.value - others.value, math.hypot(mine.error, others.error), mine.why or others.why)
    add(
        f"{title(study)}: the cost grows slower in K under shuffle than under local privacy",
        below(apart, 0.0), f"shuffle: {mine}; local: {others}", _source(study, "V-B"),
    )  # fmt: skip
    found = epsilon_growth(document, study, SHUFFLE)
    most = Measured(found.value, 0.0, found.why)
    verdict = OPEN if most.why else FAILS if found.value - 2 * found.error > 1.0 else HOLDS
    add(
        f"{title(study)}: the cost of shuffle privacy grows at most as 1 / ε (not refuted at two errors)",
        verdict, f"exponent {found}", _source(study, "Theorem 11"),
    )  # fmt: skip


def _beside(document: Document, study: tuple[str, str], add: Any) -> None:
    last = {p: rows[-1] for p in PRIVACY if (rows := against_users(document, study, p))}  # at the largest K
    mine, users = last[SHUFFLE], f"K = {last[SHUFFLE]['users']:,}"
    for privacy, words in ((BATCHES, "a trusted server's batches"), (CENTRAL, "a trusted server's best")):
        if privacy in last:
            found = ratio(mine, last[privacy])
            verdict = _beside_limit(found, _WITHIN) if mine["share"] <= _LEARNED else OPEN
            add(
                f"{title(study)}: shuffle is at most 10 % above {words}, {users}",
                verdict, f"ratio {_said_ratio(found)}", _source(study, "abstract"),
            )  # fmt: skip
    for privacy, words in ((LOCAL, "local privacy"), (PUBLISHED, "the published calibration")):
        if privacy in last:
            found = ratio(mine, last[privacy])
            add(
                f"{title(study)}: shuffle (joint) is better than {words}, {users}",
                _beside_limit(found, 1.0), f"ratio {_said_ratio(found)}",
                _source(study, "abstract") if privacy == LOCAL else "",
            )  # fmt: skip
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
            _keeps(f"sdp-pe, bounds that hold, {privacy}", rows, every, add, "section IV")
    tuned = [r for r in document["rows"] if r["learner"] == "sdp-pe"]
    for privacy in dict.fromkeys(row["privacy"] for row in tuned):
        rows = [row for row in tuned if row["privacy"] == privacy]
        _keeps(f"sdp-pe, tuned widths, {privacy}", rows, every, add)
    for row in document["proven"]:
        if row["learner"] == "sdp-pe, paper":
            if row["privacy"] != NONE:
                add(
                    "the bound on the regret of SDP-PE as printed", OPEN,
                    f"an upper bound whose constants Õ hides: {row['left']:.0f} of {every:.0f} policies "
                    f"are left at K = {row['users']:,}", "Theorem 11",
                )  # fmt: skip
            add(
                f"sdp-pe as printed (C = 1), {row['privacy']}: removes a policy, K = {row['users']:,}",
                HOLDS if row["left"] < every else FAILS, f"{row['left']:.1f} of {every:.0f} left",
            )  # fmt: skip


def _keeps(words: str, rows: Sequence[Row], every: float, add: Any, source: str = "") -> None:
    optimal, runs = (sum(row["optimal"][i] for row in rows) for i in (0, 1))
    left = ", ".join(
        f"{row['left']:.1f}" for row in sorted(rows, key=lambda r: (r["epsilon"] or 0.0, r["users"]))
    )
    verdict = FAILS if optimal < runs else HOLDS if min(row["left"] for row in rows) < every else OPEN
    add(
        f"{words}: an optimal policy is left in every run (and others are not)", verdict,
        f"{optimal} of {runs} runs; left of {every:.0f}: {left}", source,
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
        "the privatizer is (ε, β)-shuffle private, messages being single bits",
        HOLDS if true <= stated else FAILS,
        f"stated {stated:g}, true {true:.2g}: the noise is far larger than needed", "Lemma 10",
    )  # fmt: skip
    add(
        "the privatizer is (ε, β)-shuffle private, messages being integers as printed", FAILS,
        "only a user with a count of 1 can send the largest integer, and a shuffler does not hide it: β is "
        "at least the probability of this, whatever ε is ([why](../../docs/shuffle.md))", "Lemma 10",
    )  # fmt: skip
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
    for name, *cells in reference_lines(document["references"][study[0]], *every):
        lines.append((name, "no data", *cells, "1", "—"))
    return lines


def epsilon_table(document: Document) -> Table:
    """A line a study and privatizer: regret by epsilon."""
    rows = [row for study in STUDIES for row in against_epsilon(document, study, SHUFFLE)]
    every = sorted({row["epsilon"] for row in rows})
    lines = [(
        f"R({document['swept']:,})", "", *map(budget, every), "no privacy",
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
        losses = document["references"][study[0]]
        for line in reference_lines(losses, *[document["swept"]] * (len(every) + 1)):
            lines.append((title(study), *line, "—"))
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
        ("The paper's claims", claims_table(papers(document["claims"]))),
        ("Claims about what was measured", claims_table(papers(document["claims"], ours=True))),
    ]


# ---------------------------------------------------------------------------------------- figure
def figure(document: Document) -> Any:
    """A column a study: regret as a share of uniform play's, against K (above) and epsilon (below)."""
    drawn = style.new_figure(11.0, 5.6)
    panels = drawn.subplots(2, len(STUDIES), sharey="col")
    for column, study in enumerate(STUDIES):
        for axes, lines, at in (
            (panels[0][column], against_users, "users"), (panels[1][column], against_epsilon, "epsilon"),
        ):  # fmt: skip
            for i, privacy in enumerate(PRIVACY):
                colour, line = style.look(i)
                rows = lines(document, study, privacy)
                if not rows or (at == "epsilon" and privacy not in (NONE, *BY_EPSILON)):
                    continue
                share = [row["share"] for row in rows]
                errors = [2 * row["error"] * row["share"] / row["mean"] for row in rows]
                if at == "epsilon" and privacy == NONE:
                    axes.axhline(share[0], color=colour, linestyle=line, linewidth=1.2)
                    continue
                axes.errorbar(
                    [row[at] for row in rows], share, style.error_bars(share, errors, True), color=colour,
                    linestyle=line, marker="o", markersize=3, linewidth=1.3, capsize=2, label=privacy,
                )  # fmt: skip
            loss = document["references"][study[0]]
            shades = dict(zip(loss, ("-", "--", ":"), strict=True))
            for name, value in loss.items():
                axes.axhline(
                    value / loss["uniform"], color="0.3", linestyle=shades[name], linewidth=0.8, label=name
                )
            tidy(axes, "xy")
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
def _ahead(document: Document) -> str:
    """Which learner is ahead under shuffle, at the largest K."""
    parts = []
    for scenario, place in ((SMALL, "the small MDPs"), (CHAIN, "RiverSwim")):
        rows = [against_users(document, study, SHUFFLE)[-1] for study in STUDIES if study[0] == scenario]
        rows.sort(key=lambda row: row["mean"])
        said = ", ".join(f"{row['learner']} {number(row['mean'])}" for row in rows)
        parts.append(f"on {place} (K = {rows[0]['users']:,}) {said}")
    return "Mean final regret under shuffle, smallest first: " + "; ".join(parts) + "."


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
    small = next(row for row in rows if row["scenario"] == SMALL)
    chain = next(row for row in rows if row["scenario"] == CHAIN)
    training = document["training"]
    of_users = (f"### {title(study)}\n\n{markdown(users_table(document, study))}" for study in STUDIES)
    return filled(
        Path(__file__).with_name("page.md"),
        delta=power_of_ten(document["delta"]), epsilon=document["epsilon"], learned=_LEARNED,
        worlds=small["worlds"], small_seeds=small["seeds"], chain_seeds=chain["seeds"],
        paper_tally=tally(papers(found)), paper_claims=markdown(claims_table(papers(found))),
        our_tally=tally(papers(found, ours=True)),
        our_claims=markdown(claims_table(papers(found, ours=True))),
        said=f"{_ahead(document)} {_upside_down(document)}",
        users_tables="\n\n".join(of_users), epsilon_table=markdown(epsilon_table(document)),
        policies_table=markdown(policies_table(document)), noise_table=markdown(noise_lines(document)),
        tuning_seeds=document["tuning_seeds"], small_training=", ".join(training[SMALL]),
        chain_training=" and ".join(training[CHAIN]),
        tuning_users=" and ".join(f"{k:,}" for k in document["tuning_users"]),
        tuning_table=markdown(tuning_table(document)),
    )  # fmt: skip
