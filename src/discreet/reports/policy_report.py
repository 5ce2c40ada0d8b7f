"""Report on a release: value of the learned policy, missing support, and differences from the behaviour
policy.

All results are computed from the release, the policy that was learned from it and public facts, so the report
costs no privacy. :mod:`discreet.learners.ope.count_estimates` computes values and their intervals. The first
line states whether the lower bound of the gain over the behaviour policy is above 0.

``unsupported`` determines the action at a step and state where the policy lacks support
(``OfflinePolicy.supported``). With ``"abstain"``, the policy selects no action. With ``"behaviour"``, it
selects the users' most frequent action. Both choices are evaluated with the behaviour policy at this step and
state. With ``"policy"``, the policy selects the learned action.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.core.releases import Floats
from discreet.core.short_repr import brief
from discreet.learners.offline.apvi import OfflinePolicy
from discreet.learners.ope.count_estimates import (
    BEHAVIOUR,
    Evaluation,
    PolicyEstimate,
    ValueEstimate,
    evaluate,
    uniform,
)
from discreet.mechanisms.interfaces import ProblemSpec, StepwiseRelease
from discreet.reports.figures import number, percent, plain_axes, save_figures, share_of
from discreet.reports.report_files import ReportPage
from discreet.utils.document import Block, Heading, Paragraph, Picture, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Unsupported = Literal["abstain", "behaviour", "policy"]

VERSION = 1
_ROWS = 10  # largest number of rows in a table
_CLEAR = 4.0  # a state counts as visited if its noisy count is above this many standard deviations of noise


@dataclass(frozen=True)
class Gap:
    """Step and state where the policy lacks support.

    - visits : estimated number of visits.
    - deviation : standard deviation of the noise in ``visits``.
    """

    step: int
    state: str
    visits: float
    deviation: float


@dataclass(frozen=True)
class PolicyChange:
    """Step and state with many visits where the policy's action differs from the users' most frequent action.

    Parameters
    ----------
    visits : estimated number of visits
    usual, usual_share : the users' most frequent action, and the share of visits in which they took it
    action, action_share : action that the policy selects, and the share of visits in which users took it
    gain : estimated value of the policy's action minus that of the behaviour, if only this step is changed;
        None if unknown. The gain is not corrected for selection.
    error : standard deviation of the gain
    """

    step: int
    state: str
    visits: float
    usual: str
    usual_share: float
    action: str
    action_share: float
    gain: float | None
    error: float | None


@dataclass(frozen=True, eq=False)
class Report(ReportPage):
    """Results for a policy, computed from the release from which it was learned.

    All shares are estimated shares of decisions. The number of decisions is users times steps.

    Parameters
    ----------
    verdict : the first line of the report
    better : True if the value of the learned policy minus that of the behaviour has a lower bound above 0
    values : values of the policies "learned" (as deployed), "learned everywhere", "behaviour" and "uniform".
        "learned everywhere" also uses the learned action where support is lacking; it is absent if it equals
        "learned"
    differences : value of the learned policy minus that of the behaviour, and minus that of the uniform
        policy
    unsupported_share, unsupported_deviation : share of the users' decisions that were made where the policy
        lacks support, and the standard deviation of this share
    unsupported_pairs : share of all (step, state) pairs where the policy lacks support
    gaps : (step, state) pairs without support that have the most visits
    undecided_share : share of decisions for which several actions have the same largest value; the learner
        then selects the first of them
    changed_share : share of decisions that the deployed policy would have changed
    changes : changes of the users' most frequent action that affect the most decisions
    noise : standard deviation of the noise in one released count, by family of counts
    support, undecided : (H, states that are not terminal) bool, True where the policy has support, and where
        several actions have the same largest value
    visits : estimated numbers of visits, in the same shape as ``support``
    first_step : number of the first step in tables and figures
    """

    __repr__ = brief

    verdict: str
    better: bool
    unsupported: str
    values: Mapping[str, ValueEstimate]
    differences: Mapping[str, ValueEstimate]
    unsupported_share: float
    unsupported_deviation: float
    unsupported_pairs: float
    gaps: tuple[Gap, ...]
    undecided_share: float
    changed_share: float
    changes: tuple[PolicyChange, ...]
    noise: Mapping[str, float]
    users: int
    level: float
    least: float
    bound: float
    guarantee: str
    support: NDArray[np.bool_]
    undecided: NDArray[np.bool_]
    visits: Floats
    first_step: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the results as plain values that JSON can represent. Tables by state are omitted."""
        plain = {name: getattr(self, name) for name in (
            "verdict", "better", "unsupported", "unsupported_share", "unsupported_deviation",
            "unsupported_pairs", "undecided_share", "changed_share", "users", "level", "least", "bound",
            "guarantee",
        )}  # fmt: skip
        return {
            "version": VERSION,
            **plain,
            "values": {name: value.to_dict() for name, value in self.values.items()},
            "differences": {name: value.to_dict() for name, value in self.differences.items()},
            "gaps": [vars(gap) for gap in self.gaps],
            "changes": [vars(change) for change in self.changes],
            "noise": dict(self.noise),
        }

    def blocks(self) -> list[Block]:
        """Return all blocks of the report; the first block is the verdict."""
        return [*self._head(), *self._support(), *self._differences(), *self._tail()]

    def _head(self) -> list[Block]:
        percent = f"{100 * self.level:g} %"
        head = (
            "policy", "estimate", f"{percent} interval", "sd of noise", "sd of sampling",
            "width for lack of support", "width for choosing",
        )  # fmt: skip
        rows: list[tuple[str, ...]] = []
        for name, value in (*self.values.items(), *self.differences.items()):
            parts = map(number, (value.noise, value.sampling, value.lack, value.choice))
            interval = f"{number(value.low)} to {number(value.high)}"
            rows.append((name, number(value.estimate) if value.known else "not known", interval, *parts))
        unknown = [] if all(value.known for value in self.values.values()) else [Paragraph(
            "Not known: more than half of the interval is lack of support, and any number in it is as good."
        )]  # fmt: skip
        return [
            Paragraph(self.verdict, strong=True),
            Paragraph(
                f"From the release of {self.users:,} people alone; it costs no privacy. {self.guarantee}"
            ),
            Heading(2, "Values"),
            Paragraph(
                f"Expected return of one episode, between {self.least:g} and {self.bound:g}, with two-sided "
                f"{percent} intervals that cover the luck of who was in the data and the noise of privacy."
            ),
            Table("", head, tuple(rows)),
            Picture("values", "Values of the policies with their intervals, as the table above has them."),
            *unknown,
            Paragraph(_DEPLOYED[self.unsupported]),
        ]

    def _support(self) -> list[Block]:
        found: list[Block] = [
            Heading(2, "Where the policy lacks support"),
            Paragraph(
                "That is where too few people came, or where the cautious values do not tell the best two "
                "actions apart."
            ),
            Paragraph(
                f"At {percent(self.unsupported_pairs)} of all (step, state) where an episode can go on, "
                f"which are {percent(self.unsupported_share)} (± {percent(self.unsupported_deviation)} of "
                "noise) of the decisions that people took."
            ),
        ]
        if self.undecided_share > 0.0005:
            found.append(Paragraph(
                f"In {percent(self.undecided_share)} of decisions the learner's cautious values do not tell "
                "the actions apart; it took the first of them, which is no advice."
            ))  # fmt: skip
        if self.gaps:
            rows = tuple(
                (str(gap.step), gap.state, f"{gap.visits:,.0f} ± {gap.deviation:,.0f}") for gap in self.gaps
            )
            found.append(Table("", ("step", "state", "visits (± noise)"), rows, names=2))
        found.append(Picture(
            "support",
            "Map of steps and states: where the policy has support, where it gives no advice, and where "
            "people came but support is lacking. The sentences above have the shares.",
        ))  # fmt: skip
        return found

    def _differences(self) -> list[Block]:
        found: list[Block] = [
            Heading(2, "How it differs from what people did"),
            Paragraph(
                f"In {percent(self.changed_share)} of decisions people did something else than the policy "
                "asks for."
            ),
        ]
        rows: list[tuple[str, ...]] = []
        for one in self.changes:
            gain = "not known" if one.gain is None else f"{number(one.gain)} ± {number(one.error or 0.0)}"
            rows.append((
                str(one.step), one.state, f"{one.visits:,.0f}", f"{one.usual} ({percent(one.usual_share)})",
                f"{one.action} ({percent(one.action_share)})", gain,
            ))  # fmt: skip
        if self.changes:
            head = ("step", "state", "visits", "usual action", "policy", "estimated gain (± sd)")
            found += [
                Table("", head, tuple(rows), names=2),
                Paragraph(
                    "The gain is of this one decision, followed by the policy, over what people did there. "
                    "Single gains are not corrected for having been chosen; the intervals of values are."
                ),
            ]
        return found

    def _tail(self) -> list[Block]:
        noise = ", ".join(f"{name} {number(scale)}" for name, scale in self.noise.items())
        return [
            Heading(2, "How to read this"),
            Paragraph(f"Standard deviation of the noise in one released count: {noise}."),
            Paragraph(
                "An interval covers noise and sampling (normal, 2 deviations to either side at 95 %), lack "
                "of support (pairs whose count does not stand out of its noise may be worth anything that "
                "an episode can still earn), and the choice of the policy by the same release, whose noise "
                "made it look better. A wide interval says that the release cannot tell; more people or "
                "more budget can."
            ),
            Paragraph(
                "Values suppose that the state holds all that matters for what follows (no hidden cause of "
                "both action and outcome): no release can test that."
            ),
        ]

    # ---------------------------------------------------------------------------- figures
    def figures(self, folder: Path | str) -> tuple[Path, ...]:
        """Draw one figure of the values with their intervals and one of the support, as PNG and SVG files.

        Returns the paths of the files.
        """
        return save_figures(folder, {"values": self._values_figure(), "support": self._support_figure()})

    def _values_figure(self) -> Figure:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7.0, 0.9 + 0.45 * len(self.values)), layout="constrained")
        axes = figure.add_subplot()
        for row, (name, value) in enumerate(self.values.items()):
            colour = "#D55E00" if name == BEHAVIOUR else "#0072B2"
            axes.plot([value.low, value.high], [row, row], color=colour, linewidth=2.2, solid_capstyle="butt")
            if value.known:
                axes.plot([value.estimate], [row], "o", color=colour, markersize=5)
        axes.axvline(
            self.values[BEHAVIOUR].estimate, color="0.5", linewidth=0.8, linestyle=(0, (3, 3)), zorder=0
        )
        axes.set_yticks(range(len(self.values)), list(self.values))
        axes.invert_yaxis()
        axes.set_xlabel(f"value, with {100 * self.level:g} % interval ({self.users:,} people)")
        plain_axes(axes)
        return figure

    def _support_figure(self) -> Figure:
        from matplotlib.colors import ListedColormap
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=(7.0, 3.4), layout="constrained")
        axes = figure.add_subplot()
        order = np.argsort(-self.visits.sum(axis=0), kind="stable")
        colours = ("#0072B2", "#9CCBE8", "#E69F00", "#D9D9D9")
        seen = self.visits > _CLEAR * self.noise["visits of a state"]
        kind = np.where(self.support, np.where(self.undecided, 1, 0), np.where(seen, 2, 3))[:, order]
        axes.imshow(
            kind,
            aspect="auto",
            interpolation="nearest",
            cmap=ListedColormap(colours),
            vmin=-0.5,
            vmax=3.5,
            origin="lower",
            extent=(
                -0.5,
                kind.shape[1] - 0.5,
                self.first_step - 0.5,
                self.first_step + len(kind) - 0.5,
            ),
        )
        axes.set_xlabel("states, the most visited first")
        axes.set_ylabel("step")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True))
        words = (
            "supported",
            "supported, no advice",
            "visited, not supported",
            "visits do not stand out of noise",
        )
        figure.legend(
            handles=[Patch(color=colour, label=word) for colour, word in zip(colours, words, strict=True)],
            loc="outside lower left", ncols=4, fontsize=7.5, frameon=False,
        )  # fmt: skip
        plain_axes(axes)
        return figure


