"""Chowdhury and Zhou 2021, Figure 2: private UCB-VI and UCB-PO on RiverSwim, three ways.

The paper's experiment (RiverSwim, S=6, A=2, H=20, 20 runs of 20 000 users, epsilon 1 and 0.5) is
drawn

1. as the public code computes it (``code:cz22``), whose noise gives no differential privacy;
2. with the paper's stated noise, 3 H log(K) / epsilon per node and 3 H / epsilon per user, under the
   epsilon that this noise really buys;
3. at a true epsilon, with enough users for learning to begin.

Settings are the public script's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from discreet.envs import riverswim
from discreet.experiments import engine as seam
from discreet.experiments import plots
from discreet.experiments.results import About, Result
from discreet.experiments.seed_run import SeedRun
from discreet.experiments.simulate import Setup, iterate_runs
from discreet.experiments.statistics import number
from discreet.experiments.worker import Play
from discreet.learners.online.policy_optimization import OPPO, PrivateUCBPO
from discreet.learners.online.ucbvi import UCBVI, PrivateUCBVI
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.utils import plot_style as style
from discreet.utils.markdown_table import Table
from papers.chowdhury_zhou_2021.public_code import published_code_setup
from papers.page import Claims, standard_error
from papers.study import Job

# Means of the public code's gap regret after 1000, 5000, 10 000 and 20 000 users (20 runs), measured
# from the original script. LDP varies too much between runs for more than an order.
REFERENCE = {
    ("VI", "none", 1.0): (628, 1025, 1196, 1370),
    ("VI", "central", 1.0): (1516, 2514, 2880, 3249),
    ("VI", "central", 0.5): (1993, 3731, 4275, 4813),
    ("PO", "none", 1.0): (933, 1547, 1790, 2086),
    ("PO", "central", 1.0): (1559, 2781, 3262, 3660),
    ("PO", "central", 0.5): (1903, 3698, 4380, 4995),
}
_AT = (1000, 5000, 10_000, 20_000)
_CURVES = (("none", 1.0), ("central", 1.0), ("central", 0.5), ("local", 1.0), ("local", 0.5))
_KINDS = ("VI", "PO")
_TOLERANCE = 0.10
_COLUMNS = ("as the public code does it", "the paper's stated noise", "at a true ε")


def _learner(kind: str, private: bool, **options: Any) -> Any:
    """The practical learner of columns 2 and 3: pooled counts, the public code's constants."""
    pooled: dict[str, Any] = {"stationary": True, **options}
    if kind == "VI":
        if private:
            return PrivateUCBVI(preset="honest", post="lp", E_z=0.5, **pooled)
        return UCBVI(preset="honest", **pooled)
    families: dict[str, Any] = {"derive_visits": False, "center_rewards": False}  # the paper's three
    return PrivateUCBPO(E_z=0.5, **families, **pooled) if private else OPPO(**families, **pooled)


def _privatizer(name: str, epsilon: float, **options: Any) -> Any:
    if name == "none":
        return NoPrivacy()
    if name == "central":
        return Central(epsilon=epsilon, leaf="user", **options)
    return Local(epsilon=epsilon, **options)


_SEED = 2021
Curve = tuple[str, int, str, float, int]  # kind, column, privatizer, epsilon, users


def _setup(curve: Curve) -> Setup:
    kind, column, name, epsilon, episodes = curve
    mdp = riverswim()
    if column == 0:
        learner = "private-ucb-vi" if kind == "VI" else "private-ucb-po"
        return published_code_setup(learner, name, mdp, episodes, epsilon)
    if column == 1:
        privatizer = _privatizer(name, epsilon, **({"preset": "paper"} if name != "none" else {}))
        return Setup(mdp, _learner(kind, name != "none", replan_every=32), privatizer, episodes, "episode")
    learner = _learner(kind, name != "none", replan_growth=1.1)
    return Setup(mdp, learner, _privatizer(name, epsilon), episodes, "batch")


def _results(job: Job, wanted: Sequence[Curve], seeds: int) -> Iterator[Result]:
    """Of each curve; on an engine all of them at once."""
    played: dict[int, list[SeedRun]] = {}
    if job.engine is not None:
        jobs = [seam.Job(Play(_setup, curve, _SEED), range(seeds), str(curve)) for curve in wanted]
        for i, run in seam.results(job.engine, jobs):
            played.setdefault(i, []).append(run)
    for i, curve in enumerate(wanted):
        setup, (kind, _, name, epsilon, _) = _setup(curve), curve
        runs = played[i] if played else iterate_runs(setup, _SEED, range(seeds), job.workers)
        words = f"{kind} {name}" if name == "none" else f"{kind} {name}, stated ε = {epsilon:g}"
        yield replace(Result.from_runs(setup, _SEED, runs), about=replace(About.of(setup), label=words))


def learning_begins(result: Result) -> int | None:
    """The first recorded user from which on a user's mean regret stays below half the uniform policy's.

    None if that never happens among the recorded users.
    """
    lost = np.diff(result.regret.mean(axis=0)) / np.diff(result.episodes)
    early = lost >= 0.5 * (result.optimal_value - result.uniform_value)
    last = int(np.flatnonzero(early)[-1]) + 1 if early.any() else 0
    return None if last == lost.size else int(result.episodes[last])


