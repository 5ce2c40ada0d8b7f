"""Sentences of a verdict on decision points: the first line of the report, what it rests on, and what it
leaves out.

A gain is never claimed without the condition on which it rests, in the same sentence. All sentences are made
from the numbers of :class:`discreet.offline.verdict.Verdict`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from discreet.offline.consistency import Discrepancies
from discreet.offline.deviations import Gain
from discreet.offline.hidden_cause import LARGEST
from discreet.offline.verdict import Verdict
from discreet.stored.figures import number, percent

__all__ = ["ENDED", "cannot_exclude", "first_sentence", "times"]

ENDED = 0.97  # share of episodes that come to an end, below which the time that is left may matter


def times(strength: float) -> str:
    """Return a factor of odds, rounded down."""
    if strength >= LARGEST:
        return f"{LARGEST:g} or more"
    return f"{math.floor(100.0 * strength + 1e-9) / 100.0:.2f}"


def first_sentence(
    found: Verdict, behaviour: Gain, changes: int, ended: float, named: Callable[[int], tuple[str, str]]
) -> str:
    """Return the first line of the report.

    behaviour : value of what users did. changes : how many states are changed. ended : share of episodes that
    came to an end. named : from a row of the layout to the labels of its state and action.
    """
    gain = found.gain
    level = f"{100 * gain.level:g} %"
    interval = f"{level} interval {number(gain.low)} to {number(gain.high)}"
    states = f"{changes} state" if changes == 1 else f"{changes} states"
    if found.kind == "unchanged":
        return "Nothing is changed: no change is expected to help by more than its error."
    if found.kind == "not shown":
        return (
            f"Not shown to be better than what people did: changing what is done in {states}, it gains "
            f"{number(gain.estimate)} ({interval}) over what people did, {number(behaviour.estimate)}. "
            "More people or more budget can show it."
        )
    expected = f"The policy would gain {number(gain.estimate)} ({interval}) over what people did"
    if found.kind == "contradicted":
        state, action, returns, steps, errors = _largest(found, named)
        return (
            "Not shown: the data contradict the explanation that the actions made the difference. In state "
            f"{state!r}, people whose action was {action!r} ended with {_more(returns)} than all people in "
            "that state; "
            f"where they went next explains {number(abs(steps))} {_side(steps)} ({errors:.0f} standard "
            "errors apart). "
            "A cause that is not recorded, or a reading taken after the action, does that."
        )
    if found.kind == "state incomplete":
        size = found.consistency.scale * found.consistency.levels.size
        return (
            "Not shown: the recorded state leaves out something that matters for the outcome. What people "
            "went on to "
            f"earn does not follow from the states that they came through (by {number(size)} per person); "
            "the gain, "
            f"{number(gain.estimate)}, is not large enough beside that."
        )
    if found.kind == "fragile":
        return (
            f"Not shown: too easily explained otherwise. {expected}, but an unrecorded cause that changes "
            "the odds of "
            f"an action {times(found.strength)} times would be enough to explain it; {times(found.asked)} "
            "is asked for."
        )
    if found.kind == "unchecked":
        return f"Not shown: a hidden cause could not be tested for ({_why(found)}). {expected}."
    condition = (
        f"if no unrecorded cause changes the odds of an action more than {times(found.strength)} times"
    )
    if ended < ENDED:
        condition += (
            ", and if what people do depends on the state and not on the time "
            f"({percent(1.0 - ended)} of the episodes are cut off at the last step)"
        )
    decisions = f"changing what is done in {states} gains {number(gain.estimate)} ({interval})"
    return (
        f"Shown, {condition}: {decisions} over what people did, {number(behaviour.estimate)}. "
        f"The recorded state itself changes these odds {times(found.cause.recorded)} times."
    )


def _why(found: Verdict) -> str:
    if not found.consistency.tested:
        return "rewards are paid along the way and not by the state in which an episode ends"
    if found.hinted:
        return (
            "the released sums disagree somewhat, and there are too few people, or there is too much noise, "
            "to "
            "tell why"
        )
    return (
        f"too few people, or too much noise: {percent(found.covered)} of the changed decisions can be tested"
    )


def _largest(found: Verdict, named: Callable[[int], tuple[str, str]]) -> tuple[str, str, float, float, float]:
    """Return labels, both readings and standard errors of the largest contradiction."""
    contrasts = found.consistency.contrasts
    at = int(abs(contrasts.z).argmax())
    row = int(contrasts.where[at])
    scale = found.consistency.scale
    returns, steps = (float(table[row]) * scale for table in (
        found.consistency.by_returns, found.consistency.by_transitions
    ))  # fmt: skip
    return (*named(row), returns, steps, float(abs(contrasts.z[at])))


def _more(difference: float) -> str:
    return f"{number(abs(difference))} {'more' if difference >= 0.0 else 'less'}"


def _side(difference: float) -> str:
    return "more" if difference >= 0.0 else "less"


def cannot_exclude(found: Verdict) -> list[str]:
    """Return the paragraphs on what the verdict rests on, and on what no release can exclude."""
    lines = ["## What this rests on", ""]
    if found.consistency.tested:
        lines += [
            "Two readings of the same release must agree: what people earned after an action, and where "
            "they went next "
            "plus what is earned from there.", "",
            f"* Actions compared: {_tested(found.consistency.contrasts, found.consistency.scale)}",
            f"* States compared: {_tested(found.consistency.levels, found.consistency.scale)}",
            f"* {percent(found.covered)} of the changed decisions are where the first comparison could be "
            "made.", "",
        ]  # fmt: skip
    else:
        lines += [
            "No consistency test was made: rewards are paid along the way, and the release does not hold "
            "them by step.",
            "",
        ]
    if found.kind not in ("unchanged", "not shown"):
        cause = found.cause
        lines += [
            "A cause that is not recorded and drives both action and outcome can explain the gain if it "
            "changes the odds "
            "of an action by at least these factors:", "",
            "| cause | factor |", "|---|---|",
            f"| arises anew at each step | {times(cause.each_step)} |",
            f"| any cause, also a lasting one, for one decision | {times(cause.one_decision)} |", "",
            f"{times(found.asked)} is asked for (`hidden_cause`, default 1.1), by the "
            f"{'first' if found.by_step else 'second'} of them. The recorded state itself changes the odds "
            "of the "
            f"asked-for actions {times(cause.recorded)} times (median).", "",
        ]  # fmt: skip
    return [
        *lines,
        "**What this cannot exclude.** A cause that arises anew at each step leaves no trace in any record "
        "of states and "
        "actions: only the factor above limits what it can do. A lasting cause leaves a trace that small "
        "data sets and "
        "strong noise hide. For repeated changes under a lasting cause no bound is given. Whether such "
        "causes exist is a "
        "question for people who know how the records came about.", "",
    ]  # fmt: skip


def _tested(found: Discrepancies, scale: float) -> str:
    if not found.where.size:
        return "none had enough people."
    verdict = "they contradict each other" if found.rejects else "no contradiction"
    return (
        f"{found.where.size}; {verdict} (largest difference {found.largest_z:.1f} standard errors, p = "
        f"{_p(found.p)}; "
        f"beyond doubt: {number(scale * found.size)} per person)."
    )


def _p(p: float) -> str:
    return f"{p:.2g}" if p >= 1e-6 else "below 1e-6"
