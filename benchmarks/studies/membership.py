"""Membership attacks as evidence: ``python -m benchmarks.studies.membership --out DIR``.

One small world, drawn anew for no one: S = 5, A = 3, H = 5, a random MDP whose people act uniformly. APVI on
exact counts and DP-APVI on noisy ones are attacked by
:func:`discreet.audit.membership_inference.membership_attack`; the folder gets the numbers
(``membership.json``), their tables (``membership.md``) and the figure (``membership.png``): ROC curves on
logarithmic axes, beside the curve that the guarantee implies.

Settings are named by what they vary:

- *no privacy*: n people, target drawn or canary, an adversary who knows the others or only the population;
- *private*: Gaussian noise at mu = 0.24 (epsilon = 1 at delta = 1e-6), 1 and 4;
- *broken*: half of the noise that is claimed, which the attack on the release must expose.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.audit.membership_inference import AttackResult, Knowledge, Target, membership_attack
from discreet.core.guarantee import Guarantee
from discreet.core.rng import Seeded
from discreet.envs.mdp.tabular import TabularMDP
from discreet.envs.random_mdps import random_mdp
from discreet.learners.offline.apvi import APVI, DPAPVI
from discreet.mechanisms.interfaces import ProblemSpec
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.utils import plot_style as style
from discreet.utils.atomic_file import write_aside
from discreet.utils.markdown_table import markdown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Setting", "figure", "run", "settings", "summary", "table", "world"]

NAME = "membership"
SEED = 4
USERS = 100  # of the private settings
DELTA = 1e-6


@dataclass(frozen=True)
class Setting:
    """One attack. budget : options of Central, empty for no privacy; claimed : the budget it is held to."""

    name: str
    users: int
    target: Target
    knows: Knowledge
    budget: dict[str, Any] = field(default_factory=dict)
    claimed: dict[str, Any] | None = None


@dataclass(frozen=True)
class Size:
    """games, shadows, trials : of an attack; certain : games of one whose games have a single outcome."""

    games: int
    shadows: int
    trials: int
    certain: int


FULL = Size(4, 120, 300, 300)
QUICK = Size(4, 40, 80, 100)


def world() -> TabularMDP:
    """The world that is attacked."""
    return random_mdp(states=5, actions=3, horizon=5, seed=SEED, rewarding=5, stationary=False)


def settings() -> list[Setting]:
    """All that is run."""
    targets: tuple[Target, ...] = ("drawn", "canary")
    out = [
        Setting("no privacy", users, target, "everything") for target in targets for users in (30, 100, 1000)
    ]
    out += [Setting("no privacy", users, t, "population") for t in targets for users in (30, 100)]
    out.append(Setting("private", USERS, "canary", "everything", {"epsilon": 1.0, "delta": DELTA}))
    out += [Setting("private", USERS, t, "everything", {"mu": mu}) for t in targets for mu in (1.0, 4.0)]
    out.append(Setting("private", 30, "canary", "population", {"mu": 4.0}))
    out.append(Setting("broken", USERS, "canary", "everything", {"mu": 2.0}, {"mu": 1.0}))
    return out


def _claim(options: dict[str, Any], users: int) -> Guarantee:
    """The guarantee of a budget, before any data."""
    learner, spec = DPAPVI(), ProblemSpec(world().layout)
    return Central(**options).mechanism(learner.query(spec), learner.schedule(users), Seeded(0)).guarantee


def attack(setting: Setting, size: Size, seed: int = SEED) -> AttackResult:
    """Play one setting."""
    certain = not setting.budget and setting.knows == "everything"
    return membership_attack(
        world(),
        DPAPVI() if setting.budget else APVI(),
        Central(**setting.budget) if setting.budget else NoPrivacy(),
        setting.users,
        target=setting.target,
        knows=setting.knows,
        games=size.certain if certain else size.games,
        shadows=size.shadows,
        trials=size.trials,
        seed=seed,
        claim=None if setting.claimed is None else _claim(setting.claimed, setting.users),
    )


# ------------------------------------------------------------------------------------------- words
def _percent(value: float) -> str:
    return f"{100 * value:.3g}"


def _privacy(result: AttackResult) -> str:
    claim = result.claim
    if claim.epsilon is None:
        return "none"
    if claim.mu is None:
        return f"ε = {claim.epsilon:.3g}"
    return f"μ = {claim.mu:.3g} (ε = {claim.epsilon:.3g} at δ = {claim.delta:.0e})"


def table(results: Iterable[tuple[Setting, AttackResult]]) -> str:
    """Markdown: a line a setting and adversary."""
    lines: list[tuple[str, ...]] = [(
        "privacy", "n", "target", "knows", "sees", "AUC", "bound", "advantage", "bound", "TPR % at FPR 1 %",
        "at FPR 0.1 %",
    )]  # fmt: skip
    for setting, result in results:
        bound = result.bound
        said = f"{_privacy(result)}{', half the noise' if setting.claimed is not None else ''}"
        for roc in result.rocs:
            area, error = roc.auc
            broken = " **exceeds**" if result.exceeds(roc.adversary) else ""
            rates = []
            for level in (0.01, 0.001):
                true, false = roc.at(level).true_positive, roc.at(level).false_positive
                top = float(bound(false.value))
                rates.append(
                    f"{_percent(true.value)} [{_percent(true.low)}, {_percent(true.high)}] "
                    f"(FPR {_percent(false.value)}, bound {_percent(top)})"
                )
            lines.append((
                said, f"{result.users:,}", result.target, result.knows, roc.adversary,
                f"{area:.3f} ± {error:.3f}", f"{bound.auc:.3f}", f"{roc.advantage:.3f}{broken}",
                f"{bound.advantage:.3f}", *rates,
            ))  # fmt: skip
    return markdown(lines) + "\n"


def summary(document: Iterable[Mapping[str, Any]]) -> str:
    """Markdown, from the stored numbers: a line a setting; AUC and TPR (FPR) in % of all adversaries."""
    lines: list[tuple[str, ...]] = [(
        "privacy", "n", "target", "knows", "AUC: policy", "values", "release", "at most",
        "TPR at 1 %: policy", "values", "release", "at most",
    )]  # fmt: skip
    for one in document:
        cells = [_claimed(one), f"{one['users']:,}", one["target"], one["knows"]]
        cells += [
            f"{row['auc']:.3f} ± {row['auc_standard_error']:.3f}{' !' * row['exceeds_the_bound']}"
            for row in one["adversaries"]
        ]
        cells.append(f"{one['bound']['auc']:.3f}")
        for row in one["adversaries"]:
            point = next(point for point in row["points"] if point["level"] == 0.01)
            cells.append(f"{_percent(point['true_positive'][0])} ({_percent(point['false_positive'][0])})")
        cells.append(_percent(one["bound"]["true_positive"]["0.01"]))
        lines.append(tuple(cells))
    return markdown(lines) + "\n"


def _claimed(one: Mapping[str, Any]) -> str:
    claim = one["claim"]
    if claim["epsilon"] is None:
        return "none"
    if claim["mu"] is None:
        return f"ε = {claim['epsilon']:.3g}"
    half = ", half the noise" if one["setting"] == "broken" else ""
    return f"μ = {claim['mu']:.3g}{half}"


# ------------------------------------------------------------------------------------------ figure
_FLOOR = 1e-3
_SEES = {"policy": "policy", "values": "policy and values", "release": "release"}


def _draw(axes: Axes, title: str, curves: Sequence[tuple[str, AttackResult]], drawn: AttackResult) -> None:
    """ROC curves; the bound is that of ``drawn``."""
    rates = np.logspace(np.log10(_FLOOR), 0.0, 400)
    for i, (name, result) in enumerate(curves):
        for k, roc in enumerate(result.rocs):
            if roc.adversary == "release" and result.claim.epsilon is None:
                continue  # exact counts, known others: certain
            false, true = roc.curve
            axes.plot(
                np.maximum(false, _FLOOR / 10), np.maximum(true, _FLOOR / 10), drawstyle="steps-post",
                color=style.PALETTE[k], linestyle=style.LINES[i], linewidth=1.4,
                label=f"{name}: {_SEES[roc.adversary]}",
            )  # fmt: skip
    axes.plot(rates, drawn.bound(rates), color="black", linewidth=1.8, label="bound of the guarantee")
    axes.fill_between(rates, drawn.bound(rates), 1.0, color="0.92", linewidth=0, zorder=0)
    if drawn.numerical is not None:
        top = drawn.numerical(rates)
        axes.plot(rates, top, color="black", linewidth=1.0, linestyle=(0, (4, 2)), label="bound of its noise")
    axes.plot(rates, rates, color="0.5", linewidth=0.8, linestyle=(0, (1, 2)), label="guessing")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(_FLOOR, 1.0)
    axes.set_ylim(_FLOOR, 1.05)
    axes.set_title(title, fontsize=9, loc="left")
    axes.set_xlabel("false positive rate")
    axes.spines[["top", "right"]].set_visible(False)


def _panels(
    results: Sequence[tuple[Setting, AttackResult]],
) -> list[tuple[str, list[tuple[str, AttackResult]]]]:
    """Title and curves; the last curve's claim is drawn."""

    def find(name: str, target: str, budget: dict[str, Any]) -> AttackResult:
        return next(
            result
            for s, result in results
            if (s.name, s.target, s.budget, s.users, s.knows) == (name, target, budget, USERS, "everything")
        )

    def pair(target: str, budget: dict[str, Any]) -> list[tuple[str, AttackResult]]:
        return [
            ("no privacy", find("no privacy", target, {})),
            ("private", find("private", target, budget)),
        ]

    return [
        ("drawn target, μ = 1", pair("drawn", {"mu": 1.0})),
        ("canary, μ = 1", pair("canary", {"mu": 1.0})),
        ("canary, μ = 4", pair("canary", {"mu": 4.0})),
        ("canary, half the noise of μ = 1", [("broken", find("broken", "canary", {"mu": 2.0}))]),
    ]


