"""Sentences about a verdict on decision points, for the report, the statement and the officer's page.

Every sentence that claims a gain also states the condition of this claim. The report's sentences are made
from :class:`discreet.learners.ope.verdict.Verdict`. The sentences of the statement are made from a part of
``report.json`` (:func:`stated_verdict`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from discreet.learners.ope.consistency_test import Consistency, Discrepancies
from discreet.learners.ope.deviation_gains import Gain
from discreet.learners.ope.hidden_cause import LARGEST
from discreet.learners.ope.verdict import ASKED, Verdict
from discreet.reports.figures import number, percent, share_of
from discreet.utils.document import Block, Bullets, Code, Heading, Paragraph, Strong, Table

# Smallest share of episodes that end before the last step at which the condition of a gain does not mention
# the time. At smaller shares, the actions of users can depend on the steps that remain.
ENDED = 0.97

NOT_EXCLUDED = "What this cannot exclude"

Named = Callable[[int], tuple[str, str]]
_CLAIMS_NOTHING = ("unchanged", "not shown")  # no gain is claimed if a hidden cause could explain it
# Kinds of verdict for which a hidden cause was found. For these kinds, no factor up to which the gain holds
# is stated, because it would look like support for the gain.
REFUTED = ("contradicted", "state incomplete")
_CONTRADICTED = "the data contradict the explanation that the actions made the difference"
_INCOMPLETE = "the recorded state leaves out something that matters for the outcome"
_FRAGILE = "too easily explained otherwise"
_UNCHECKED = "a hidden cause could not be tested for"
_DO_NOT_ACT = (
    "Do not act on this gain: try the change on people drawn by lot first. More people or more budget help "
    "only as far as the interval is wide."
)


def times(strength: float) -> str:
    """Return a factor of odds as text, rounded down to two decimals; ``LARGEST`` gives "or more"."""
    if strength >= LARGEST:
        return f"{LARGEST:g} or more"
    return f"{math.floor(100.0 * strength + 1e-9) / 100.0:.2f}"


def _asked(strength: float) -> str:
    """Return the factor that the user requires as text, with the digits that the user gave."""
    short = f"{strength:.2f}"
    return short if float(short) == strength else repr(float(strength))


def _at_most(strength: float) -> str:
    """Return a factor as in :func:`times`, but without the words "or more"."""
    return times(strength).removesuffix(" or more")


def first_sentence(found: Verdict, behaviour: Gain, changes: int, ended: float, named: Named) -> str:
    """Return the first line of the report.

    Parameters
    ----------
    found : the verdict
    behaviour : value of the users' behaviour
    changes : number of states that the policy changes
    ended : share of episodes that reached a terminal state before the last step
    named : function that returns the labels of state and action for a row of the layout
    """
    gain = found.gain
    interval = f"{100 * gain.level:g} % interval {number(gain.low)} to {number(gain.high)}"
    states = "1 state" if changes == 1 else f"{changes} states"
    refused = f"What is not shown is a gain of {number(gain.estimate)} ({interval}) over what people did."
    usual = number(behaviour.estimate)
    if found.kind == "unchanged":
        return "Nothing is changed: no change is expected to help by more than its error."
    if found.kind == "not shown":
        return (
            "Not shown to be better than what people did: the estimated gain of changing what is done in "
            f"{states} is {number(gain.estimate)} ({interval}) over what people did, {usual}, and may be "
            "none or a loss. If it is better, more people or more budget may show it."
            f"{_open_ends(found)}"
        )
    if found.kind == "contradicted":
        return (
            f"Not shown: {_CONTRADICTED}. "
            f"{_contradiction(found, named)} Possible reasons are a cause that is not recorded, a reading "
            "taken after the action, or a change with the step."
        )
    if found.kind == "state incomplete":
        return _incomplete(found, ended)
    if found.kind == "fragile":
        return (
            f"Not shown: {_FRAGILE}. {_DO_NOT_ACT} A gain is called shown only if it stands against "
            f"unrecorded causes that change the odds of an action {_asked(found.asked)} times at a step. "
            f"This one stands only up to {times(found.cause.each_step)} times: a stronger cause could "
            f"explain all of it. {refused}{_open_ends(found)}"
        )
    if found.kind == "unchecked":
        return f"Not shown: {_UNCHECKED} ({_why(found)}). {refused}{_open_ends(found)}"
    supposed = condition(found.cause.each_step, found.cause.one_decision, ended)
    return (
        f"Shown, {supposed}: changing what is done in {states} gains {number(gain.estimate)} ({interval}) "
        f"over what people did, {usual}. The recorded state itself changes these odds "
        f"{times(found.cause.recorded)} times.{_open_ends(found)}"
    )


def _incomplete(found: Verdict, ended: float) -> str:
    """Return the first line of a report if states do not explain the users' returns."""
    size = found.consistency.scale * found.consistency.levels.size
    said = (
        f"Not shown: {_INCOMPLETE}. What people went on to earn does not follow from the states that "
        f"they visited (by {number(size)} per person); the gain, {number(found.gain.estimate)}, is not large "
        f"enough beside that.{_in_a_group(found.consistency)} Possible reasons are a missing or late "
        "measurement, a change with the step, or a horizon that cuts episodes off."
    )
    if ended < ENDED:
        said += (
            f" {percent(1.0 - ended)} of the episodes last to the last step: if that step decides their "
            "outcome, the time does the same."
        )
    return said