_DEPLOYED = {
    "abstain": (
        "Where the learned policy lacks support it abstains, and people go on as before: so it was evaluated."
    ),
    "behaviour": "Where the learned policy lacks support people go on as before: so it was evaluated.",
    "policy": "The learned action is played also where it lacks support: so it was evaluated.",
}


def make_report(
    release: StepwiseRelease,
    learned: OfflinePolicy,
    spec: ProblemSpec,
    *,
    unsupported: Unsupported = "abstain",
    level: float = 0.95,
    return_bound: float | None = None,
    episodes_per_user: int = 1,
    labels: Mapping[str, Sequence[str]] | None = None,
    first_step: int = 0,
) -> Report:
    """Return the report on a policy and the release from which it was learned. No user data are read.

    Parameters
    ----------
    release : StepwiseRelease
        The release. The function reads it twice, step by step.
    learned : OfflinePolicy
        Policy that was learned from this release.
    spec : ProblemSpec
        The layout, known rewards, and the rule for returns: units, bounds, and terminal states. Visits of
        terminal states do not count as decisions. All values are in the units of the return.
    unsupported : "abstain", "behaviour" or "policy"
        Action at steps and states where the policy lacks support, as in the module docstring.
    level, return_bound, episodes_per_user
        Passed to :func:`~discreet.learners.ope.count_estimates.evaluate`, which describes them.
    labels : {"states": names, "actions": names}, optional
        Public names of the states and the actions. By default, their indices are used as names.
    first_step : int
        Number of an episode's first step in the data and in the report.

    Raises
    ------
    ValueError
        If an argument has an invalid value, or if arguments are inconsistent.
    """
    checks.choice("unsupported", unsupported, ("abstain", "behaviour", "policy"))
    shape = (spec.layout.horizon, spec.layout.states)
    if learned.policy.shape != shape or learned.supported.shape != shape:
        raise ValueError(f"learned.policy has shape {learned.policy.shape}: must be {shape}")
    names = _names(labels, spec.layout.states, spec.layout.actions)
    deployed = _Deployed(learned, spec, unsupported)
    found = evaluate(
        release, spec, deployed.candidates(), level=level, return_bound=return_bound,
        episodes_per_user=episodes_per_user,
    )  # fmt: skip
    return _report(release, deployed, found, names, first_step)


