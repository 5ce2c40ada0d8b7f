"""The price of privacy for people: tables and figures of a study, and the page of the documentation.

The page says what the columns are and shows the numbers; it draws no conclusion that a later run with
better mechanisms would have to take back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.experiments import plots, statistics
from discreet.experiments.statistics import number
from discreet.utils import plot_style as style
from discreet.utils.markdown_table import Table, markdown
from papers.page import filled, standard_error
from papers.price_of_privacy.runs import (
    TARGETS,
    TUNED,
    Budget,
    Cell,
    Found,
    Mechanism,
    Row,
    budgets,
    gain,
    lower_bound,
    plan,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from discreet.experiments.results import Result

_TITLES = {"joint": "joint DP", "local": "local DP"}


# ---------------------------------------------------------------------------------------- tables
def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _users(value: int | None, users: int) -> str:
    return f"> {users:,}" if value is None else f"{value:,}"


def _regret(row: Row) -> tuple[str, ...]:
    interval = "—" if row.low is None or row.high is None else f"{number(row.low)} to {number(row.high)}"
    spread = f"{number(row.p10)} to {number(row.p90)}"
    return number(row.mean), interval, number(row.median), spread, _percent(row.share)


_REGRET = ("mean", "95 % interval", "median", "10 to 90 %", "of uniform")


def regret_table(rows: Sequence[Row]) -> Table:
    """Final regret, a line a budget."""
    return [("budget", *_REGRET), *((row.budget, *_regret(row)) for row in rows)]


def until_table(rows: Sequence[Row]) -> Table:
    """Users until the deployed policies stay within 10 % of optimal."""
    lines: list[tuple[str, ...]] = [
        ("world", "budget", "median", "95 % interval", "10 to 90 %", "seeds that got there")
    ]
    for row in rows:
        until, k = row.until, row.users
        ends = f"{_users(until.low, k)} to {_users(until.high, k)}"
        interval = ends if row.seeds >= 6 else "—"  # order statistics need six seeds at 95 %
        spread = f"{_users(until.p10, k)} to {_users(until.p90, k)}"
        reached = f"{round(until.reached * row.seeds)} of {row.seeds}"
        lines.append((row.world, row.budget, _users(until.median, k), interval, spread, reached))
    return lines


def _between(interval: statistics.Interval) -> str:
    low, high = interval.low, interval.high
    return "—" if low is None or high is None else f"{_percent(low)} to {_percent(high)}"


def suite_table(study: Found) -> Table:
    """Mean share of the uniform policy's regret: worlds down, budgets across; the geometric mean below."""
    numbers = list(study.suite_numbers())
    worlds = list(numbers[0][2])
    lines = [("world", *(budget for budget, _, _ in numbers))]
    lines += [(world, *(_percent(shares[world]) for _, _, shares in numbers)) for world in worlds]
    lines.append(("geometric mean", *(_percent(interval.estimate) for _, interval, _ in numbers)))
    between = [_between(interval) for _, interval, _ in numbers]
    lines.append(("95 % interval", *between))
    return lines


def suite_lines(study: Found) -> Table:
    """The suite number, a line a budget: for a narrow page."""
    lines: list[tuple[str, ...]] = [("budget", "geometric mean", "95 % interval", "least", "greatest")]
    for budget, interval, shares in study.suite_numbers():
        low, high = min(shares, key=lambda w: shares[w]), max(shares, key=lambda w: shares[w])
        ends = (f"{_percent(shares[low])} ({low})", f"{_percent(shares[high])} ({high})")
        lines.append((budget, _percent(interval.estimate), _between(interval), *ends))
    return lines


def returns_table(study: Found) -> Table:
    """Regret by measured returns beside the plain learner's, worlds down, budgets across."""
    found = list(study.by_returns())
    head = [f"{budget}: {what}" for budget, _ in found for what in ("plain", "by returns", "quotient")]
    lines = [("world", *head)]
    for world in found[0][1] if found else ():
        cells: list[str] = []
        for _, worlds in found:
            new, old, quotient, error = worlds[world]
            cells += [number(old), number(new), f"{quotient:.2f} ± {error:.2f}"]
        lines.append((world, *cells))
    return lines


