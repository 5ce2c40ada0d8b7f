"""The price of privacy for people: the tables and figures of a study, and the page of the documentation.

The page says what the columns are and shows the numbers; it draws no conclusions that other numbers would not bear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.experiments import plots, statistics
from discreet.experiments.price_of_privacy import (
    NAME,
    TARGETS,
    TUNED,
    Budget,
    Mechanism,
    Row,
    Study,
    gain,
    lower_bound,
)
from discreet.experiments.results import Result, write_aside

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Table = Sequence[Sequence[str]]
_TITLES = {"joint": "joint DP", "local": "local DP"}
_number = statistics.number


# ---------------------------------------------------------------------------------------- tables
def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _users(value: int | None, users: int) -> str:
    return f"> {users:,}" if value is None else f"{value:,}"


def _regret(row: Row) -> tuple[str, ...]:
    interval = "—" if row.low is None or row.high is None else f"{_number(row.low)} to {_number(row.high)}"
    spread = f"{_number(row.p10)} to {_number(row.p90)}"
    return _number(row.mean), interval, _number(row.median), spread, _percent(row.share)


_REGRET = ("mean", "95 % interval", "median", "10 to 90 %", "of uniform")


def regret_table(rows: Sequence[Row]) -> Table:
    """Final regret, a line a budget."""
    return [("budget", *_REGRET), *((row.budget, *_regret(row)) for row in rows)]


def until_table(rows: Sequence[Row]) -> Table:
    """Users until the deployed policies stay within 10 % of optimal."""
    lines = [("world", "budget", "median", "95 % interval", "10 to 90 %", "seeds that got there")]
    for row in rows:
        until, k = row.until, row.users
        interval = (
            f"{_users(until.low, k)} to {_users(until.high, k)}" if row.seeds >= 6 else "—"
        )  # fewer seeds: no interval at 95 %
        spread = f"{_users(until.p10, k)} to {_users(until.p90, k)}"
        reached = f"{round(until.reached * row.seeds)} of {row.seeds}"
        lines.append((row.world, row.budget, _users(until.median, k), interval, spread, reached))
    return lines


def suite_table(study: Study) -> Table:
    """Mean share of the uniform policy's regret: worlds down, budgets across; the geometric mean below."""
    numbers = list(study.suite_numbers())
    worlds = list(numbers[0][2])
    lines = [("world", *(budget for budget, _, _ in numbers))]
    lines += [(world, *(_percent(shares[world]) for _, _, shares in numbers)) for world in worlds]
    lines.append(("geometric mean", *(_percent(interval.estimate) for _, interval, _ in numbers)))
    between = [
        "—" if i.low is None or i.high is None else f"{_percent(i.low)} to {_percent(i.high)}"
        for _, i, _ in numbers
    ]
    lines.append(("95 % interval", *between))
    return lines


def suite_lines(study: Study) -> Table:
    """The suite number, a line a budget: for a narrow page."""
    lines = [("budget", "geometric mean", "95 % interval", "least", "greatest")]
    for budget, interval, shares in study.suite_numbers():
        low, high = min(shares, key=lambda w: shares[w]), max(shares, key=lambda w: shares[w])
        brackets = (
            "—"
            if interval.low is None or interval.high is None
            else f"{_percent(interval.low)} to {_percent(interval.high)}"
        )
        ends = (f"{_percent(shares[low])} ({low})", f"{_percent(shares[high])} ({high})")
        lines.append((budget, _percent(interval.estimate), brackets, *ends))
    return lines


_SIDES: tuple[tuple[str, Mechanism], ...] = (
    ("dp-ucbvi", "theirs"), ("dp-ucbvi", "ours"), ("private-ucb-vi", "theirs"), ("private-ucb-vi", "ours"),
    ("noise-aware", "theirs"), ("noise-aware", "ours"),
)  # fmt: skip


def square_table(study: Study) -> Table:
    """Shares of learner times mechanism, and what each gains (quotients of regret, DP-UCBVI's)."""
    head = [f"{learner} on {mechanism}" for learner, mechanism in _SIDES]
    lines = [("budget", "on", *head, "mechanism gains", "learner gains", "both")]
    for budget, where, square in study.squares():
        found = gain(square, "dp-ucbvi")
        gains = [f"{found[name]:.3g} ×" for name in ("mechanism", "learner", "both")]
        lines.append((budget, where, *(_percent(square[side]) for side in _SIDES), *gains))
    return lines