class _Deployed:
    """Deployed policy, and tables (H, S) of its support."""

    def __init__(self, learned: OfflinePolicy, spec: ProblemSpec, unsupported: Unsupported) -> None:
        self.learned, self.spec, self.unsupported = learned, spec, unsupported
        layout = spec.layout
        self.live = np.ones(layout.states, bool)
        self.scale, self.offset = 1.0, 0.0
        if spec.returns is not None:
            self.live[list(spec.returns.terminal)] = False
            self.scale = spec.returns.high - spec.returns.low
            self.offset = layout.horizon * spec.returns.low
        self.lacks = ~np.asarray(learned.supported, bool) & self.live
        self.leaves = self.lacks if unsupported != "policy" else np.zeros_like(self.lacks)
        top = learned.q.max(axis=-1, keepdims=True)
        open_to_choice = ((layout.row_index >= 0).sum(axis=1) > 1) & self.live
        self.tied = ((learned.q == top).sum(axis=-1) > 1) & open_to_choice

    def candidates(self) -> dict[str, PolicyEstimate]:
        """Return the policies to evaluate, by name."""
        policy, scores = self.learned.policy, self.learned.q
        candidates = {"learned": PolicyEstimate(policy, self.leaves, chosen=True, scores=scores)}
        if self.unsupported != "policy" and self.lacks.any():
            candidates["learned everywhere"] = PolicyEstimate(policy, chosen=True, scores=scores)
        candidates["uniform"] = PolicyEstimate(uniform(self.spec.layout))
        return candidates

    def visits(self, found: Evaluation) -> tuple[Floats, Floats, float]:
        """Return three estimates: visits, visits with the policy's action, and the number of decisions.

        The first two are tables (H, S). The second counts the visits in which users took the action that the
        policy selects. Visits of terminal states are not counted.
        """
        layout, counts = self.spec.layout, found.counts.visits
        visits = np.where(self.live, np.add.reduceat(counts, layout.state_ptr[:-1], axis=1), 0.0)
        # The number of decisions is known exactly if no episode can end before the last step.
        whole = found.counts.episodes * layout.horizon
        decisions = whole if self.live.all() else max(float(visits.sum()), 1.0)
        rows = layout.row_index[np.arange(layout.states), self.learned.policy]
        own = np.where(self.live, counts[np.arange(layout.horizon)[:, None], rows], 0.0)
        return visits, own, decisions