_SIDES: tuple[tuple[str, Mechanism], ...] = (
    ("dp-ucbvi", "theirs"), ("dp-ucbvi", "ours"), ("private-ucb-vi", "theirs"), ("private-ucb-vi", "ours"),
    ("noise-aware", "theirs"), ("noise-aware", "ours"),
)  # fmt: skip


def square_table(study: Found, learners: Sequence[str]) -> Table:
    """Shares of learner times mechanism, and what each gains (quotients of regret, DP-UCBVI's)."""
    sides = [side for side in _SIDES if side[0] in learners]
    head = [f"{learner} on {mechanism}" for learner, mechanism in sides]
    lines = [("budget", "on", *head, "mechanism gains", "learner gains", "both")]
    for budget, where, square in study.squares():
        found = gain(square, "dp-ucbvi")
        gains = [f"{found[name]:.3g} ×" for name in ("mechanism", "learner", "both")]
        lines.append((budget, where, *(_percent(square[side]) for side in sides), *gains))
    return lines


def users_table(study: Found) -> Table:
    """RiverSwim's regret for more users."""
    rows = [r for name in ("main", "chain") for r in study.rows[name] if r.kind == "chain"]
    sizes = sorted({row.users for row in rows})
    found = {(row.budget, row.users): row for row in rows}
    lines = [("budget", *(f"K = {users:,}" for users in sizes))]
    for budget in dict.fromkeys(row.budget for row in rows):
        cells = [found[budget, users] for users in sizes]
        lines.append((budget, *(f"{number(r.mean)} ({_percent(r.share)})" for r in cells)))
    return lines


def targets_table(study: Found) -> Table:
    """RiverSwim: knobs tuned on this task, and the defaults."""
    lines: list[tuple[str, ...]] = [("budget", "tuned on this task", "defaults", "knobs tuned on this task")]
    rows = zip(TARGETS, study.rows["tuned"], study.rows["targets"], strict=True)
    for budget, tuned, default in rows:
        knobs = ", ".join(f"{k.removeprefix('learner.')} {v:g}" for k, v in tuned.options.items())
        lines.append((str(budget), number(tuned.mean), number(default.mean), knobs))
    return lines


def baseline_table(study: Found) -> Table:
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
        lines.append((world, *(f"{number(row.mean)} ± {number(row.standard_error)}" for row in cells)))
    return lines


def bounds_table(study: Found) -> Table:
    """The lower bounds' orders beside what was measured, RiverSwim."""
    rows = [(c, r) for c, r in study.results.items() if c.world.kind == "chain" and not c.options]
    main = [(c, r) for c, r in rows if c.users == study.size.users and c.mechanism == "ours"]
    lines = [("budget", "order of the lower bound", "measured", "uniform policy")]
    for cell, result in main:
        if cell.budget.epsilon in (None, *study.size.epsilons):
            order = lower_bound(cell.world.build(), cell.users, cell.budget)
            measured = number(float(result.final_regret.mean()))
            lines.append((str(cell.budget), number(order), measured, number(result.uniform_regret)))
    return lines


def summary(study: Found) -> list[tuple[str, Table]]:
    """What the command prints."""
    chain = [row for row in study.rows["main"] if row.kind == "chain"]
    long_chain = [row for row in study.rows["long"] if row.kind == "chain"]
    short = [line[1:] for line in until_table(long_chain)]  # one world: no need to name it
    square = [
        [cell.replace(" on ", "\non ") for cell in line]
        for line in square_table(study, ("dp-ucbvi", "noise-aware"))
    ]
    users = f"{study.size.users:,}"
    tables: list[tuple[str, Table]] = [
        (f"Final regret on RiverSwim, K = {users}, noise-aware at its defaults", regret_table(chain)),
        (f"Users until within 10 %, RiverSwim, runs of {study.size.long_users:,} users", short),
        ("Share of the uniform policy's regret over the suite", suite_lines(study)),
        ("Learner and mechanism, shares of the uniform policy's regret", square),
    ]
    tables.append(("Exploration by measured returns, mean regret", returns_table(study)))
    if study.rows["targets"]:
        tables.append(("RiverSwim, knobs tuned on it", targets_table(study)))
    return tables


def _knobs() -> Table:
    lines = [("learner", "mechanism", "knobs")]
    for (learner, mechanism), options in TUNED.items():
        said = ", ".join(f"`{name}` {value:g}" for name, value in options.items()) or "defaults"
        lines.append((f"`{learner}`", mechanism, said))
    return lines