def users_table(study: Study) -> Table:
    """RiverSwim's regret for more users."""
    rows = [r for name in ("main", "chain") for r in study.rows[name] if r.kind == "chain"]
    sizes = sorted({row.users for row in rows})
    found = {(row.budget, row.users): row for row in rows}
    lines = [("budget", *(f"K = {users:,}" for users in sizes))]
    for budget in dict.fromkeys(row.budget for row in rows):
        cells = [found[budget, users] for users in sizes]
        lines.append((budget, *(f"{_number(r.mean)} ({_percent(r.share)})" for r in cells)))
    return lines


def targets_table(study: Study) -> Table:
    """RiverSwim against the figures to reach: knobs tuned on this task, and the defaults."""
    lines = [
        ("budget", "to reach", "tuned on this task", "mean - 2 s.e.", "knobs", "defaults", "mean - 2 s.e.")
    ]
    for (budget, goal), tuned, default in zip(
        TARGETS, study.rows["tuned"], study.rows["targets"], strict=True
    ):
        cells = [str(budget), f"≤ {_number(goal)}"]
        for row, limit in ((tuned, goal), (default, 1.5 * goal)):
            low = row.mean - 2 * row.standard_error
            cells += [_number(row.mean), f"{_number(low)}{' ✓' if low <= limit else ''}"]
            if row is tuned:
                cells.append(", ".join(f"{k.removeprefix('learner.')} {v:g}" for k, v in row.options.items()))
        lines.append((*cells,))
    return lines


def baseline_table(study: Study) -> Table:
    """Without privacy, each learner tuned with its own grid, and the defaults beside them."""
    default = [r for r in study.rows["main"] if r.trust == "none"]
    named = [("noise-aware, defaults", r) for r in default]
    named += [(f"{r.learner}, tuned", r) for r in study.rows["baselines"]]
    worlds = list(dict.fromkeys(row.world for _, row in named))
    found = {(name, row.world): row for name, row in named}
    names = list(dict.fromkeys(name for name, _ in named))
    lines = [("world", *names)]
    for world in worlds:
        cells = [found[name, world] for name in names]
        lines.append((world, *(f"{_number(row.mean)} ± {_number(row.standard_error)}" for row in cells)))
    return lines


def bounds_table(study: Study) -> Table:
    """The lower bounds' orders beside what was measured, RiverSwim."""
    rows = [(c, r) for c, r in study.results.items() if c.world.kind == "chain" and not c.options]
    main = [(c, r) for c, r in rows if c.users == study.size.users and c.mechanism == "ours"]
    lines = [("budget", "order of the lower bound", "measured", "uniform policy")]
    for cell, result in main:
        if cell.budget.epsilon in (None, *study.size.epsilons):
            order = lower_bound(cell.world.build(), cell.users, cell.budget)
            measured = _number(float(result.final_regret.mean()))
            lines.append((str(cell.budget), _number(order), measured, _number(result.uniform_regret)))
    return lines


def summary(study: Study) -> list[tuple[str, Table]]:
    """What the command prints."""
    chain = [row for row in study.rows["main"] if row.kind == "chain"]
    long_chain = [row for row in study.rows["long"] if row.kind == "chain"]
    users = f"{study.size.users:,}"
    tables = [
        (f"Final regret on RiverSwim, K = {users}, noise-aware at its defaults", regret_table(chain)),
        (f"Users until within 10 %, runs of {study.size.long_users:,} users", until_table(long_chain)),
        ("Share of the uniform policy's regret over the suite", suite_lines(study)),
        ("Learner and mechanism, shares of the uniform policy's regret", square_table(study)),
    ]
    if study.rows["targets"]:
        tables.append(("RiverSwim, figures to reach", targets_table(study)))
    return tables


def _markdown(table: Table) -> str:
    head, *rest = table
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rest)])


def _knobs() -> Table:
    lines = [("learner", "mechanism", "knobs")]
    for (learner, mechanism), options in TUNED.items():
        said = ", ".join(f"`{name}` {value:g}" for name, value in options.items()) or "defaults"
        lines.append((f"`{learner}`", mechanism, said))
    return lines


