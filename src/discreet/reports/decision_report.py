"""Report on decision points: the changes that the policy makes, the estimated gain, and the conditions under
which it holds.

All results are post-processing of the release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from discreet.core.releases import Floats
from discreet.core.short_repr import brief
from discreet.data.schema import Schema
from discreet.learners.offline.decision_points import DecisionPolicy
from discreet.learners.ope.consistency_test import Discrepancies
from discreet.learners.ope.deviation_gains import Gain
from discreet.learners.ope.deviation_gains import Path as Points
from discreet.learners.ope.first_visit_query import VisitSums
from discreet.learners.ope.group_gains import GroupResult, groups_of
from discreet.learners.ope.mean_outcomes import MeanOutcome, outcomes_of
from discreet.learners.ope.policy_comparison import Policy, compare, policy_of
from discreet.learners.ope.verdict import Verdict
from discreet.mechanisms.interfaces import StepwiseRelease
from discreet.reports.comparison_text import (
    Compared,
    Difference,
    compared_blocks,
    compared_rows,
    plain_comparisons,
)
from discreet.reports.figures import number, percent, plain_axes, save_figures
from discreet.reports.report_files import ReportPage
from discreet.reports.rule_files import StationaryRule
from discreet.reports.verdict_text import REFUTED, first_sentence, rests_on
from discreet.utils.document import Block, Code, Heading, Paragraph, Picture, Strong, Table, Text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


VERSION = 2
_ROWS = 25  # largest number of rows in the table of changes
_STATES, _PANELS = 25, 9  # largest number of states in the table of outcomes and in the figure of outcomes

_OTHER_PLAN = (
    " or another learner gives another plan, and these intervals do not hold for it. To use the better of k "
    "results of one release, make each of them at the level 1 - (1 - level) / k."
)
_PLANNED = ("decision points", "world model")
_CHOSEN = {
    "": "",
    "world model": " The changes are one plan in a model of the first half: each counts on the others.",
    "decision points": (
        " A plan in a model of the first half was expected to gain less than these decision points, or less "
        "surely."
    ),
}
_NO_GAIN = Paragraph(
    "No row of this table says what a policy would gain: the release contradicts what all rows suppose (see "
    "the first line)."
)


@dataclass(frozen=True)
class StateChange:
    """State that the policy changes.

    Parameters
    ----------
    visits, deviation : estimated number of users who visited the state (first visits), and the standard
        deviation of the noise in this number
    usual, usual_share : the users' most frequent action, and the share of users who took it
    action, action_share : action that the policy selects, and the share of users who took it
    gain, gain_deviation : expected additional return of one changed decision, and the standard deviation.
        Both are estimated from the half of the information with which the change was chosen
    """

    state: str
    visits: float
    deviation: float
    usual: str
    usual_share: float
    action: str
    action_share: float
    gain: float
    gain_deviation: float


@dataclass(frozen=True)
class StateOutcome:
    """Outcome of one action in one state, as the report prints it.

    - changed : True if the policy changes this state.
    - asked : True if the policy also selects this action.
    """

    state: str
    action: str
    changed: bool
    asked: bool
    outcome: MeanOutcome

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON values. The numbers of a test that was not made are None."""
        numbers = {
            name: None if isinstance(value, float) and not np.isfinite(value) else value
            for name, value in self.outcome._asdict().items()
            if name != "row"
        }
        return {
            "state": self.state, "action": self.action, "changed": self.changed, "asked": self.asked,
            **numbers
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class DecisionReport(ReportPage):
    """Results for a policy of decision points, computed from the release.

    Parameters
    ----------
    verdict : the first line of the report
    judged : the numbers from which the verdict is computed
    gain : gain of the learned policy over the users' behaviour
    behaviour, learned : values of the users' behaviour and of the learned policy
    others : gains of policies that are defined without outcomes, for example the uniform policy, by name;
        None if too few users acted like the policy
    lacking : for each policy in ``others``, the share of its decisions without support
    changes : changed states, in decreasing order of visits
    changed_decisions : expected number of decisions in changed states, per episode
    agreeing : share of the decisions in changed states in which users took the action of the policy
    effective : effective number of decisions on which the gain is based (Kish's effective sample size)
    path : (number of changed states, estimate, low, high) of the gain of policies with more or fewer changes
    supported : share of decisions at (state, action) pairs whose counts are significantly above the noise
    ended : share of episodes that reached a terminal state before the last step
    compared : comparisons of the learned policy with rules
    measured : data from which the gain is estimated, "returns" or "transitions"
    outcomes : outcomes of actions, by state; changed states come first
    groups : label and result of each declared group of users
    planned : "world model" or "decision points" if the learner ``world-model`` chose it; otherwise empty
    """

    __repr__ = brief

    verdict: str
    judged: Verdict
    gain: Gain
    behaviour: Gain
    learned: Gain
    others: Mapping[str, Gain | None]
    lacking: Mapping[str, float]
    changes: tuple[StateChange, ...]
    states_changed: int
    changed_decisions: float
    agreeing: float
    effective: float
    supported: float
    path: tuple[tuple[int, float, float, float], ...]
    noise: Mapping[str, float]
    users: int
    bounds: tuple[float, float]
    guarantee: str
    ended: float
    measured: str
    outcomes: tuple[tuple[StateOutcome, ...], ...]
    groups: tuple[tuple[str, GroupResult], ...] = ()
    compared: tuple[Compared, ...] = ()
    planned: str = ""

    again: ClassVar[str] = "discreet replan release.parquet --set most_changes=N"
    made: ClassVar[str] = "This report is made from the release of {people} alone, and costs no more privacy."
    supposed: ClassVar[str] = (
        "the state holds all that matters for what follows. What of this can be tested, and what cannot, "
        'stands above under "What this rests on"'
    )
    cut_off: ClassVar[str] = (
        "of the episodes came to an end before the last step. If many are still under way then, and what "
        "people did changes with the time, the report can show a gain where there is none."
    )
    surer: ClassVar[str] = (
        "its error is smaller than that of what people were seen to earn. It rests more on the states: what "
        "they do not tell of people must not matter for where these go next."
    )

    @property
    def better(self) -> bool:
        """True if the gain is shown."""
        return self.judged.shown

    @property
    def _mark(self) -> str:
        """Note next to the gain in the table of gains; empty if the verdict is "shown"."""
        return "" if self.judged.shown else " (not shown)" if self.states_changed else " (nothing is changed)"

    def to_dict(self) -> dict[str, Any]:
        """Return the results as a dictionary of plain values that JSON can represent."""
        plain = {name: getattr(self, name) for name in (
            "verdict", "better", "states_changed", "changed_decisions", "agreeing", "effective", "supported",
            "users", "guarantee", "ended", "measured",
        )}  # fmt: skip
        return {
            "version": VERSION,
            "kind": "decision points",
            **plain,
            **judged_numbers(self.judged),
            "bounds": list(self.bounds),
            "gain": asdict(self.gain),
            "values": {"learned": asdict(self.learned), "behaviour": asdict(self.behaviour)},
            "others": {n: None if g is None else asdict(g) for n, g in self.others.items()},
            "lacking": dict(self.lacking),
            "changes": [asdict(change) for change in self.changes],
            "outcomes": [one.to_dict() for state in self.outcomes for one in state],
            "path": [list(point) for point in self.path],
            "noise": dict(self.noise),
            **plain_comparisons(self.compared),
            **({"planned": self.planned} if self.planned else {}),
            **({"groups": [_plain_group(*one) for one in self.groups]} if self.groups else {}),
        }

    def blocks(self) -> list[Block]:
        """Return all blocks of the report; the first block is the verdict."""
        return [
            *self._head(), *self._group_blocks(), *compared_blocks(self.compared, self.measured),
            *rests_on(self.judged), *self._change_blocks(), *self._outcome_blocks(), *self._tail(),
        ]  # fmt: skip

    def _head(self) -> list[Block]:
        level = f"{100 * self.gain.level:g} %"
        head = ("", "estimate", f"{level} interval", "sd of privacy's noise", "sd of who was in the data")
        rows: list[tuple[Text, ...]] = [
            ((Strong("learned less what people did"), self._mark), *_cells(self.gain)),
            ("learned", *_cells(self.learned)),
            ("what people did", *_cells(self.behaviour)),
        ]
        rows += [row for one in self.compared for row in compared_rows(one, _cells)]
        for name, gain in self.others.items():
            if gain is None:
                why = f"lacks support at {percent(self.lacking[name])} of decisions"
                rows.append((f"{name} less what people did", "cannot be told", why, "", ""))
            else:
                rows.append((f"{name} less what people did", *_cells(gain)))
        return [
            Paragraph(self.verdict, strong=True),
            Paragraph(f"{self.made.format(people=f'{self.users:,} people')} {self.guarantee}"),
            Heading(2, "What it gains"),
            Paragraph(
                f"Return of one episode, between {number(self.bounds[0])} and {number(self.bounds[1])}, with "
                f"{level} intervals (two-sided)."
            ),
            Table("", head, tuple(rows)),
            *([_NO_GAIN] if self.judged.kind in REFUTED else []),
            Paragraph(
                "The gain is estimated as a difference, in changed states only: where the policy acts as "
                "people did, errors cancel. Changes were chosen by one half of the information in the "
                "release and are judged by the other, so the interval is not flattered by the choice, and "
                "it holds together with those of all other numbers of changes below. The last rows are "
                "policies that need no data, for one decision a state."
            ),
        ]

    def _group_blocks(self) -> list[Block]:
        """Return the section about groups of users; empty if no groups are declared."""
        if not self.groups:
            return []
        level = f"{100 * self.gain.level:g} %"
        head = (
            "group", "people (± noise)", f"what they earned ({level} interval)",
            "expected from where they began", "standard errors apart",
            f"gain, if actions do the same in every group ({level} interval)",
        )  # fmt: skip
        rows: list[tuple[Text, ...]] = []
        for label, one in self.groups:
            few = np.isnan(one.mean)
            rows.append((
                label, f"{one.users:,.0f} ± {one.deviation:,.0f}",
                "too few people" if few else
                f"{number(one.mean)} ({number(one.low)} to {number(one.high)})",
                "not tested" if np.isnan(one.apart) else number(one.expected),
                "" if np.isnan(one.apart) else f"{one.apart:.1f}",
                "not told" if np.isnan(one.gain) else
                f"{number(one.gain)} ({number(one.gain_low)} to {number(one.gain_high)})",
            ))  # fmt: skip
        blocks: list[Block] = [
            Heading(2, "By group"),
            Table("", head, tuple(rows)),
            Paragraph(
                "Groups and their labels were declared before the data were read. The intervals of a "
                "column hold for all groups together (Bonferroni), and for this policy alone. The gain of "
                "a group is that of the policy for people who begin where this group begins. It supposes "
                "that an action in a state does the same in every group. This cannot be tested here: a "
                "group that the changes harm can have earned just what was expected, and its gain then "
                "stands above 0 all the same. If what a group earned does not follow from where it began, "
                "the recorded state leaves out something that the group tells; this is tested below, among "
                "the states."
            ),
        ]
        why = ""
        if self.judged.censored is not None:
            why = "the outcome of some people is not known, and the interval of a group does not allow for it"
        elif self.measured != "transitions":
            why = (
                "the gain of all people is read off what they earned, which does not say how it is shared "
                "among groups"
            )
        if why and self.states_changed:
            blocks.append(Paragraph(f"No gain by group is sums in this release: {why}."))
        return blocks

    def _change_blocks(self) -> list[Block]:
        heading = Heading(2, "What is changed")
        if not self.changes:
            nothing = Paragraph("Nothing: no change is expected to help by more than its error.")
            return [heading, nothing, *self._path_picture()]
        head = (
            "state", "people there (± noise)", "usual action", "changed to",
            "expected gain of the decision (± sd)",
        )  # fmt: skip
        rows: list[tuple[str, ...]] = []
        for one in self.changes[:_ROWS]:
            always = "always " if one.action == one.usual else ""
            rows.append((
                one.state, f"{one.visits:,.0f} ± {one.deviation:,.0f}",
                f"{one.usual} ({percent(one.usual_share)})",
                f"{always}{one.action} ({percent(one.action_share)})",
                f"{number(one.gain)} ± {number(one.gain_deviation)}",
            ))  # fmt: skip
        more = len(self.changes) - _ROWS
        left = [Paragraph((f"and {more} more, in policy.csv (", Code("supported"), " = 1)."))]
        points = tuple(
            (str(count), number(estimate), f"{number(low)} to {number(high)}")
            for count, estimate, low, high in self.path[:: max(1, len(self.path) // 8)]
        )
        return [
            heading,
            Paragraph(
                f"{self.states_changed} changed; elsewhere go on as before. An episode comes to a changed "
                f"state {number(self.changed_decisions)} times on average (first visits); "
                f"{percent(self.agreeing)} of these decisions were taken that way already. The comparison "
                f"rests on {self.effective:,.0f} effective decisions.{_CHOSEN[self.planned]}"
            ),
            Table("", head, tuple(rows)),
            *(left if more > 0 else []),
            Heading(2, "Fewer or more changes"),
            Paragraph((
                "Any of these can be had from the same release (",
                Code(self.again),
                *(() if self.planned else (", or ", Code("caution"))),
                "): the intervals hold for all of them together, however often one looks.",
                *((" Another ", Code("caution"), _OTHER_PLAN) if self.planned else ()),
            )),
            Table("", ("states changed", "gain", "interval"), points),
            *self._path_picture(),
        ]  # fmt: skip

    def _path_picture(self) -> list[Block]:
        said = (
            "Curve of the gain over what people did against the number of states changed, with its "
            f"{100 * self.gain.level:g} % interval."
        )
        if self.changes:
            said += " The table above has numbers of this curve."
        return [Picture("gain", said)] if self.path else []

    def _outcome_blocks(self) -> list[Block]:
        """Return the section with the table of outcomes by state and action."""
        if not self.outcomes:
            return []
        level = f"{100 * self.gain.level:g} %"
        head = (
            "state", "action", "people (± noise)", "share", f"what they earned ({level} interval)",
            "expected from where they went next", "standard errors apart",
        )  # fmt: skip
        rows: list[tuple[Text, ...]] = []
        for one in (action for state in self.outcomes for action in state):
            o = one.outcome
            untested = np.isnan(o.expected)
            rows.append((
                one.state, (Strong(one.action), " (asked for)") if one.asked else one.action,
                f"{o.users:,.0f} ± {o.deviation:,.0f}", percent(o.share),
                f"{number(o.mean)} ({number(o.low)} to {number(o.high)})",
                "not tested" if untested else
                f"{number(o.expected)} ({number(o.expected_low)} to {number(o.expected_high)})",
                "" if untested else f"{o.apart:.1f}",
            ))  # fmt: skip
        return [
            Heading(2, "What people earned, by action"),
            Paragraph(
                "People at their first visit to a state, by what was done there: what they earned from "
                "there on, and what follows from where they went next. Both should agree. People who were "
                "treated differently may have been different people: a difference between two lines of one "
                "state is an effect of the action only if the state holds all that matters. Intervals are "
                "for each line alone: of twenty, one may miss the truth. Changed states come first."
            ),
            Table("", head, tuple(rows), names=2),
            Picture(
                "outcomes",
                "For each state, by action: what people earned, and what is expected from where they went "
                "next, with intervals. The table above has these numbers.",
            ),
        ]

    def _tail(self) -> list[Block]:
        noise = ", ".join(f"{name} {number(scale)}" for name, scale in self.noise.items())
        return [
            Heading(2, "How to read this"),
            Paragraph(
                f"Standard deviation of the noise in one released sum: {noise}. {percent(self.supported)} of "
                "people's decisions are at a (state, action) whose count stands out of its noise; other "
                "actions are never offered."
            ),
            Paragraph(self._read_off()),
            Paragraph(
                "An interval supposes that the world is the same at every step, that what people did depends "
                f"on the state and not on the step, and that {self.supposed}. {percent(self.ended)} "
                f"{self.cut_off}"
            ),
        ]

    def _read_off(self) -> str:
        if self.measured == "transitions":
            return (
                "The gain is read off where people went on to, step by step, and what is paid there: that "
                "of the policy and of what people did, in one model of the released transitions. In this "
                f"release {self.surer}"
            )
        return (
            "The gain is read off what people were seen to earn. A policy that changes decisions changes who "
            "comes where. In a model of the released transitions later visits and earlier changes together "
            f"multiply the gain of first decisions by {number(self.gain.revisits)} (± "
            f"{number(self.gain.revisits_error)}); the interval holds that error."
        )

    # ---------------------------------------------------------------------------- figures
    def figures(self, folder: Path | str) -> tuple[Path, ...]:
        """Draw a figure of the gain by number of changed states, and a figure of the outcomes by action.

        The figures are PNG and SVG files. Returns their paths.
        """
        drawn = {"gain": self._figure()}
        if self.outcomes:
            drawn["outcomes"] = self._outcome_figure()
        return save_figures(folder, drawn)

    def _outcome_figure(self) -> Figure:
        """Draw one panel per state, with one row per action.

        A row shows the users' mean return and the return expected from the next states, with confidence
        intervals.
        """
        from matplotlib.figure import Figure

        states = self.outcomes[:_PANELS]
        columns = min(3, len(states))
        lines = -(-len(states) // columns)
        most = max(len(state) for state in states)
        figure = Figure(figsize=(3.2 * columns + 0.6, lines * (0.9 + 0.36 * most)), layout="constrained")
        panels = figure.subplots(lines, columns, squeeze=False, sharex=True).ravel()
        for panel, state in zip(panels, states, strict=False):
            for y, one in enumerate(state):
                o = one.outcome
                readings = (o.mean, o.low, o.high, "#0072B2", -0.12), (
                    o.expected, o.expected_low, o.expected_high, "#D55E00", 0.12,
                )  # fmt: skip
                for mean, low, high, colour, shift in readings:
                    if not np.isnan(mean):
                        panel.plot([low, high], [y + shift] * 2, color=colour, linewidth=1.8)
                        panel.plot([mean], [y + shift], "o", color=colour, markersize=4)
            names = [f"{one.action} *" if one.asked else one.action for one in state]
            panel.set_yticks(range(len(state)), [name[:24] for name in names], fontsize=8)
            panel.set_ylim(len(state) - 0.5, -0.5)
            panel.set_title(state[0].state[:40], fontsize=9)
            plain_axes(panel)
        for panel in panels[len(states) :]:
            panel.set_visible(False)
        figure.supxlabel(
            "blue: what people earned; orange: expected from where they went next; *: asked for", fontsize=8
        )
        return figure

    def _figure(self) -> Figure:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=(7.0, 3.2), layout="constrained")
        axes = figure.add_subplot()
        if self.path:
            count, estimate, low, high = np.array(self.path).T
            axes.fill_between(count, low, high, color="#0072B2", alpha=0.18, linewidth=0.0)
            axes.plot(count, estimate, color="#0072B2", linewidth=1.6)
        axes.axhline(0.0, color="0.5", linewidth=0.8, linestyle=(0, (3, 3)), zorder=0)
        if self.states_changed:
            gain = self.gain
            axes.plot([self.states_changed] * 2, [gain.low, gain.high], color="#D55E00", linewidth=2.2)
            axes.plot([self.states_changed], [gain.estimate], "o", color="#D55E00", markersize=5)
        axes.set_xlabel("states changed")
        axes.set_ylabel("gain over what people did")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        level = f"{100 * self.gain.level:g} %"
        axes.set_title(f"{level} intervals, for all points together ({self.users:,} people)", fontsize=9)
        plain_axes(axes)
        return figure


def _cells(value: Gain) -> tuple[str, ...]:
    interval = f"{number(value.low)} to {number(value.high)}"
    return number(value.estimate), interval, number(value.noise), number(value.sampling)


def decision_report_of(
    release: StepwiseRelease, learned: DecisionPolicy, schema: Schema, rules: Sequence[StationaryRule] = ()
) -> DecisionReport:
    """Return the report on a policy of decision points, computed from the policy and its release.

    rules : rules with which the policy is compared.
    """
    path, gain, judged = learned.path, learned.gain, learned.verdict
    sums = path.sums
    names = LabelNames(schema, sums)
    behaviour = path.behaviour()
    least, most = sums.question.bounds
    others, lacking = {}, {}
    for name, weights in _plain_policies(path).items():
        others[name], lacking[name] = path.plain(weights)
    own = path.order[: learned.changes]
    rows = sums.layout.row_index[own, path.action[own]]
    share = path.share[rows]
    visits = path.visits[own]
    # First-order importance weights: 1 / share for users who took the action of the policy, and 0 for other
    # users. Here, share is the share of users who took the action of the policy.
    effective = float(visits.sum() ** 2 / max(float((visits / np.maximum(share, 1e-9)).sum()), 1e-12))
    learned_value = Gain(
        min(max(behaviour.estimate + gain.estimate, least), most), max(behaviour.low + gain.low, least),
        min(behaviour.high + gain.high, most), gain.level, float(np.hypot(behaviour.noise, gain.noise)),
        float(np.hypot(behaviour.sampling, gain.sampling)), gain.revisits, gain.revisits_error,
    )  # fmt: skip
    ended = sums.ended
    weight = np.maximum(sums.visits, 0.0) * sums.decided
    return DecisionReport(
        verdict=first_sentence(judged, behaviour, learned.changes, ended, names.row),
        judged=judged,
        gain=gain,
        behaviour=behaviour,
        learned=learned_value,
        others=others,
        lacking=lacking,
        changes=_changes(learned, schema),
        states_changed=learned.changes,
        changed_decisions=float(visits.sum()),
        agreeing=float((visits * share).sum() / max(float(visits.sum()), 1e-12)),
        effective=effective * sums.episodes if visits.size else 0.0,
        ended=ended,
        supported=float(weight[path.supported].sum() / max(float(weight.sum()), 1e-12)),
        path=_points(path),
        noise={"visits": sums.noise.visits, "transitions": sums.noise.moves, "returns": sums.noise.returns},
        users=release.users,
        bounds=(least, most),
        guarantee=str(learned.guarantee),
        measured=path.measured,
        outcomes=_outcomes(learned, names),
        groups=_groups(learned, schema),
        planned=_PLANNED[path.proposed is not None] if path.parts is not None else "",
        compared=_compared(learned, rules, names, ended),
    )


def _compared(
    learned: DecisionPolicy, rules: Sequence[StationaryRule], names: LabelNames, ended: float
) -> tuple[Compared, ...]:
    """Compare the learned policy with each rule, with simultaneous confidence intervals."""
    path, found = learned.path, []
    sums, many = path.sums, len(rules)
    for i, rule in enumerate(rules):
        policy = policy_of(sums.question, rule.table, rule.named)
        level = 1.0 - (1.0 - path.level) / many
        one = compare(path, learned.changes, learned.verdict, policy, level)
        own = np.flatnonzero(one.differs)
        order = own[np.argsort(-path.visits[own], kind="stable")].tolist()
        found.append(
            Compared(
                "your rule" if many == 1 else f"your rule {i + 1}",
                one,
                tuple(_difference(learned, policy, names, s) for s in order),
                learned.verdict.kind,
                ended,
                level,
                many > 1,
            )
        )
    return tuple(found)


def _difference(learned: DecisionPolicy, policy: Policy, names: LabelNames, s: int) -> Difference:
    path = learned.path
    layout = path.sums.layout
    usual = int(learned.behaviour[0][s])
    asked = "as before"
    if policy.named[s]:
        rows = np.arange(layout.state_ptr[s], layout.state_ptr[s + 1])
        rows = rows[policy.weights[rows] > 0.0]
        if rows.size == 1:
            asked = f"always {names.row(int(rows[0]))[1]}"
        else:
            parts = (f"{names.row(int(r))[1]} {percent(float(policy.weights[r]))}" for r in rows)
            asked = ", ".join(parts)
    return Difference(
        names.state(s),
        float(path.visits[s] * path.sums.episodes),
        names.action(usual),
        float(path.share[layout.row_index[s, usual]]),
        f"always {names.action(int(path.action[s]))}" if learned.changed[s] else "as before",
        asked,
    )


def judged_numbers(found: Verdict) -> dict[str, Any]:
    """Return the numbers of a verdict as JSON values."""
    test, cause = found.consistency, found.cause

    def of(tested: Discrepancies) -> dict[str, Any]:
        return {
            "tested": int(tested.where.size), "rejects": tested.rejects, "largest_z": tested.largest_z,
            "p": tested.p, "size": test.scale * tested.size,
        }  # fmt: skip

    return {
        "verdict_kind": found.kind,
        "hidden_cause": {
            "asked": found.asked, "each_step": cause.each_step, "lasting": cause.one_decision,
            "recorded": cause.recorded,
        },
        "consistency": {"made": test.tested, "contrasts": of(test.contrasts), "levels": of(test.levels)},
        "covered": found.covered,
        "hinted": found.hinted,
        "censored": None if found.censored is None else found.censored._asdict(),
    }  # fmt: skip


def _plain_policies(path: Points) -> dict[str, Floats]:
    """Return the action probabilities of policies that are defined without outcomes, by name of the policy.

    The probabilities are in the order of the rows of the layout.
    """
    sums = path.sums
    layout = sums.layout
    begins, sizes = layout.state_ptr[:-1], np.diff(layout.state_ptr)
    uniform = (1.0 / sizes)[layout.row_state]
    first = np.zeros(layout.rows)
    first[begins] = 1.0
    table = layout.from_rows(sums.visits[None], fill=-np.inf)[0]
    often = np.zeros(layout.rows)
    often[layout.row_index[np.arange(layout.states), table.argmax(axis=1)]] = 1.0
    return {"uniform": uniform, "first action": first, "most frequent action": often}


def _groups(learned: DecisionPolicy, schema: Schema) -> tuple[tuple[str, GroupResult], ...]:
    """Return the label and the result of each group of users."""
    found = groups_of(learned.path, learned.changes, learned.verdict.consistency)
    labels = None if schema.groups is None else schema.groups.labels
    return tuple((_label(labels, one.group), one) for one in found)


def _plain_group(label: str, one: GroupResult) -> dict[str, Any]:
    """Return the result of a group as JSON values. Numbers that are not reported are None."""
    numbers = {
        name: None if isinstance(value, float) and not np.isfinite(value) else value
        for name, value in one._asdict().items()
    }
    return {**numbers, "group": label}


class LabelNames:
    """Labels of the states and actions of a schema, written so that they can be cells of a table."""

    def __init__(self, schema: Schema, sums: VisitSums) -> None:
        self._states, self._actions, self._layout = schema.state_labels, schema.action_labels, sums.layout

    def state(self, index: int) -> str:
        """Return the label of a state."""
        return _label(self._states, index)

    def action(self, index: int) -> str:
        """Return the label of an action."""
        return _label(self._actions, index)

    def row(self, row: int) -> tuple[str, str]:
        """Return the label of the state and the label of the action that belong to a row of the layout."""
        return self.state(int(self._layout.row_state[row])), self.action(int(self._layout.row_action[row]))


def _label(labels: tuple[str, ...] | None, index: int) -> str:
    return str(index) if labels is None else " ".join(labels[index].replace("|", "/").split())


def _outcomes(learned: DecisionPolicy, names: LabelNames) -> tuple[tuple[StateOutcome, ...], ...]:
    """Return the outcomes of actions for at most ``_STATES`` states, changed states first, then by visits."""
    path = learned.path
    found = outcomes_of(path.sums, learned.verdict.consistency, path.level)
    changed = path.changed(learned.changes)
    order = sorted(found, key=lambda s: (not changed[s], -float(path.visits[s])))
    return tuple(
        tuple(
            StateOutcome(
                *names.row(one.row),
                bool(changed[s]),
                bool(changed[s]) and int(path.sums.layout.row_action[one.row]) == int(path.action[s]),
                one,
            )
            for one in found[s]
        )
        for s in order[:_STATES]
    )


def _changes(learned: DecisionPolicy, schema: Schema) -> tuple[StateChange, ...]:
    path = learned.path
    sums, layout = path.sums, path.sums.layout
    least, most = sums.question.bounds
    named = LabelNames(schema, sums)
    own = path.order[: learned.changes]
    own = own[np.argsort(-path.visits[own], kind="stable")]
    usual = learned.behaviour[0]
    cells = np.diff(layout.state_ptr)

    return tuple(
        StateChange(
            named.state(s),
            float(path.visits[s] * sums.episodes),
            float(sums.noise.visits * np.sqrt(cells[s])),
            named.action(int(usual[s])),
            float(path.share[layout.row_index[s, usual[s]]]),
            named.action(int(path.action[s])),
            float(path.share[layout.row_index[s, path.action[s]]]),
            float((most - least) * path.shrunk[s]),
            float((most - least) * path.spread[s]),
        )
        for s in own.tolist()
    )


def _points(path: Points) -> tuple[tuple[int, float, float, float], ...]:
    """Return (number of changes, estimate, low, high) of the gain for each point of the path.

    The last point has the largest number of changes.
    """
    gains = ((int(count), path.gain(int(count))) for count in path.points)
    return tuple((count, gain.estimate, gain.low, gain.high) for count, gain in gains)