def _report(
    release: StepwiseRelease, deployed: _Deployed, found: Evaluation,
    names: tuple[Sequence[str], Sequence[str]], first_step: int,
) -> Report:  # fmt: skip
    """Return the report on the deployed policy.

    - found : values that were estimated from the release.
    """
    spec, learned, live, lacks = deployed.spec, deployed.learned, deployed.live, deployed.lacks
    scale, offset = deployed.scale, deployed.offset
    differences = {
        f"learned less {other}": found.difference("learned", other) for other in (BEHAVIOUR, "uniform")
    }
    better = differences[f"learned less {BEHAVIOUR}"].lower > 0.0
    values = {name: value.in_units(scale, offset) for name, value in found.values.items()}
    visits, own, decisions = deployed.visits(found)
    undecided = deployed.tied & ~deployed.leaves
    leads = ~deployed.leaves & ~undecided & live
    sizes = np.diff(spec.layout.state_ptr).astype(np.float64)
    order = ("learned", "learned everywhere", BEHAVIOUR, "uniform")
    return Report(
        verdict=_verdict(values, found.level, better),
        better=better,
        unsupported=deployed.unsupported,
        values={name: values[name] for name in order if name in values},
        differences={name: value.in_units(scale, 0.0) for name, value in differences.items()},
        unsupported_share=share_of(visits[lacks].sum() / decisions),
        unsupported_deviation=float(found.counts.sigma * np.sqrt((lacks * sizes).sum()) / decisions),
        unsupported_pairs=float(lacks[:, live].mean()) if live.any() else 0.0,
        gaps=_gaps(visits, lacks, found.counts.sigma * np.sqrt(sizes), names[0], first_step),
        undecided_share=share_of(visits[undecided].sum() / decisions),
        changed_share=share_of((visits - own)[~deployed.leaves].sum() / decisions),
        changes=_changes(found, learned, spec, visits, own, leads, names, first_step, scale),
        noise={
            **{word: release.laws[name].std() for name, word in _FAMILIES.items() if name in release.laws},
            "visits of a state": float(found.counts.sigma * np.sqrt(sizes.mean())),
        },
        users=release.users,
        level=found.level,
        least=offset + scale * found.least,
        bound=offset + scale * found.bound,
        guarantee=str(release.guarantee),
        support=~lacks[:, live],
        undecided=deployed.tied[:, live],
        visits=visits[:, live],
        first_step=first_step,
    )