def _in_a_group(test: Consistency) -> str:
    """Return a sentence if the largest discrepancy of levels is in a group of users; otherwise empty."""
    of = test.of_groups
    if not of.any() or not of[int(abs(test.levels.z).argmax())]:
        return ""
    return " It is largest, in standard errors, in a group of people (see the table by group)."


def _open_ends(found: Verdict) -> str:
    """Return the sentence of the first line about episodes with unknown outcomes; empty if there are none."""
    if found.censored is None:
        return ""
    share = percent(found.censored.share)
    return (
        f" The outcome of up to {share} of the episodes is not known: the interval allows for any that "
        "depends on the recorded state and action before it alone."
    )


def condition(each_step: float, lasting: float, ended: float) -> str:
    """Return the condition under which a gain is shown, as text.

    Parameters
    ----------
    each_step : factor of odds up to which the gain holds against a cause that is drawn again at each step
    lasting : factor of odds up to which the gain holds against a cause that lasts longer than a step
    ended : share of episodes that reached a terminal state before the last step
    """
    # A lasting cause can be almost the same as a cause that is drawn again at each step. Therefore the factor
    # of a lasting cause is at most the factor for each step.
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
    """Return a sentence about the (state, action) pair whose two estimates of the return differ most.

    One estimate is the mean of observed returns, and the other is computed from the next states.
    """
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


def rests_on(found: Verdict) -> list[Block]:
    """Return the section about the conditions of the verdict and about causes that no release can exclude."""
    excluded = Paragraph((Strong(f"{NOT_EXCLUDED}."), f" {not_excluded(found.kind)}"))
    return [
        Heading(2, "What this rests on"),
        *_consistency(found),
        *_hidden_cause(found),
        *_censored(found),
        excluded,
    ]


def _consistency(found: Verdict) -> list[Block]:
    test = found.consistency
    if not test.tested:
        return [
            Paragraph(
                "No consistency test was made: no rule gives rewards by the state in which an episode ends, "
                "and the release does not hold them by step."
            )
        ]
    outweighed = Paragraph(
        "They contradict each other by little: the whole interval of the gain lies above ten times the size "
        "of that."
    )
    rejects = test.contrasts.rejects or test.levels.rejects
    return [
        Paragraph(
            "Two readings of the same release must agree. One is what people earned after an action. The "
            "other is where they went next, plus what people earn from there."
        ),
        Bullets((
            f"Actions compared: {_tested(test.contrasts, test.scale)}",
            f"{_levels(test)} compared: {_tested(test.levels, test.scale)}",
            f"Of the changed decisions, {percent(found.covered)} are at actions that were compared.",
        )),
        *([outweighed] if rejects and found.kind in ("fragile", "unchecked", "shown") else []),
    ]  # fmt: skip


