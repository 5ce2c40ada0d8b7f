"""Sentences of a verdict on decision points: the first line of the report, what it rests on, and the lines of
the statement and the officer's page.

A gain is never claimed without the condition on which it rests, in the same sentence. The report's sentences
are made from the numbers of :class:`discreet.offline.verdict.Verdict`; those of the statement's pages from
what :func:`stated_verdict` takes over from ``report.json``, so that pages stay a function of the statement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from discreet.offline.consistency import Discrepancies
from discreet.offline.deviations import Gain
from discreet.offline.hidden_cause import LARGEST
from discreet.offline.verdict import ASKED, Verdict
from discreet.stored.figures import number, percent, share_of
from discreet.tables import markdown

__all__ = [
    "ENDED", "NOT_EXCLUDED", "condition", "first_sentence", "not_excluded", "rests_on", "stated_verdict",
    "times", "verdict_line", "verdict_words",
]  # fmt: skip

ENDED = 0.97  # share of episodes that end before the last step; below it the time that is left may matter

NOT_EXCLUDED = "What this cannot exclude"

Named = Callable[[int], tuple[str, str]]
_CLAIMS_NOTHING = ("unchanged", "not shown")  # there is no gain that a hidden cause could explain
_CONTRADICTED = "the data contradict the explanation that the actions made the difference"
_INCOMPLETE = "the recorded state leaves out something that matters for the outcome"
_FRAGILE = "too easily explained otherwise"
_UNCHECKED = "a hidden cause could not be tested for"


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
        return (
            f"Not shown to be better than what people did: changing what is done in {states} gains "
            f"{number(gain.estimate)} ({interval}) over what people did, {usual}. "
            "If it is better, more people or more budget can show it."
        )
    if found.kind == "contradicted":
        return (
            f"Not shown: {_CONTRADICTED}. "
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
            f"Not shown: {_INCOMPLETE}. What people went on to earn does not follow from the states that "
            f"they visited (by {number(size)} per person); the gain, {number(gain.estimate)}, is not large "
            "enough beside that. Possible reasons are a missing or late measurement, a change with the "
            f"step, or a horizon that cuts episodes off.{late}"
        )
    if found.kind == "fragile":
        return (
            f"Not shown: {_FRAGILE}. {expected}, but that stands only against unrecorded causes that change "
            f"the odds of an action up to {times(found.cause.each_step)} times at a step. The factor must "
            f"be at least {_asked(found.asked)}."
        )
    if found.kind == "unchecked":
        return f"Not shown: {_UNCHECKED} ({_why(found)}). {expected}."
    supposed = condition(found.cause.each_step, found.cause.one_decision, ended)
    return (
        f"Shown, {supposed}: changing what is done in {states} gains {number(gain.estimate)} ({interval}) "
        f"over what people did, {usual}. The recorded state itself changes these odds "
        f"{times(found.cause.recorded)} times."
    )


def condition(each_step: float, lasting: float, ended: float) -> str:
    """Return what must hold for a gain that is shown."""
    # a cause that lasts can be close to one that is drawn anew: it is allowed no more than that
    said = (
        f"if no unrecorded cause changes the odds of an action more than {_at_most(each_step)} times "
        f"({_at_most(min(lasting, each_step))} times, each decision by itself, if it lasts longer than a "
        "step) and if what an action does depends on the recorded state alone"
    )
    if ended < ENDED:
        said += (
            ", and if what people do depends on the state and not on the time "
            f"({percent(1.0 - ended)} of the episodes are still under way at the last step)"
        )
    return said


def _why(found: Verdict) -> str:
    if not found.consistency.tested:
        return "no rule gives rewards by the state in which an episode ends"
    if found.hinted:
        return "two readings of the release disagree somewhat, and too much noise or too few people hide why"
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
        "Two readings of the same release must agree. One is what people earned after an action. The other "
        "is where they went next, plus what people earn from there.",
        "",
        f"* Actions compared: {_tested(test.contrasts, test.scale)}",
        f"* States compared: {_tested(test.levels, test.scale)}",
        f"* Of the changed decisions, {percent(found.covered)} are at actions that were compared.",
        "",
        *outweighed,
    ]


def _hidden_cause(found: Verdict) -> list[str]:
    if found.kind in _CLAIMS_NOTHING:
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
    return [f"**{NOT_EXCLUDED}.** {not_excluded(found.kind)}", ""]


def not_excluded(kind: str) -> str:
    """Return what no release can exclude, beside a verdict of this kind."""
    limit = (
        "nothing in the data can exclude it"
        if kind in _CLAIMS_NOTHING
        else "only the factor above limits what it can do"
    )
    return (
        f"A cause that arises anew at each step leaves no trace in the records: {limit}. A lasting cause "
        "leaves a trace only if it also acts on later steps: it leaves none in a decision that ends the "
        "episode. A small data set or strong noise can hide a trace. If a lasting cause drives many "
        "decisions of one person, no bound on the gain of changing all of them is known. Nor is one where "
        "the effect of an action depends on earlier actions that the state leaves out: a second dose that "
        "harms can make a policy lose, each of whose decisions gains if made once, and leave no trace. "
        "People who know how the records came about must judge whether such causes exist."
    )


def _tested(found: Discrepancies, scale: float) -> str:
    if not found.where.size:
        return "none had enough people."
    verdict = "they contradict each other" if found.rejects else "no contradiction"
    return (
        f"{found.where.size}; {verdict} (largest difference {found.largest_z:.1f} standard errors, "
        f"{_p(found.p)}; "
        f"difference beyond two standard errors: {number(scale * found.size)} per person)."
    )


def _p(p: float) -> str:
    return f"p = {p:.2g}" if p >= 1e-6 else "p below 1e-6"


# ------------------------------------------------------------------------------ of the statement


def stated_verdict(report: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a statement says of the verdict in ``report.json``; None where the report has none.

    p of a comparison is None where nothing was compared. Last digits cannot leave the ranges of the
    statement, which is written after the release is paid for and must not be refused then. Raises
    ``KeyError`` if a report on decision points lacks a number.
    """
    if report.get("kind") != "decision points":
        return None
    tests = report["consistency"]
    return {
        "kind": report["verdict_kind"],
        "hidden_cause": {name: max(1.0, float(report["hidden_cause"][name])) for name in _FACTORS},
        **{
            f"{name}_p": share_of(tests[name]["p"]) if tests["made"] and tests[name]["tested"] else None
            for name in ("contrasts", "levels")
        },
        **{name: share_of(report[name]) for name in ("covered", "ended")},
    }