_FAMILIES = {VISITS: "visits", TRANSITIONS: "transitions", CENTERED_REWARDS: "rewards"}


def _verdict(values: Mapping[str, ValueEstimate], level: float, better: bool) -> str:
    learned, behaviour = values["learned"], values[BEHAVIOUR]
    percent = f"{100 * level:g} %"
    estimate = f"; estimate {number(learned.estimate)}" if learned.known else ""
    numbers = (
        f"its value is at least {number(learned.lower)} (one-sided {percent} lower bound{estimate}), that of "
        f"what people did {number(behaviour.estimate)} ({number(behaviour.low)} to {number(behaviour.high)}, "
        "two-sided)"
    )
    if better:
        return (
            "If no unrecorded cause drives both action and outcome, which this release cannot test, the "
            f"learned policy is better than what people did: {numbers}."
        )
    return (
        "Not shown to be better than what people did: the lower bound does not exceed the value of that; "
        f"{numbers}."
    )


def _names(
    labels: Mapping[str, Sequence[str]] | None, states: int, actions: int
) -> tuple[Sequence[str], Sequence[str]]:
    found: list[Sequence[str]] = []
    for kind, count in (("states", states), ("actions", actions)):
        own = None if labels is None else labels.get(kind)
        if own is not None and len(own) != count:
            raise ValueError(f"labels[{kind!r}] holds {len(own)} names: must hold {count}")
        # a bar or a line break in a name would end a cell of a table
        found.append(
            [str(n) for n in range(count)]
            if own is None
            else [" ".join(str(n).replace("|", "/").split()) for n in own]
        )
    return found[0], found[1]