def _levels(test: Consistency) -> str:
    """Return "States", or "States and groups" if levels of groups were also tested."""
    return "States and groups" if test.of_groups.any() else "States"


def _hidden_cause(found: Verdict) -> list[Block]:
    if found.kind in _CLAIMS_NOTHING:
        return []
    if found.kind in REFUTED:
        return [
            Paragraph((
                "The two readings contradict each other. So no number of this report can be relied on for "
                "what the policy gains, however narrow its interval. No factor is given up to which the "
                f"gain would stand against a hidden cause; it had to be at least {_asked(found.asked)} (",
                Code("hidden_cause"),
                f"; the default is {_asked(ASKED)}).",
            ))
        ]  # fmt: skip
    cause = found.cause
    rows = (
        ("arises anew at each step", times(cause.each_step)),
        ("lasts, or is of any kind: each decision by itself", times(cause.one_decision)),
    )
    return [
        Paragraph(
            "An unrecorded cause of both action and outcome can explain the gain only if it changes the odds "
            "of an action by more than these factors (only then can the interval reach 0)."
        ),
        Table("", ("an unrecorded cause", "factor up to which the gain stands"), rows),
        Paragraph((
            f"The first must be at least {_asked(found.asked)} (",
            Code("hidden_cause"),
            f"; the default is {_asked(ASKED)}). The recorded state itself changes the odds of the actions "
            f"that the policy asks for {times(cause.recorded)} times (median).",
        )),
    ]  # fmt: skip


def _censored(found: Verdict) -> list[Block]:
    if found.censored is None:
        return []
    share, deviation = (percent(part) for part in found.censored)
    return [
        Paragraph((
            Strong("Censored ends."),
            f" The outcome of up to {share} of the episodes (± {deviation} of noise) is not known. These are "
            "all that came to no known end before the last step, since a release does not tell how the last "
            "step ends. The interval of the gain holds for every outcome that they can have, and this "
            "outcome may differ by the state and action before. The same is true of the factors above. All "
            "estimates, the table of outcomes and both readings count a censored episode as the middle of "
            "the range, as the release does. At other outcomes the release cannot be compared with itself. "
            "The outcome of these people may depend on the recorded state and on the action; on more than "
            "that it must not.",
        ))
    ]  # fmt: skip