def page(study: Found) -> str:
    """The page of the documentation."""
    size, main, here = study.size, study.rows["main"], Path(__file__).parent
    chain = [row for row in main if row.kind == "chain"]
    seeds = sorted({(row.kind == "chain", row.seeds) for row in main}, reverse=True)
    others = dict.fromkeys(row.world for row in main if row.kind != "chain")
    tables = {w: markdown(regret_table([row for row in main if row.world == w])) for w in others}
    targets = ""
    if study.rows["targets"]:
        targets = filled(
            here / "targets.md", wrap=False, users=size.users, grid_seeds=size.grid_seeds,
            targets_table=markdown(targets_table(study)),
        )  # fmt: skip
    return filled(
        here / "page.md", wrap=False,
        users=size.users, long_users=size.long_users, seeds=size.seeds,
        counts=", ".join(f"{n} {'on RiverSwim' if first else 'elsewhere'}" for first, n in seeds),
        suite_lines=markdown(suite_lines(study)), suite_table=markdown(suite_table(study)),
        regret_table=markdown(regret_table(chain)), users_table=markdown(users_table(study)),
        targets=targets, returns_table=markdown(returns_table(study)),
        until_table=markdown(until_table(study.rows["long"])),
        square_table=markdown(square_table(study, ("dp-ucbvi", "private-ucb-vi", "noise-aware"))),
        knobs_table=markdown(_knobs()), baseline_table=markdown(baseline_table(study)),
        bounds_table=markdown(bounds_table(study)),
        worlds="\n\n".join(f"### {world}\n\n{table}" for world, table in tables.items()),
    )  # fmt: skip


# --------------------------------------------------------------------------------------- figures
_FAMILY = {
    ("joint", False): 0,
    ("joint", True): 1,
    ("local", False): 2,
    ("local", True): 2,
    ("none", True): 6,
}


def _draw_users(axes: Axes, study: Found, trust: str) -> None:
    size = study.size
    found = {c.budget: r for c, r in study.results.items() if _is_long(c, size.long_users)}
    apart = _apart({budget: result for budget, result in found.items() if budget.trust in ("none", trust)})
    shown = [replace(r, about=replace(r.about, label="noise-aware"), config={}) for r in apart.values()]
    ends = plots.draw_regret(axes, shown, "log")
    for curve in axes.get_lines():
        curve.set_label("_")  # named at its end
    mdp = next(w for w in size.worlds if w.kind == "chain").build()
    users = np.geomspace(1.0, size.long_users, 200)
    for budget, line in ((Budget("none"), ":"), (Budget(shown[-1].guarantee.trust, 1.0), "-.")):  # type: ignore[arg-type]
        named = "no privacy" if budget.trust == "none" else f"{_TITLES[trust]}, ε = 1"
        order = np.array([lower_bound(mdp, k, budget) for k in users])
        seen = order <= users * shown[0].optimal_value  # before, nobody can lose so much
        label = f"order of the minimax lower bound, {named}"
        axes.plot(
            users[seen], order[seen], color="0.55", linestyle=line, linewidth=1.1, label=label, zorder=1
        )
    axes.set_title(f"RiverSwim, {_TITLES[trust]}: mean and pointwise 95 % band", fontsize=9, loc="left")
    names = (*apart, "uniform policy")
    style.label_ends(axes, [(y, name, c) for (y, _, c), name in zip(ends, names, strict=True)], 7.0, 20)
    axes.legend(fontsize=7, frameon=False, loc="upper left")


def _apart(found: Mapping[Budget, Result]) -> dict[str, Result]:
    """Each run once, by the names of the budgets that it has: reports spend no delta, and are pure, too."""
    groups: list[tuple[list[str], Result]] = []
    for budget, result in found.items():
        for names, other in groups:
            if np.array_equal(other.final_regret, result.final_regret):
                names.append(str(budget))
                break
        else:
            groups.append(([str(budget)], result))
    return {", ".join(names): result for names, result in groups}


def _is_long(cell: Cell, users: int) -> bool:
    plain = cell.mechanism == "ours" and cell.learner == "noise-aware" and not cell.options
    return plain and cell.world.kind == "chain" and cell.users == users