_FACTORS = ("asked", "each_step", "lasting", "recorded")


def verdict_words(told: Mapping[str, Any]) -> str:
    """Return the kind of a verdict in words, with the condition on which a gain is shown."""
    cause = told["hidden_cause"]
    words = {
        "unchanged": "nothing is changed: no change is expected to help by more than its error",
        "not shown": "not shown to be better than what people did",
        "contradicted": f"not shown: {_CONTRADICTED}",
        "state incomplete": f"not shown: {_INCOMPLETE}",
        "fragile": f"not shown: {_FRAGILE}",
        "unchecked": f"not shown: {_UNCHECKED}",
    }
    if told["kind"] in words:
        return words[told["kind"]]
    return f"shown, {condition(cause['each_step'], cause['lasting'], told['ended'])}"


def verdict_line(told: Mapping[str, Any], synthetic: bool = False) -> str:
    """Return what a page says of a verdict: kind, factors of a hidden cause, p of both comparisons.

    told : the statement's verdict. synthetic : the people are made up, so that nothing is shown of anybody.
    """
    kind, cause = told["kind"], told["hidden_cause"]
    words = verdict_words(told)
    said = ["A rehearsal, nothing is shown of anybody. It would say:"] if synthetic else []
    said.append(f"{words[0].upper()}{words[1:]} (kind of verdict: {kind}).")
    asked = f"at least {_asked(cause['asked'])} (hidden_cause; the default is {_asked(ASKED)})"
    if kind == "shown":
        said.append(f"The first factor had to be {asked}.")
    elif kind not in _CLAIMS_NOTHING:
        said.append(
            "The gain stands against unrecorded causes that change the odds of an action up to "
            f"{times(cause['each_step'])} times (anew at each step) or {times(cause['lasting'])} times (of "
            f"any kind, each decision by itself); the first has to be {asked}."
        )
    else:
        said.append(f"Factor of a hidden cause that was asked for: {asked}.")
    said.append(
        f"Actions compared: {_compared(told['contrasts_p'])}; states compared: "
        f"{_compared(told['levels_p'])}; of the changed decisions, {percent(told['covered'])} are at "
        "actions that were compared. The first line of report.md has the numbers."
    )
    return " ".join(said)


def _compared(p: float | None) -> str:
    return "not tested" if p is None else _p(p)
