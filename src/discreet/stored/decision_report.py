"""The report on decision points: what is changed, what that is shown to gain, and what it rests on.

Everything is computed from the release, the policy that was learned from it and public facts: it costs no
privacy. The first line says whether the changes are shown to be better than going on as before. All numbers
are in the units of the data; labels are the schema's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from discreet.core.shown import brief
from discreet.data.schema import Schema
from discreet.offline.decision_points import DecisionPolicy
from discreet.offline.deviations import Gain
from discreet.offline.deviations import Path as Points
from discreet.protocol import StepwiseRelease
from discreet.stored.figures import number, percent, plain_axes, save_figures
from discreet.tables import markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

VERSION = 1
_ROWS = 25  # of the table of changes
_ENDED = 0.97  # share of episodes that come to an end, below which the time that is left may matter

__all__ = ["Change", "DecisionReport", "decision_report_of"]


@dataclass(frozen=True)
class Change:
    """One changed state.

    visits : how many people came there (their first visits), and deviation, due to noise. usual, usual_share
    : what they did most often, and how often; action, action_share : what the policy asks for. gain : what
    one such decision is expected to earn more, by the half of the data that chose, and its deviation.
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


@dataclass(frozen=True, eq=False)
class DecisionReport:
    """What can be said of a policy of decision points from its release.

    verdict : the first line. better : whether the whole interval of the gain is above 0.
    gain : over what people did. behaviour, learned : values. others : gains of policies that need no data,
    None where too few people did as they do; lacking : their share of decisions where that is so.
    changes : the states that are changed, those most visited first. changed_decisions : decisions an
    episode, as people made them, in changed states; agreeing : the share of these that people took as the
    policy asks.
    effective : people's decisions that carry the comparison (Kish's effective sample size).
    path : (states changed, estimate, low, high) of points of the path. supported : share of people's
    decisions at pairs that stand out of noise. ended : share of episodes that came to a terminal state.
    measured : "returns" or "transitions", what the gain is read off.
    """

    __repr__ = brief

    verdict: str
    better: bool
    gain: Gain
    behaviour: Gain
    learned: Gain
    others: Mapping[str, Gain | None]
    lacking: Mapping[str, float]
    changes: tuple[Change, ...]
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

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        plain = {name: getattr(self, name) for name in (
            "verdict", "better", "states_changed", "changed_decisions", "agreeing", "effective", "supported",
            "users", "guarantee", "ended", "measured",
        )}  # fmt: skip
        return {
            "version": VERSION,
            "kind": "decision points",
            **plain,
            "bounds": list(self.bounds),
            "gain": asdict(self.gain),
            "values": {"learned": asdict(self.learned), "behaviour": asdict(self.behaviour)},
            "others": {n: None if g is None else asdict(g) for n, g in self.others.items()},
            "lacking": dict(self.lacking),
            "changes": [asdict(change) for change in self.changes],
            "path": [list(point) for point in self.path],
            "noise": dict(self.noise),
        }

    def to_markdown(self) -> str:
        """One to two pages; the first line is the verdict."""
        return "\n".join([*self._head(), *self._change_lines(), *self._tail(), ""])

    def _head(self) -> list[str]:
        level = f"{100 * self.gain.level:g} %"
        lines = [
            f"**{self.verdict}**", "",
            f"From the release of {self.users:,} people alone; it costs no privacy. {self.guarantee}", "",
            "## What it gains", "",
            f"Return of one episode, between {number(self.bounds[0])} and {number(self.bounds[1])}, with "
            f"{level} intervals (two-sided).", "",
        ]  # fmt: skip
        rows: list[tuple[str, ...]] = [(
            "", "estimate", f"{level} interval", "sd of privacy's noise", "sd of who was in the data",
        )]  # fmt: skip
        named = {
            "**learned less what people did**": self.gain,
            "learned": self.learned,
            "what people did": self.behaviour,
        }
        for name, value in named.items():
            rows.append((name, *_cells(value)))
        for name, gain in self.others.items():
            if gain is None:
                why = f"lacks support at {percent(self.lacking[name])} of decisions"
                rows.append((f"{name} less what people did", "cannot be told", why, "", ""))
            else:
                rows.append((f"{name} less what people did", *_cells(gain)))
        return [
            *lines, markdown(rows), "",
            "The gain is estimated as a difference, in changed states only: where the policy acts as people "
            "did, "
            "errors cancel. Changes were chosen by one half of the information in the release and are "
            "judged by "
            "the other, so the interval is not flattered by the choice, and it holds together with those of "
            "all "
            "other numbers of changes below. The last rows are policies that need no data, for one decision "
            "a "
            "state.", "",
        ]  # fmt: skip

    def _change_lines(self) -> list[str]:
        lines = ["## What is changed", ""]
        if not self.changes:
            return [*lines, "Nothing: no change is expected to help by more than its error.", ""]
        lines += [
            f"{self.states_changed} changed; elsewhere go on as before. An episode comes to a changed state "
            f"{number(self.changed_decisions)} times on average (first visits); {percent(self.agreeing)} of "
            f"these "
            f"decisions were taken that way already. The comparison rests on {self.effective:,.0f} effective "
            "decisions.", "",
        ]  # fmt: skip
        rows: list[tuple[str, ...]] = [(
            "state", "people there (± noise)", "usual action", "changed to",
            "expected gain of the decision (± sd)",
        )]  # fmt: skip
        for one in self.changes[:_ROWS]:
            always = "always " if one.action == one.usual else ""
            rows.append((
                one.state, f"{one.visits:,.0f} ± {one.deviation:,.0f}",
                f"{one.usual} ({percent(one.usual_share)})",
                f"{always}{one.action} ({percent(one.action_share)})",
                f"{number(one.gain)} ± {number(one.gain_deviation)}",
            ))  # fmt: skip
        lines.append(markdown(rows))
        if len(self.changes) > _ROWS:
            lines += ["", f"and {len(self.changes) - _ROWS} more, in policy.csv (`supported` = 1)."]
        rows = [("states changed", "gain", "interval")]
        shown = self.path[:: max(1, len(self.path) // 8)]
        for count, estimate, low, high in shown:
            rows.append((str(count), number(estimate), f"{number(low)} to {number(high)}"))
        return [
            *lines, "", "## Fewer or more changes", "",
            "Any of these can be had from the same release (`--from-release ... --option most_changes=N`, or "
            "`caution`): the intervals hold for all of them together, however often one looks.", "",
            markdown(rows), "",
        ]  # fmt: skip

    def _tail(self) -> list[str]:
        noise = ", ".join(f"{name} {number(scale)}" for name, scale in self.noise.items())
        return [
            "## How to read this", "",
            f"Standard deviation of the noise in one released sum: {noise}. {percent(self.supported)} of "
            f"people's "
            "decisions are at a (state, action) whose count stands out of its noise; other actions are never "
            "offered.", "",
            *self._read_off(), "",
            "An interval supposes that the world is the same at every step, that what people did depends on "
            "the state and not on the step, and that the state holds all that matters for what follows (no "
            "hidden cause of both action and outcome): no release can test that. "
            f"{percent(self.ended)} of the episodes came to an end; where many are cut off, and what people "
            "did changes with the time, gains can be shown that are none.",
        ]  # fmt: skip

    def _read_off(self) -> list[str]:
        if self.measured == "transitions":
            return [
                "The gain is read off where people went on to, step by step, and what is paid there: that "
                "of the policy and of what people did, in one model of the released transitions. In this "
                "release that is surer than what people were seen to earn, and rests more on the states: "
                "what they do not tell of a person must not matter for where she goes on to."
            ]
        return [
            "The gain is read off what people were seen to earn. A policy that changes decisions changes who "
            "comes where. In a model of the released transitions later visits and earlier changes together "
            f"multiply the gain of first decisions by {number(self.gain.revisits)} (± "
            f"{number(self.gain.revisits_error)}); the interval holds that error."
        ]

    # ---------------------------------------------------------------------------- figures
    def figures(self, folder: Path | str) -> tuple[Path, ...]:
        """Draw the gain against the number of changed states; PNG and SVG. Returns the files."""
        return save_figures(folder, {"gain": self._figure()})

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


def decision_report_of(release: StepwiseRelease, learned: DecisionPolicy, schema: Schema) -> DecisionReport:
    """The report of a policy of decision points and the release that it was learned from."""
    path, gain = learned.path, learned.gain
    told = path.told
    behaviour = path.behaviour()
    least, most = told.question.bounds
    others, lacking = {}, {}
    for name, weights in _plain_policies(path).items():
        others[name], lacking[name] = path.plain(weights)
    own = path.order[: learned.changes]
    rows = told.layout.row_index[own, path.action[own]]
    share = path.share[rows]
    visits = path.visits[own]
    # first-order weights are 1 / share where people did as asked, on the share of them who did
    effective = float(visits.sum() ** 2 / max(float((visits / np.maximum(share, 1e-9)).sum()), 1e-12))
    learned_value = Gain(
        min(max(behaviour.estimate + gain.estimate, least), most), max(behaviour.low + gain.low, least),
        min(behaviour.high + gain.high, most), gain.level, float(np.hypot(behaviour.noise, gain.noise)),
        float(np.hypot(behaviour.sampling, gain.sampling)), gain.revisits, gain.revisits_error,
    )  # fmt: skip
    ends = list(told.question.returns.terminal)
    ended = float(np.clip(told.per_state(told.visits)[ends].sum() / told.episodes, 0.0, 1.0))
    free = np.diff(told.layout.state_ptr)[told.layout.row_state] > 1
    weight = np.maximum(told.visits, 0.0) * free
    return DecisionReport(
        verdict=_verdict(gain, behaviour, learned.changes, ended),
        better=gain.shown,
        gain=gain,
        behaviour=behaviour,
        learned=learned_value,
        others=others,
        lacking=lacking,
        changes=_changes(learned, schema),
        states_changed=learned.changes,
        changed_decisions=float(visits.sum()),
        agreeing=float((visits * share).sum() / max(float(visits.sum()), 1e-12)),
        effective=effective * told.episodes if visits.size else 0.0,
        ended=ended,
        supported=float(weight[path.supported].sum() / max(float(weight.sum()), 1e-12)),
        path=_points(path),
        noise={"visits": told.noise.visits, "transitions": told.noise.moves, "returns": told.noise.returns},
        users=release.users,
        bounds=(least, most),
        guarantee=str(learned.guarantee),
        measured=path.measured,
    )


def _verdict(gain: Gain, behaviour: Gain, changes: int, ended: float) -> str:
    if not changes:
        return "Nothing is changed: no change is expected to help by more than its error."
    level = f"{100 * gain.level:g} %"
    said = (
        f"it gains {number(gain.estimate)} ({level} interval {number(gain.low)} to {number(gain.high)}) "
        f"over what people did, {number(behaviour.estimate)}"
    )
    states = "state" if changes == 1 else "states"
    if gain.shown:
        shown = "is shown to be better than what people did"
        if ended < _ENDED:
            shown += (
                f", if that depends on the state and not on the time ({percent(1.0 - ended)} of the episodes "
                "are cut off at the last step)"
            )
        return f"Changing what is done in {changes} {states} {shown}: {said}."
    return (
        f"Not shown to be better than what people did: changing what is done in {changes} {states}, {said}. "
        "More people or more budget can show it."
    )


def _plain_policies(path: Points) -> dict[str, Floats]:
    """Probabilities by rows of policies that need no outcomes."""
    told = path.told
    layout = told.layout
    begins, sizes = layout.state_ptr[:-1], np.diff(layout.state_ptr)
    uniform = (1.0 / sizes)[layout.row_state]
    first = np.zeros(layout.rows)
    first[begins] = 1.0
    table = layout.from_rows(told.visits[None], fill=-np.inf)[0]
    often = np.zeros(layout.rows)
    often[layout.row_index[np.arange(layout.states), table.argmax(axis=1)]] = 1.0
    return {"uniform": uniform, "first action": first, "most frequent action": often}


def _changes(learned: DecisionPolicy, schema: Schema) -> tuple[Change, ...]:
    path = learned.path
    told, layout = path.told, path.told.layout
    least, most = told.question.bounds
    states, actions = schema.state_labels, schema.action_labels
    own = path.order[: learned.changes]
    own = own[np.argsort(-path.visits[own], kind="stable")]
    usual = learned.behaviour[0]
    cells = np.diff(layout.state_ptr)

    def named(labels: tuple[str, ...] | None, index: int) -> str:
        return str(index) if labels is None else " ".join(labels[index].replace("|", "/").split())

    return tuple(
        Change(
            named(states, s),
            float(path.visits[s] * told.episodes),
            float(told.noise.visits * np.sqrt(cells[s])),
            named(actions, int(usual[s])),
            float(path.share[layout.row_index[s, usual[s]]]),
            named(actions, int(path.action[s])),
            float(path.share[layout.row_index[s, path.action[s]]]),
            float((most - least) * path.shrunk[s]),
            float((most - least) * path.spread[s]),
        )
        for s in own.tolist()
    )


def _points(path: Points) -> tuple[tuple[int, float, float, float], ...]:
    """Points of the path; the last one changes most."""
    gains = ((int(count), path.gain(int(count))) for count in path.points)
    return tuple((count, gain.estimate, gain.low, gain.high) for count, gain in gains)