def users_figure(study: Found) -> Any:
    """Regret on RiverSwim against users, joint and local DP side by side."""
    figure = style.new_figure(13.0, 6.4)
    left, right = figure.subplots(1, 2, sharey=True)
    _draw_users(left, study, "joint")
    _draw_users(right, study, "local")
    return figure


def _errors(study: Found, budget: Budget) -> dict[str, float]:
    """Standard error of the share of each of the suite's worlds, 0 of a single seed."""
    cells = [cell for cell in plan(study.size)["main"] if cell.budget == budget]
    shares = {c.world.name: study.results[c].final_regret / study.results[c].uniform_regret for c in cells}
    return {world: float(np.nan_to_num(standard_error(share))) for world, share in shares.items()}


def _square_error(study: Found, budget: str, learner: str, mechanism: Mechanism) -> float:
    """Standard error of a geometric mean over worlds, to first order: relative errors add in squares."""
    side = (budget, learner, mechanism)
    rows = [row for row in study.rows["square"] if (row.budget, row.learner, row.mechanism) == side]
    relative = [float(np.nan_to_num(row.standard_error)) / row.mean for row in rows]
    middle = float(np.exp(np.mean(np.log([row.share for row in rows]))))
    return middle * float(np.linalg.norm(relative)) / len(rows)


def suite_figure(study: Found) -> Any:
    """Shares over the suite: each world by budget, and the geometric means by learner and mechanism."""
    figure = style.new_figure(13.0, 7.4)
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1), sharey=True)
    marks = dict(zip((None, *study.size.epsilons), "*os^vDPX", strict=False))
    named = {str(budget): budget for budget in budgets(study.size)}
    worlds: list[str] = []
    drawn: dict[tuple[float, ...], Any] = {}  # equal shares are the same runs: reports spend no delta
    for name, interval, shares in study.suite_numbers():
        budget, worlds = named[name], list(shares)
        if tuple(shares.values()) in drawn:
            same = drawn[tuple(shares.values())]
            same.set_label(f"{name}, {same.get_label()}")
            continue
        family = _FAMILY[budget.trust, budget.delta is None]
        place = np.arange(len(worlds)) + (0.0 if budget.trust == "none" else 0.12 * (family - 1.5))
        values, errors = list(shares.values()), _errors(study, budget)
        drawn[tuple(shares.values())] = left.errorbar(
            place, values, style.error_bars(values, [2 * errors[w] for w in worlds], True), linestyle="none",
            marker=marks[budget.epsilon], markersize=4.5, elinewidth=0.9, color=style.PALETTE[family],
            label=f"{name}: {_percent(interval.estimate)}",
        )  # fmt: skip
    left.set_xticks(range(len(worlds)), worlds, rotation=40, ha="right", fontsize=8)
    left.set_yscale("log")
    left.set_ylabel("regret over the uniform policy's")
    left.set_title(
        "noise-aware on every world, ± 2 standard errors (geometric mean below)", fontsize=9, loc="left"
    )
    squares = [(named[b], square) for b, where, square in study.squares() if where == "suite"]
    for line, (learner, mechanism) in enumerate((_SIDES[5], _SIDES[1], _SIDES[0])):
        for (trust, pure), family in _FAMILY.items():
            chosen = [(b, s) for b, s in squares if b.trust == trust and (b.delta is None) == pure]
            if not chosen or (mechanism == "theirs" and not pure):  # theirs is pure: the same runs
                continue
            said = f"{trust} {'pure' if pure else '(ε, δ)'}: {learner} on {mechanism}"
            values = [s[learner, mechanism] for _, s in chosen]
            halves = [2 * _square_error(study, str(b), learner, mechanism) for b, _ in chosen]
            right.errorbar(
                [b.epsilon for b, _ in chosen], values, style.error_bars(values, halves, True), marker="o",
                markersize=4, capsize=2, label=said, color=style.PALETTE[family],
                linestyle=style.LINES[line],
            )  # fmt: skip
    right.axhline(1.0, color="0.2", linestyle=(0, (2, 3)), linewidth=0.9, label="uniform policy")
    right.set_xscale("log")
    right.set_xlabel("true ε")
    right.set_title("Geometric mean over the suite, ± 2 standard errors", fontsize=9, loc="left")
    for axes, below, columns in ((left, -0.3, 3), (right, -0.14, 2)):
        axes.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, below), ncols=columns)
        axes.grid(True, axis="y", color="0.9", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    return figure