def not_excluded(kind: str) -> str:
    """Return the sentences about causes that no release can exclude.

    - kind : kind of the verdict.
    """
    limit = (
        "nothing in the data can exclude it"
        if kind in (*_CLAIMS_NOTHING, *REFUTED)
        else "only the factor above limits what it can do"
    )
    return (
        f"A cause that arises anew at each step leaves no trace in the records: {limit}. A lasting cause "
        "leaves a trace only if it also acts on later steps: it leaves none in a decision that ends the "
        "episode. A small data set or strong noise can hide a trace. If a lasting cause drives many "
        "decisions of one person, no bound on the gain of changing all of them is known. Nor is one where "
        "the effect of an action depends on earlier actions that the state leaves out: if one dose helps and "
        "a second one harms, a policy that gives both can lose, and leaves no trace. "
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
    """Return the part of the verdict in ``report.json`` that the statement contains.

    Returns None if the report is not about decision points. The p-value of a comparison is None if nothing
    was compared. Numbers are clipped to the ranges in the schema of the statement. Raises ``KeyError`` if a
    number is missing in a report on decision points.
    """
    if report.get("kind") != "decision points":
        return None
    tests, censored = report["consistency"], report["censored"]
    return {
        "kind": report["verdict_kind"],
        "hidden_cause": {name: max(1.0, float(report["hidden_cause"][name])) for name in _FACTORS},
        **{
            f"{name}_p": share_of(tests[name]["p"]) if tests["made"] and tests[name]["tested"] else None
            for name in ("contrasts", "levels")
        },
        **{name: share_of(report[name]) for name in ("covered", "ended")},
        "censored": None if censored is None else {name: share_of(part) for name, part in censored.items()},
    }


_FACTORS = ("asked", "each_step", "lasting", "recorded")


def verdict_words(verdict: Mapping[str, Any]) -> str:
    """Return the kind of a verdict as text. If the gain is shown, the text includes its condition.

    verdict : the verdict in the statement.
    """
    cause = verdict["hidden_cause"]
    words = {
        "unchanged": "nothing is changed: no change is expected to help by more than its error",
        "not shown": "not shown to be better than what people did",
        "contradicted": f"not shown: {_CONTRADICTED}",
        "state incomplete": f"not shown: {_INCOMPLETE}",
        "fragile": f"not shown: {_FRAGILE}",
        "unchecked": f"not shown: {_UNCHECKED}",
    }
    if verdict["kind"] in words:
        return words[verdict["kind"]]
    return f"shown, {condition(cause['each_step'], cause['lasting'], verdict['ended'])}"


_DRY_RUN = "Dry run with synthetic users: nothing is shown about real users. The verdict would be:"
_DRY_RUN_5 = "A rehearsal, nothing is shown of anybody. It would say:"  # up to version 5 of statements


def verdict_line(
    verdict: Mapping[str, Any], synthetic: bool = False, model: bool = False, version: int = 6
) -> str:
    """Return the line about a verdict for a page of the statement.

    The line states the kind of the verdict, the factors of a hidden cause, and the p-values of both
    comparisons.

    - verdict : the verdict in the statement.
    - synthetic : True if the data are synthetic. Then nothing is shown about real users.
    - model : True if the users were drawn from the model of an earlier release.
    - version : version of the statement.
    """
    kind, cause = verdict["kind"], verdict["hidden_cause"]
    words = verdict_words(verdict)
    dry_run = _DRY_RUN if version > 5 else _DRY_RUN_5
    start = "Intervals describe the model of a release, not people." if model else dry_run
    said = [start] if synthetic else []
    said.append(f"{words[0].upper()}{words[1:]} (kind of verdict: {kind}).")
    asked = f"at least {_asked(cause['asked'])} (hidden_cause; the default is {_asked(ASKED)})"
    if kind == "shown":
        said.append(f"The first factor had to be {asked}.")
    elif kind not in (*_CLAIMS_NOTHING, *REFUTED):
        if kind == "fragile":
            said.append(_DO_NOT_ACT)
        said.append(
            f"The gain {'stands' if kind == 'fragile' else 'would stand'} only against unrecorded causes "
            f"that change the odds of an action up to {times(cause['each_step'])} times (anew at each step) "
            f"or {times(cause['lasting'])} times (of any kind, each decision by itself); the first has to be "
            f"{asked}."
        )
    else:
        said.append(f"Factor of a hidden cause that was asked for: {asked}.")
    said.append(
        f"Actions compared: {_compared(verdict['contrasts_p'])}; states compared: "
        f"{_compared(verdict['levels_p'])}; of the changed decisions, {percent(verdict['covered'])} are at "
        "actions that were compared. The first line of report.md has the numbers."
    )
    censored = verdict.get("censored")
    if censored is not None:
        said.append(
            f"The outcome of up to {percent(censored['share'])} of the episodes "
            f"(± {percent(censored['deviation'])} of noise) is not known (censored ends): the gain and the "
            "factors allow for the worst that depends on the recorded state and action before it alone."
        )
    return " ".join(said)


def _compared(p: float | None) -> str:
    return "not tested" if p is None else _p(p)