def page(study: Study) -> str:
    """The page of the documentation."""
    size = study.size
    seeds = sorted({(row.kind == "chain", row.seeds) for row in study.rows["main"]}, reverse=True)
    counts = ", ".join(f"{n} {'on RiverSwim' if chain else 'elsewhere'}" for chain, n in seeds)
    main = study.rows["main"]
    parts = [
        "# The price of privacy",
        "```\ndiscreet reproduce price-of-privacy --out results/price-of-privacy\n```",
        "runs everything on this page, writes its numbers into `price-of-privacy.json`, and writes the page. Runs are "
        "kept under `runs/`, a folder a setting, and finished seeds are not run again. The learner is `noise-aware`, "
        "the privatizers are `Central(epsilon, delta)` and `Local(epsilon, delta)`, all at their defaults: one setting "
        "for every world and budget. ε is the true one. Budgets: *joint* and *local* DP, (ε, δ) and *pure* ε kept "
        f"apart. Worlds: the declared suite of `discreet.experiments.suite`, on which nothing was tuned. Seeds: "
        f"{counts} (K = {size.users:,}). Regret is exact, from the values of the deployed policies; *of uniform* is the mean "
        "over the regret of the uniform policy, which never learns.",
        "## The suite: one number that cannot be tuned to one chain",
        "Share of the uniform policy's regret after "
        f"{size.users:,} users; the interval of the geometric mean is over seeds, the worlds being fixed.",
        _markdown(suite_lines(study)),
        f"![Shares of the uniform policy's regret](../figures/{NAME}-suite.png)",
        _markdown(suite_table(study)),
        "## RiverSwim",
        _markdown(regret_table([row for row in main if row.kind == "chain"])),
        f"![Regret on RiverSwim against users](../figures/{NAME}-riverswim.png)",
        "More users (mean regret, share of uniform):",
        _markdown(users_table(study)),
    ]
    if study.rows["targets"]:
        parts += [
            "### Figures to reach",
            "Mean regret at K = "
            f"{size.users:,}. *Tuned on this task*: the best of a grid on RiverSwim itself ({size.grid_seeds} seeds that the "
            "row does not use); *defaults*: chosen on other worlds. ✓: mean minus two standard errors is at most the "
            "figure, for the defaults at most 1.5 times the figure.",
            _markdown(targets_table(study)),
        ]
    parts += [
        "## Users until the policy stays within 10 % of optimal",
        f"From runs of {size.long_users:,} users. Between two recorded numbers of users the deployed policies lose on average the "
        "increment of the exact regret over the increment of users; counted are the users up to the last interval that "
        "loses more than a tenth of V*. A seed whose last interval still does is censored and counts as more than K; "
        "quantiles are order statistics.",
        _markdown(until_table(study.rows["long"])),
        "## Learner or mechanism?",
        "Shares of the uniform policy's regret; *suite* is the geometric mean over the worlds. *Theirs*: Laplace noise on "
        "three families of counts, in a binary tree with a user a leaf (joint) or on the device (local), calibrated to the "
        "true ε; being pure it serves for both budgets. *Ours*: the defaults. All replan when the users have grown by a "
        "tenth. *Mechanism gains*: DP-UCBVI's regret on theirs over that on ours; *learner gains*: DP-UCBVI's over ours "
        "on our mechanism. On the papers' tree the noise-aware learner reads the newest sums alone "
        "(`noise-aware-sums`). Near 100 % nobody learns, and a quotient says nothing about who is better.",
        _markdown(square_table(study)),
        "Each side was tuned alike, on the same declared worlds, RiverSwim not among them, with grids of 9 to 12 "
        "points (`python -m discreet.experiments.tuning_papers`); the noise-aware learner on our mechanism has the "
        "library's defaults.",
        _markdown(_knobs()),
        "## Without privacy",
        "Final regret ± standard error. A private curve is compared with a non-private one that was tuned as well.",
        _markdown(baseline_table(study)),
        "## Lower bounds",
        "Orders with constants set to 1, worst case over all MDPs of RiverSwim's size, so that one MDP may cost less: "
        "√(SAH²T) with T = KH (Jin et al. 2018), plus SAH·ln(KH)/ε under joint DP (Vietri et al. 2020), at least "
        "H√(SAK)/min(e^ε − 1, 1) under local DP (Garcelon et al. 2021). The last two are quoted from those papers, whose "
        "transitions do not depend on the step.",
        _markdown(bounds_table(study)),
        "## Every world",
    ]
    for world in dict.fromkeys(row.world for row in main if row.kind != "chain"):
        parts += [f"### {world}", _markdown(regret_table([row for row in main if row.world == world]))]
    return "\n\n".join(parts) + "\n"