def _mark_beginnings(axes: Any, curves: list[Result]) -> None:
    """A triangle on each curve where learning begins; the numbers of users stand where no curve is."""
    said: list[tuple[str, str]] = []
    for result, colour in zip(curves, style.PALETTE, strict=False):
        users = learning_begins(result)
        if users is None:
            continue
        regret = float(np.interp(users, result.episodes, result.regret.mean(axis=0)))
        axes.plot([users], [regret], marker="v", color=colour, markersize=9, zorder=5)
        said.append((f"{users:,}", colour))
    for i, (words, colour) in enumerate([("learning begins (\u25bc)", "0.2"), *said][::-1]):
        axes.text(
            0.98, 0.03 + 0.04 * i, words, transform=axes.transAxes, fontsize=7.5, color=colour, ha="right"
        )


def _at(result: Result, users: int) -> float:
    """Mean gap regret after so many users, from the recorded points (linear in between)."""
    return float(np.interp(users, result.episodes, result.gap_regret.mean(axis=0)))


# ------------------------------------------------------------------------------------ what is run
def run(job: Job) -> dict[str, Any]:
    """All curves of both panels: 20 runs of 20 000 users (1e7 in the third column); quick: 4 of 2 000 (2e5).

    Returns
    -------
    dict
        ``figure``, ``seeds``, ``curves``: a line a curve, ``gaps``: mean gap regret of column 1 at some
        numbers of users, by curve; and ``found``, the results by (kind, column).
    """
    seeds, users, many = (4, 2000, 200_000) if job.quick else (20, 20_000, 10**7)
    found: dict[tuple[str, int], list[Result]] = {}
    lines, gaps = [], {}
    wanted: list[Curve] = [
        (kind, column, name, epsilon, many if column == 2 else users)
        for kind in _KINDS
        for column in range(len(_COLUMNS))
        for name, epsilon in _CURVES
    ]
    for curve, result in zip(wanted, _results(job, wanted, seeds), strict=True):
        kind, column, name, epsilon, last = curve
        found.setdefault((kind, column), []).append(result)
        if column == 0:
            gaps[_curve(kind, name, epsilon)] = [_at(result, n) for n in (*_AT, users)]
        lines.append(
            {
                "column": _COLUMNS[column],
                "curve": result.label,
                "epsilon_true": result.guarantee.epsilon,
                "users": last,
                "final_regret": float(result.final_regret.mean()),
                "standard_error": standard_error(result.final_regret),
                "uniform_regret": result.uniform_regret,
                "learning_begins": learning_begins(result),
            }
        )
        if (name, epsilon) == _CURVES[-1]:
            job.say(f"reproduce: Private-UCB-{kind}, {_COLUMNS[column]}: done")
    return {"figure": "2", "seeds": seeds, "curves": lines, "gaps": gaps, "found": found}


def _curve(kind: str, name: str, epsilon: float) -> str:
    return f"{kind} {name} epsilon {epsilon:g}"


# ------------------------------------------------------------------------------- what is said of it
def claims(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of column 1: means within 10 % of the public script's, and the order of the curves. None if quick."""
    found, gaps = Claims(), document["gaps"]
    for key, expected in {} if document["quick"] else REFERENCE.items():
        ratios = [mean / want for mean, want in zip(gaps[_curve(*key)], expected, strict=False)]
        holds = all(abs(ratio - 1) <= _TOLERANCE for ratio in ratios)
        words = ", ".join(f"{ratio:.3f}" for ratio in ratios)
        found.add(f"{_curve(*key)}: mean within 10 % of the public script's", holds, words)
    for kind in () if document["quick"] else _KINDS:
        finals = [gaps[_curve(kind, *curve)][-1] for curve in _CURVES]
        claim = f"{kind}: none < JDP 1 < JDP 0.5 < LDP 1 < LDP 0.5 after {_AT[-1]} users"
        found.add(claim, finals == sorted(finals), ", ".join(map(number, finals)), "section 6, Figure 2")
    return found.found


def summary(document: Mapping[str, Any]) -> list[tuple[str, Table]]:
    """What a terminal shows."""
    head = ("curve", "", "true ε", "users", "final regret", "uniform policy", "learning begins after")
    lines = [head]
    for one in document["curves"]:
        epsilon, begins = one["epsilon_true"], one["learning_begins"]
        lines.append((
            one["curve"], one["column"], "none" if epsilon is None else f"{epsilon:.4g}", f"{one['users']:,}",
            f"{number(one['final_regret'])} ± {number(one['standard_error'])}",
            number(one["uniform_regret"]), "—" if begins is None else f"{begins:,}",
        ))  # fmt: skip
    return [(f"Means over {document['seeds']} seeds ± standard errors", lines)]


def figure(document: Mapping[str, Any]) -> Any:
    """Both panels of Figure 2, three ways side by side."""
    drawn = style.new_figure(18.0, 11.0)
    grid = drawn.subplots(2, 3)
    for (kind, column), curves in document["found"].items():
        axes = grid[_KINDS.index(kind)][column]
        ends = plots.draw_regret(axes, curves, "log" if column == 2 else "linear", reference=column > 0)
        title = f"Private-UCB-{kind}, {_COLUMNS[column]}: {document['seeds']} runs"
        if column == 0:
            title += "\nno ε follows from this noise: shared (LDP) or redrawn on cumulative counts (JDP)"
        else:
            title += "\ncounts pooled over steps, practical bonuses"
        axes.set_title(title, fontsize=9, loc="left")
        if not style.label_ends(axes, ends, 7.5, 24):
            axes.legend(fontsize=7.5, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.1))
        if column == 2:
            _mark_beginnings(axes, curves)
        else:
            axes.locator_params(axis="x", nbins=5)
    return drawn
