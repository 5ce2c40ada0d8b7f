"""Sentences of a verdict on decision points: the first line of the report, and what it rests on.

A gain is never claimed without the condition on which it rests, in the same sentence. All sentences are made
from the numbers of :class:`discreet.offline.verdict.Verdict`.
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

ENDED = 0.97  # share of episodes that come to an end, below which the time that is left may matter

Named = Callable[[int], tuple[str, str]]


def times(strength: float) -> str:
    """Return a factor of odds, rounded down to two digits behind the point."""
    if strength >= LARGEST:
        return f"{LARGEST:g} or more"
    return f"{math.floor(100.0 * strength + 1e-9) / 100.0:.2f}"


def _asked(strength: float) -> str:
    """Return the factor that is asked for, with as many digits as it was given."""
    short = f"{strength:.2f}"
    return short if float(short) == strength else repr(float(strength))


def _at_most(strength: float) -> str:
    """Return a factor behind "more than": larger ones than ``LARGEST`` were not looked for."""
    return times(strength).removesuffix(" or more")


def first_sentence(found: Verdict, behaviour: Gain, changes: int, ended: float, named: Named) -> str:
    """Return the first line of the report.

    behaviour : value of what users did. changes : how many states are changed. ended : share of episodes that
    came to an end. named : from a row of the layout to the labels of its state and action.
    """
    gain = found.gain
    interval = f"{100 * gain.level:g} % interval {number(gain.low)} to {number(gain.high)}"
    states = "1 state" if changes == 1 else f"{changes} states"
    expected = f"The policy would gain {number(gain.estimate)} ({interval}) over what people did"
    usual = number(behaviour.estimate)
    if found.kind == "unchanged":
        return "Nothing is changed: no change is expected to help by more than its error."
    if found.kind == "not shown":
        more = "can show it" if gain.estimate > 0.0 else "can tell whether it is"
        return (
            f"Not shown to be better than what people did: changing what is done in {states} gains "
            f"{number(gain.estimate)} ({interval}) over what people did, {usual}. "
            f"More people or more budget {more}."
        )
    if found.kind == "contradicted":
        return (
            "Not shown: the data contradict the explanation that the actions made the difference. "
            f"{_contradiction(found, named)} A cause that is not recorded, or a reading taken after the "
            "action, does that."
        )
    if found.kind == "state incomplete":
        size = found.consistency.scale * found.consistency.levels.size
        return (
            "Not shown: the recorded state leaves out something that matters for the outcome. What people "
            f"went on to earn does not follow from the states that they came through (by {number(size)} per "
            f"person); the gain, {number(gain.estimate)}, is not large enough beside that."
        )
    if found.kind == "fragile":
        return (
            f"Not shown: too easily explained otherwise. {expected}, but that stands only against unrecorded "
            f"causes that change the odds of an action up to {times(found.cause.each_step)} times at a step; "
            f"{_asked(found.asked)} is asked for."
        )
    if found.kind == "unchecked":
        return f"Not shown: a hidden cause could not be tested for ({_why(found)}). {expected}."
    # a cause that lasts can be close to one that is drawn anew: it is allowed no more than that
    lasting = min(found.cause.one_decision, found.cause.each_step)
    condition = (
        "if no unrecorded cause changes the odds of an action more than "
        f"{_at_most(found.cause.each_step)} times ({_at_most(lasting)} times, each decision by itself, if it "
        "lasts longer than a step) and if what an action does depends on the recorded state alone"
    )
    if ended < ENDED:
        condition += (
            ", and if what people do depends on the state and not on the time "
            f"({percent(1.0 - ended)} of the episodes are cut off at the last step)"
        )
    return (
        f"Shown, {condition}: changing what is done in {states} gains {number(gain.estimate)} ({interval}) "
        f"over what people did, {usual}. The recorded state itself changes these odds "
        f"{times(found.cause.recorded)} times."
    )


def _why(found: Verdict) -> str:
    if not found.consistency.tested:
        return "no rule gives rewards by the state in which an episode ends"
    if found.hinted:
        return "two readings of the release disagree somewhat, and noise or too few people hide why"
    share = percent(found.covered)
    return f"too few people or too much noise: {share} of the changed decisions can be tested"


def _contradiction(found: Verdict, named: Named) -> str:
    """Return one sentence on the largest contradiction."""
    test, contrasts = found.consistency, found.consistency.contrasts
    at = int(abs(contrasts.z).argmax())
    apart = abs(float(contrasts.value[at] / contrasts.deviation[at]))
    row = int(contrasts.where[at])
    state, action = named(row)
    returns, steps = test.scale * float(test.by_returns[row]), test.scale * float(test.by_transitions[row])
    return (
        f"In state '{state}', people whose action was '{action}' went on to earn {_more(returns)} than all "
        f"people in that state; where they went next explains {_more(steps)} "
        f"({apart:.0f} standard errors apart)."
    )


def _more(difference: float) -> str:
    return f"{number(abs(difference))} {'more' if difference >= 0.0 else 'less'}"


def rests_on(found: Verdict) -> list[str]:
    """Return paragraphs on what the verdict rests on, and on what no release can exclude, in Markdown."""
    return ["## What this rests on", "", *_consistency(found), *_hidden_cause(found), *_not_excluded(found)]


def _consistency(found: Verdict) -> list[str]:
    test = found.consistency
    if not test.tested:
        return [
            "No consistency test was made: no rule gives rewards by the state in which an episode ends, and "
            "the release does not hold them by step.",
            "",
        ]
    rejects = test.contrasts.rejects or test.levels.rejects
    outweighed = (
        ["They contradict each other by little: the whole interval of the gain lies above ten times the size "
         "of that.", ""]
        if rejects and found.kind in ("fragile", "unchecked", "shown")
        else []
    )  # fmt: skip
    return [
        "Two readings of the same release must agree: what people earned after an action, and where they "
        "went next plus what is earned from there.",
        "",
        f"* Actions compared: {_tested(test.contrasts, test.scale)}",
        f"* States compared: {_tested(test.levels, test.scale)}",
        f"* {percent(found.covered)} of the changed decisions are in reach of the first comparison.",
        "",
        *outweighed,
    ]


def _hidden_cause(found: Verdict) -> list[str]:
    if found.kind in ("unchanged", "not shown"):
        return []
    cause = found.cause
    rows = [
        ("an unrecorded cause", "factor up to which the gain stands"),
        ("arises anew at each step", times(cause.each_step)),
        ("lasts, or is of any kind: each decision by itself", times(cause.one_decision)),
    ]
    return [
        "An unrecorded cause of both action and outcome can explain the gain only if it changes the odds of "
        "an action by more than these factors (only then can the interval reach 0).",
        "",
        markdown(rows),
        "",
        f"The first must be at least {_asked(found.asked)} (`hidden_cause`; the default is {_asked(ASKED)}). "
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
        f"records: {limit}. A lasting cause leaves a trace, which a small data set or strong noise can "
        "hide. If a lasting cause drives many decisions of one person, no bound on the gain of changing "
        "all of them is known. Nor is one where the effect of an action depends on earlier ones that the "
        "state leaves out: a second dose that harms can make a policy lose, each of whose decisions gains if "
        "made once, and leave no trace. Whether such causes exist is a question for people who know how the "
        "records came about.",
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