def figure(results: Sequence[tuple[Setting, AttackResult]], path: Path) -> None:
    """Draw the ROC curves of the settings with n = 100 and known others."""
    page = style.new_figure(9.0, 8.2)
    axes = page.subplots(2, 2, sharex=True, sharey=True)
    for place, (title, curves) in zip(axes.ravel(), _panels(results), strict=True):
        _draw(place, title, curves, curves[-1][1])
    for place in axes[:, 0]:
        place.set_ylabel("true positive rate")
    found: dict[str, Any] = {}
    for place in axes.ravel():
        found |= {label: handle for handle, label in zip(*place.get_legend_handles_labels(), strict=True)}
    page.legend(found.values(), found.keys(), loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    style.save_figure(page, path)


# --------------------------------------------------------------------------------------------- run
def run(
    out: Path, size: Size = FULL, say: Callable[[str], None] = print
) -> list[tuple[Setting, AttackResult]]:
    """Play all settings; write numbers, tables and figure into ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    results: list[tuple[Setting, AttackResult]] = []
    document: list[dict[str, Any]] = []
    for setting in settings():
        result = attack(setting, size)
        results.append((setting, result))
        document.append({"setting": setting.name, **result.to_dict()})
        text = json.dumps({"attacks": document}, indent=1, ensure_ascii=False, allow_nan=False)
        write_aside(out / f"{NAME}.json", f"{text}\n".encode())
        areas = ", ".join(f"{roc.adversary} {roc.auc[0]:.3f}" for roc in result.rocs)
        said = setting.budget or "no privacy"
        say(f"{setting.name}: n = {setting.users}, {setting.target}, {setting.knows}, {said}: AUC {areas}")
    write_aside(out / f"{NAME}.md", f"{summary(document)}\n{table(results)}".encode())
    figure(results, out / f"{NAME}.png")
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.membership", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for numbers, tables and figure")
    parser.add_argument("--quick", action="store_true", help="few runs: to see that it works")
    given = parser.parse_args(arguments)
    run(given.out, QUICK if given.quick else FULL)


if __name__ == "__main__":
    main()
