"""Page of a privacy statement in Markdown, made from the statement's JSON document only.

Every number is rounded up, so that no number on the page is smaller than the actual value. All text that
comes from outside the library is escaped, so that a name cannot imitate a line of the page.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from discreet.accounting.text.guarantee_sentences import up
from discreet.accounting.text.sentence_templates import NOW, version_of, words
from discreet.reports.document import Line, blank_in_markdown, text_of
from discreet.reports.document import escaped as _line
from discreet.reports.verdict_text import verdict_line
from discreet.utils import markdown_table as tables

__all__ = [
    "FREE", "JSON_NAME", "MARKDOWN_NAME", "SIGNED", "hundredths", "limit_words", "markdown", "markdown_lines",
    "never_certain", "times", "told_in",
]  # fmt: skip

JSON_NAME, MARKDOWN_NAME = "statement.json", "statement.md"
FREE = ("operator", "approval")
"""Keys of the two free lines of a statement, which the fingerprint does not cover."""
SIGNED = {"operator": "**Operator:**", "approval": "**Approval (of this fingerprint):**"}
"""Beginnings of the free lines on the page, by key of the statement."""

_SHOWN = 12  # largest number of tables of one mechanism that the page lists; the JSON file has all tables


def told_in(folder: Path, *keys: str) -> Any:
    """Return the value under the given nested keys in the statement of a folder.

    Returns None if the value is absent or the file is invalid.
    """
    try:
        found = json.loads((folder / JSON_NAME).read_text("utf-8"))
        for key in keys:
            found = found[key]
        return found
    except (OSError, ValueError, KeyError, TypeError):  # verification reports such errors
        return None


def hundredths(rate: float) -> str:
    """Return a probability as text: the number of cases in 100, rounded up."""
    return up(100.0 * rate, 3)


def times(epsilon: float, said: Mapping[str, str] = NOW) -> str:
    """Return e^epsilon as text, rounded up. If epsilon is above 13.8, the text is a power of e.

    said : sentence templates of a version of the statement.
    """
    if epsilon > 13.8:
        return said["times"].format(epsilon=up(epsilon) if math.isfinite(epsilon) else "∞")
    factor = math.exp(epsilon)
    return f"{math.ceil(factor):,}" if factor >= 100 else up(factor, 3)


def _number(value: float | None) -> str:
    return "none" if value is None else up(value)


def _percent(rate: float | None) -> str:
    return "no bound" if rate is None else f"{hundredths(rate)} %"


def _rows(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    return tables.markdown([head, *body]).split("\n")


def markdown(doc: Mapping[str, Any]) -> str:
    """Return the text of the page in Markdown. The page depends only on the document."""
    return text_of(markdown_lines(doc))


def markdown_lines(doc: Mapping[str, Any]) -> list[Line]:
    """Return the lines of the page in Markdown."""
    people, guarantee = doc["population"], doc["guarantee"]
    title = f"# Privacy statement: {_line(people['dataset'])}"
    parts = [title, "", f"**{_line(doc['sentence'])}**", ""]
    parts += [f"- **{_line(warning)}**" for warning in doc["warnings"]]
    parts += [""] if doc["warnings"] else []
    parts += _guarantee_lines(doc)
    if guarantee["epsilon"] is not None:
        parts += _attacker_lines(doc, people["unit"])
        parts += _group_lines(doc["groups"], people)
    for name, title in (("covered", "Covered"), ("not_covered", "Not covered")):
        if doc[name]:
            parts += [f"**{title}**", "", *(f"- {_line(text)}" for text in doc[name]), ""]
    if doc.get("verdict") is not None:
        parts += [f"**Verdict on the policy.** {_line(verdict_line(doc['verdict'], doc['synthetic']))}", ""]
    parts += _mechanism_lines(doc["mechanisms"])
    parts += _file_lines(doc)
    return [
        *(line for part in parts for line in part.split("\n")),
        blank_in_markdown(SIGNED["operator"], doc["operator"]),
        "",
        blank_in_markdown(SIGNED["approval"], doc["approval"]),
    ]


def _guarantee_lines(doc: Mapping[str, Any]) -> list[str]:
    people, guarantee = doc["population"], doc["guarantee"]
    several = doc["alone"] is not None
    symbols = "no guarantee"
    if guarantee["epsilon"] is not None:
        symbols = f"P(E | D) ≤ e^ε P(E | D′) + δ with ε = {up(guarantee['epsilon'])}"
        symbols += f", δ = {up(guarantee['delta'], 3)}"
        symbols += f", ρ = {up(guarantee['rho'])} (zCDP)" if guarantee["rho"] is not None else ""
        symbols += f", μ = {up(guarantee['mu'])} (Gaussian DP)" if guarantee["mu"] is not None else ""
        symbols += (
            f", for every event E and all data sets D, D′ of {people['users']} people in which one "
            f"{_line(people['unit'])} differs"
        )
    delta = doc["delta"]
    against = {
        "pure": "δ = 0",
        "small": f"δ is {up(delta['ratio'], 3)} times 1/users: at most a tenth, as it should be",
        "warn": f"δ is {up(delta['ratio'], 3)} TIMES 1/users: more than a tenth",
        "none": "no δ",
    }[delta["verdict"]]
    return [
        f"**Guarantee{' of this release' if several else ''}.** {symbols}. Trust: "
        f"{_line(guarantee['trust'])}. Neighbours: {_line(guarantee['neighbours'])}. "
        f"Unit: {_line(guarantee['unit'])}.",
        "",
        *(_together_lines(doc["ledger"]["together"]) if several else []),
        f"**People.** {people['users']} users ({_line(people['unit'])}), m = {people['episodes_per_user']} "
        f"(the most episodes of one user), H = {people['horizon']}, S = {people['states']}, "
        f"A = {people['actions']}, {people['pairs']} admissible pairs; {against}.",
        "",
    ]


def _together_lines(together: Mapping[str, Any]) -> list[str]:
    """Return the lines on the total cost of all releases in the ledger."""
    more = "".join(
        f", {symbol} = {up(together[name])}"
        for name, symbol in (("rho", "ρ"), ("mu", "μ"), ("pure", "Σε"))
        if together[name] is not None
    )
    return [
        f"**All {together['reservations']} releases together** that the ledger holds of these data, this one "
        f"included: ε = {_number(together['epsilon'])}, δ = {up(together['delta'], 3)}{more}, by the filter: "
        f"{_line(together['rule'])}. The sentence above, the attacker's table and the groups are of these.",
        "",
    ]


def _attacker_lines(doc: Mapping[str, Any], unit: str) -> list[str]:
    attacker, alone = doc["attacker"], doc["alone"]
    delta = doc["guarantee"]["delta"] if alone is None else doc["ledger"]["together"]["delta"]
    rates = [_percent(test["false_positives"]) for test in attacker["tests"]]
    tests = [_percent(test["true_positives"]) for test in attacker["tests"]]
    priors = [
        [
            _percent(row["prior"]),
            _percent(row["right_guess"]),
            *(_percent(one["posterior"]) for one in row["posteriors"]),
            _percent(row["posterior_of_any_outcome"]),
        ]
        for row in attacker["priors"]
    ]
    return [
        "**What an attacker can at best do** who knows everybody else's data and asks whether the record is "
        f"that of one {_line(unit)} or another (membership, or any attribute):",
        "",
        *_rows(
            ["false alarms", *rates],
            [
                ["true alarms, at most", *tests],
                *(
                    [["by this release alone", *(_percent(t["true_positives"]) for t in alone["tests"])]]
                    if alone
                    else []
                ),
            ],
        ),
        "",
        f"True less false alarms: at most {_percent(attacker['advantage'])}"
        + (f" (by this release alone {_percent(alone['advantage'])})." if alone else "."),
        "",
        *_rows(
            [
                "belief before",
                "right guess, at most",
                *(f"belief after an alarm with ≥ {rate} false ones" for rate in rates),
                "after any outcome",
            ],
            priors,
        ),
        "",
        _certain_line(doc, delta),
        "",
    ]


def never_certain(doc: Mapping[str, Any]) -> bool:
    """Return True if every outcome of the noise is possible under every record of a user.

    Then no outcome can exclude a record. The result is False for floating-point noise, because its last
    digits can reveal a record. It is also False for randomized reports and for shuffled bits.
    """
    kinds = [one["record"]["kind"] for one in doc["mechanisms"]]
    return doc["guarantee"]["randomness"] == "secure" and set(kinds) == {"noise"}


def _certain_line(doc: Mapping[str, Any], delta: float) -> str:
    """Return the sentence about outcomes that prove something about a user, and their probability.

    The probability is bounded by (epsilon, delta).
    """
    said = words(version_of(doc["guarantee"]))
    none = said["certain, none"] if doc["alone"] is None and never_certain(doc) else ""
    return said["certain" if delta else "certain, pure"].format(delta=up(delta, 3), none=none)


def _group_lines(groups: Sequence[Mapping[str, Any]], people: Mapping[str, Any]) -> list[str]:
    m = people["episodes_per_user"]
    rows = [
        [
            str(row["people"]),
            _number(row["epsilon"]),
            up(row["delta"], 3),
            _number(row["rho"]),
            _number(row["mu"]),
            _percent(row["advantage"]),
        ]
        for row in groups
    ]
    return [
        f"**Groups** of people exchanged together (each with at most {m} episode{'s' if m > 1 else ''}):",
        "",
        *_rows(["people", "ε", "at δ", "ρ", "μ", "true less false alarms"], rows),
        "",
    ]


def _mechanism_lines(mechanisms: Sequence[Mapping[str, Any]]) -> list[str]:
    parts: list[str] = []
    for number, one in enumerate(mechanisms, 1):
        parts += [f"**Mechanism {number}.** {_line(one['description'])}", ""]
        if one["families"]:
            parts += _rows(
                ["sum", "norm", "sensitivity", "scale", "std, at most", "cells"],
                [
                    [
                        _line(f["family"]),
                        f["norm"],
                        up(f["sensitivity"], 6),
                        f"{f['scale']:.6g}",
                        up(f["std"], 6),
                        "-" if f["cells"] is None else str(f["cells"]),
                    ]
                    for f in one["families"][:_SHOWN]
                ],
            )
            more = len(one["families"]) - _SHOWN
            parts += [f"and {more} more, in {JSON_NAME}", ""] if more > 0 else [""]
        parts += [f"Randomness: {_line(one['source_of_randomness'])}.", "", "Proofs:", ""]
        parts += [*(f"- {_line(text)}" for text in one["proof"]), ""]
    return parts


def _totals_line(totals: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{_line(key)} = {_line(value if isinstance(value, str) else _number(value))}"
        for key, value in totals.items()
    )


def limit_words(totals: Mapping[str, Any]) -> str:
    """Return a text that states the owner's limit and the key with which it was signed.

    totals : totals of the ledger.
    """
    if totals["limit_epsilon"] is None:
        return "NO LIMIT IS SET"
    key = totals.get("limit_key")
    signed = f"signed with the key {key}" if key else "not signed"
    return f"limit ε = {totals['limit_epsilon']:g} at δ = {totals['limit_delta']:g}, {signed}"


def _file_lines(doc: Mapping[str, Any]) -> list[str]:
    configuration, ledger = doc["configuration"], doc["ledger"]
    hashes = [
        ("schema (its facts)", doc["population"]["schema"]),
        ("configuration", configuration["hash"]),
        *doc["files"].items(),
        ("this statement's fingerprint", doc["fingerprint"]),
    ]
    parts = ["**Files and hashes (SHA-256)**", ""]
    parts += _rows(["what", "hash"], [[_line(name), str(digest)] for name, digest in hashes])
    options = json.dumps(configuration["options"], ensure_ascii=False, sort_keys=True)
    versions_line = ", ".join(f"{name} {number}" for name, number in doc["versions"].items())
    parts += [
        "",
        f"Configuration: {_line(configuration['algorithm'])} {_line(options)}.",
        "",
        f"Purpose: {_line(doc['purpose']) or 'none was given'}.",
        "",
        f"Versions: {_line(versions_line)}. Date: {doc['date']}.",
        "",
    ]
    if doc["replanned"]:
        parts += ["This run read no data: it planned again from a release that was paid for before.", ""]
    if ledger is None:
        parts += ["**NO LEDGER.**", ""]
    else:
        parts += [
            f"**Ledger** {_line(ledger['name'])}, identity {ledger['identity']}"
            f"{', NEW WITH THIS RELEASE' if ledger['new'] else ''}, {limit_words(ledger['after'])}; data "
            f"set {_line(ledger['dataset'])}, entry {ledger['number']}, hash {ledger['head']}. "
            f"Before: {_totals_line(ledger['before'])}. After: {_totals_line(ledger['after'])}.",
            "",
        ]
    return parts


SIGNED = {"operator": "**Operator:**", "approval": "**Approval (of this fingerprint):**"}