def _gaps(
    visits: Floats, lacks: NDArray[np.bool_], deviation: Floats, names: Sequence[str], first_step: int
) -> tuple[Gap, ...]:
    """Return the steps and states without support that have the most visits.

    Only steps and states whose number of visits is clearly above the noise are returned.
    """
    counts = np.where(lacks & (visits > _CLEAR * deviation) & (visits >= 1.0), visits, -np.inf)
    best = np.argsort(-counts, axis=None, kind="stable")[:_ROWS]
    found = []
    for h, s in zip(*np.unravel_index(best, counts.shape), strict=True):
        if np.isfinite(counts[h, s]):
            found.append(Gap(int(h) + first_step, names[s], float(visits[h, s]), float(deviation[s])))
    return tuple(found)


def _changes(
    found: Evaluation, learned: OfflinePolicy, spec: ProblemSpec, visits: Floats, own: Floats,
    leads: NDArray[np.bool_], names: tuple[Sequence[str], Sequence[str]], first_step: int, scale: float,
) -> tuple[PolicyChange, ...]:  # fmt: skip
    """Return the changes that affect the most users.

    A change is a step and state at which the policy selects an action other than the users' most frequent
    action.
    """
    layout, counts = spec.layout, found.counts.visits
    table = layout.from_rows(counts, fill=-np.inf)
    usual = table.argmax(axis=-1)
    moved = np.where(leads & (usual != learned.policy), visits - own, -np.inf)
    gains, errors = found.gains["learned"], found.gain_errors["learned"]
    best = np.argsort(-moved, axis=None, kind="stable")[:_ROWS]
    changes = []
    for h, s in zip(*np.unravel_index(best, moved.shape), strict=True):
        if not moved[h, s] > 0.0:
            continue
        there = max(float(visits[h, s]), 1.0)
        a, b = int(usual[h, s]), int(learned.policy[h, s])
        known = bool(np.isfinite(gains[h, s]))
        changes.append(
            PolicyChange(
                int(h) + first_step,
                names[0][s],
                float(visits[h, s]),
                names[1][a],
                share_of(table[h, s, a] / there),
                names[1][b],
                share_of(table[h, s, b] / there),
                scale * float(gains[h, s]) if known else None,
                scale * float(errors[h, s]) if known else None,
            )
        )
    return tuple(changes)
