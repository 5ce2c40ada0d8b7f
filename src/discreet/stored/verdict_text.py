"""Sentences of a verdict on decision points: the first line of the report, and what it rests on.

The sentence that claims a gain also names the condition on which it rests. All sentences are made from the
numbers of :class:`discreet.offline.verdict.Verdict`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from discreet.offline.consistency import Discrepancies
from discreet.offline.deviations import Gain
from discreet.offline.hidden_cause import LARGEST
from discreet.offline.verdict import ASKED, Verdict
from discreet.stored.figures import number, percent
from discreet.tables import markdown

__all__ = ["ENDED", "first_sentence", "rests_on", "times"]

ENDED = 0.97  # share of episodes that end before the last step; below it the time that is left may matter

Named = Callable[[int], tuple[str, str]]


def times(strength: float) -> str:
    """Return a factor of odds as text, rounded down to two decimals."""
    if strength >= LARGEST:
        return f"{LARGEST:g} or more"
    return f"{math.floor(100.0 * strength + 1e-9) / 100.0:.2f}"


def first_sentence(found: Verdict, behaviour: Gain, changes: int, ended: float, named: Named) -> str:
    """Return the first line of the report.

    behaviour : value of what users did. changes : number of changed states. ended : share of episodes that
    ended before the last step. named : gives the labels of state and
    action of a row of the layout.
    """
    gain = found.gain
    interval = f"{100 * gain.level:g} % interval {number(gain.low)} to {number(gain.high)}"
    states = "1 state" if changes == 1 else f"{changes} states"
    expected = f"The policy would gain {number(gain.estimate)} ({interval}) over what people did"
    usual = number(behaviour.estimate)
    if found.kind == "unchanged":
        return "Nothing is changed: no change is expected to help by more than its error."
    if found.kind == "not shown":
        return (
            f"Not shown to be better than what people did: changing what is done in {states} gains "
            f"{number(gain.estimate)} ({interval}) over what people did, {usual}. "
            "If it is better, more people or more budget can show it."
        )
    if found.kind == "contradicted":
        return (
            "Not shown: the data contradict the explanation that the actions made the difference. "
            f"{_contradiction(found, named)} Possible reasons are a cause that is not recorded, a reading "
            "taken after the action, or a change with the step."
        )
    if found.kind == "state incomplete":
        size = found.consistency.scale * found.consistency.levels.size
        late = (
            f" {percent(1.0 - ended)} of the episodes last to the last step: if that step decides their "
            "outcome, the time does the same."
            if ended < ENDED
            else ""
        )
        return (
            "Not shown: the recorded state leaves out something that matters for the outcome. What people "
            f"went on to earn does not follow from the states that they visited (by {number(size)} per "
            f"person); the gain, {number(gain.estimate)}, is not large enough beside that. Possible reasons "
            "are a missing or late measurement, a change with the step, or a horizon that cuts episodes off."
            f"{late}"
        )
    if found.kind == "fragile":
        return (
            f"Not shown: too easily explained otherwise. {expected}, but an unrecorded cause that changes "
            f"the odds of an action {times(found.cause.each_step)} times at a step would be enough to "
            f"explain it. The factor must be at least {times(found.asked)}."
        )
    if found.kind == "unchecked":
        return f"Not shown: the release cannot be tested for a hidden cause ({_why(found)}). {expected}."
    condition = (
        f"if no unrecorded cause changes the odds of an action more than {times(found.cause.each_step)} "
        f"times ({times(found.cause.one_decision)} times if it lasts longer than a step)"
    )
    if ended < ENDED:
        condition += (
            ", and if what people do depends on the state and not on the time "
            f"({percent(1.0 - ended)} of the episodes are still under way at the last step)"
        )
    return (
        f"Shown, {condition}: changing what is done in {states} gains {number(gain.estimate)} ({interval}) "
        f"over what people did, {usual}. The recorded state itself changes these odds "
        f"{times(found.cause.recorded)} times."
    )


def _why(found: Verdict) -> str:
    if not found.consistency.tested:
        return "steps pay rewards, not only the state in which an episode ends"
    if found.hinted:
        return "two readings of the release disagree somewhat, and too much noise or too few people hide why"
    share = percent(found.covered)
    return f"too few people or too much noise: {share} of the changed decisions can be tested"


def _contradiction(found: Verdict, named: Named) -> str:
    """Return one sentence on the largest contradiction."""
    test, contrasts = found.consistency, found.consistency.contrasts
    at = int(abs(contrasts.z).argmax())
    row = int(contrasts.where[at])
    state, action = named(row)
    returns, steps = test.scale * float(test.by_returns[row]), test.scale * float(test.by_transitions[row])
    return (
        f"In state {state!r}, people whose action was {action!r} went on to earn {_more(returns)} than all "
        f"people in that state; where they went next explains {_more(steps)} "
        f"({abs(float(contrasts.z[at])):.0f} standard errors apart)."
    )


def _more(difference: float) -> str:
    return f"{number(abs(difference))} {'more' if difference >= 0.0 else 'less'}"


def rests_on(found: Verdict) -> list[str]:
    """Return Markdown lines: what the verdict rests on, and what no release can exclude."""
    return ["## What this rests on", "", *_consistency(found), *_hidden_cause(found), *_not_excluded(found)]


def _consistency(found: Verdict) -> list[str]:
    test = found.consistency
    if not test.tested:
        return [
            "No consistency test was made: steps pay rewards, and the release does not hold rewards by step.",
            "",
        ]
    return [
        "Two readings of the same release must agree. One is what people earned after an action. The other "
        "is where they went next, plus what people earn from there.",
        "",
        f"* Actions compared: {_tested(test.contrasts, test.scale)}",
        f"* States compared: {_tested(test.levels, test.scale)}",
        f"* Of the changed decisions, {percent(found.covered)} are at actions that were compared.",
        "",
    ]


def _hidden_cause(found: Verdict) -> list[str]:
    if found.kind in ("unchanged", "not shown"):
        return []
    cause = found.cause
    rows = [
        ("an unrecorded cause", "factor that would explain the gain"),
        ("arises anew at each step", times(cause.each_step)),
        ("lasts, or is of any kind: each decision by itself", times(cause.one_decision)),
    ]
    return [
        "An unrecorded cause of both action and outcome could explain the gain if it changed the odds of "
        "an action by these factors (the interval would reach 0).",
        "",
        markdown(rows),
        "",
        f"The first must be at least {times(found.asked)} (`hidden_cause`; the default is {times(ASKED)}). "
        "The recorded state itself changes the odds of the actions that the policy asks for "
        f"{times(cause.recorded)} times (median).",
        "",
    ]


def _not_excluded(found: Verdict) -> list[str]:
    limit = (
        "only the factor above limits what it can do"
        if found.kind not in ("unchanged", "not shown")
        else "nothing in the data can exclude it"
    )
    return [
        "**What this cannot exclude.** A cause that arises anew at each step leaves no trace in the "
        f"records: {limit}. A lasting cause leaves a trace only if it also acts on later steps: it leaves "
        "none in a decision that ends the episode. A small data set or strong noise can hide a trace. If a "
        "lasting cause drives many decisions of one person, no bound on the gain of changing all of them is "
        "known. People who know how the records came about must judge whether such causes exist.",
        "",
    ]


def _tested(found: Discrepancies, scale: float) -> str:
    if not found.where.size:
        return "none had enough people."
    verdict = "they contradict each other" if found.rejects else "no contradiction"
    p = f"{found.p:.2g}" if found.p >= 1e-6 else "below 1e-6"
    return (
        f"{found.where.size}; {verdict} (largest difference {found.largest_z:.1f} standard errors, p = {p}; "
        f"difference beyond two standard errors: {number(scale * found.size)} per person)."
    )