# --------------------------------------------------------------------------------------- figures
def _draw_users(axes: Axes, study: Study, trust: str) -> None:
    cells = [
        c for c in study.results
        if c.world.kind == "chain" and c.users == study.size.long_users and not c.options
        and c.mechanism == "ours" and c.budget.trust in ("none", trust)
    ]  # fmt: skip
    shown: list[Result] = []
    for cell in cells:
        result = study.results[cell]
        shown.append(replace(result, about=replace(result.about, label="noise-aware"), config={}))
    plots.draw_regret(axes, shown, "log")
    mdp = cells[0].world.build()
    users = np.geomspace(1.0, study.size.long_users, 60)
    budget = Budget("joint" if trust == "joint" else "local", 1.0)
    for bound, line in ((Budget("none"), ":"), (budget, "-.")):
        named = "no privacy" if bound.trust == "none" else f"{_TITLES[trust]}, ε = 1"
        axes.plot(
            users, [lower_bound(mdp, k, bound) for k in users], color="0.6", linestyle=line, linewidth=1.0,
            label=f"order of the minimax lower bound, {named}", zorder=1,
        )  # fmt: skip
    axes.set_title(f"RiverSwim, {_TITLES[trust]}: mean and 95 % band", fontsize=9, loc="left")
    axes.legend(fontsize=6.5, frameon=False, loc="upper left")
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * 300)  # room for the legend


def users_figure(study: Study) -> Any:
    """Regret on RiverSwim against users, joint and local DP side by side."""
    figure = plots.new_figure(13.0, 6.0)
    left, right = figure.subplots(1, 2, sharey=True)
    _draw_users(left, study, "joint")
    _draw_users(right, study, "local")
    return figure


def suite_figure(study: Study) -> Any:
    """Shares over the suite: each world by budget, and the geometric means against epsilon on both mechanisms."""
    figure = plots.new_figure(13.0, 5.4)
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1), sharey=True)
    for i, (budget, interval, shares) in enumerate(study.suite_numbers()):
        colour, _ = plots.look(i)
        marker = "o^sDvPX*<>phd"[i % 13]
        left.plot(
            range(len(shares)), list(shares.values()), marker, color=colour, markersize=5,
            label=f"{budget}: {_percent(interval.estimate)}",
        )  # fmt: skip
        worlds = list(shares)
    left.set_xticks(range(len(worlds)), worlds, rotation=40, ha="right", fontsize=8)
    left.set_yscale("log")
    left.set_ylabel("regret over the uniform policy's")
    left.set_title("Every world of the suite (legend: geometric mean)", fontsize=9, loc="left")
    left.legend(fontsize=6.5, frameon=False, ncols=2)
    squares = [(b, s) for b, where, s in study.squares() if where == "suite"]

    for kind, (learner, mechanism) in enumerate(
        (("noise-aware", "ours"), ("dp-ucbvi", "ours"), ("dp-ucbvi", "theirs"))
    ):
        for name in ("joint (", "joint pure", "local pure"):
            if mechanism == "theirs" and name == "joint (":
                continue  # the same runs as pure
            values = [square[learner, mechanism] for budget, square in squares if budget.startswith(name)]
            colour, _ = plots.look(("joint (", "joint pure", "local pure").index(name))
            said = name.replace("joint (", "joint (ε, δ)")
            right.plot(
                study.size.epsilons, values, marker="o", color=colour, linestyle=plots.LINES[kind], markersize=4,
                label=f"{said}: {learner} on {mechanism}",
            )  # fmt: skip

    right.axhline(1.0, color="0.2", linestyle=(0, (2, 3)), linewidth=0.9)
    right.set_xscale("log")
    right.set_xlabel("true ε")
    right.set_title("Geometric mean over the suite, by learner and mechanism", fontsize=9, loc="left")
    right.legend(fontsize=6.5, frameon=False)
    for axes in (left, right):
        axes.grid(True, axis="y", color="0.9", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def write(study: Study, out: Path) -> list[Path]:
    """The page and its figures, laid out as in ``docs``: copy ``reproductions`` and ``figures`` there."""
    paths = []
    for name, figure in (("riverswim", users_figure(study)), ("suite", suite_figure(study))):
        for suffix in (".png", ".pdf"):
            paths.append(out / "figures" / f"{NAME}-{name}{suffix}")
            plots.save_figure(figure, paths[-1])
    (out / "reproductions").mkdir(parents=True, exist_ok=True)
    paths.append(out / "reproductions" / f"{NAME}.md")
    write_aside(paths[-1], page(study).encode())
    return paths
