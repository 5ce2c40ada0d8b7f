"""Page of a privacy statement in Markdown, computed only from the statement's JSON document.

Every number is rounded up. All text that comes from outside the library is escaped, so that a name cannot
imitate a line of the page.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from discreet.accounting.text.guarantee_sentences import up
from discreet.accounting.text.sentence_templates import version_of
from discreet.data.synthetic_mark import SYNTHETIC_INPUT
from discreet.reports.phrases import phrases
from discreet.reports.verdict_text import verdict_line
from discreet.utils import document
from discreet.utils.document import (
    Blank,
    Block,
    Bullets,
    Formula,
    Heading,
    Line,
    Paragraph,
    Strong,
    Table,
    text_of,
)

JSON_NAME, MARKDOWN_NAME = "statement.json", "statement.md"
FREE = ("operator", "approval")
"""Keys of the two free lines of a statement, which the fingerprint does not cover."""
_LABELS = {"operator": "Operator", "approval": "Approval (of this fingerprint)"}
"""Labels of the free lines on the page, by key of the statement."""

_SHOWN = 12  # largest number of tables of one mechanism that the page lists; the JSON file has all tables


def stated_in(folder: Path, *keys: str) -> Any:
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


def times(epsilon: float, said: Mapping[str, str]) -> str:
    """Return e^epsilon as text, rounded up. If epsilon is above 13.8, the text is a power of e.

    said : sentence templates of a version of the statement.
    """
    if epsilon > 13.8:
        return said["times"].format(epsilon=up(epsilon) if math.isfinite(epsilon) else "∞")
    factor = math.exp(epsilon)
    return f"{math.ceil(factor):,}" if factor >= 100 else up(factor, 3)


def said_in(doc: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the sentence templates that belong to the version of a document."""
    return phrases(version_of(doc["guarantee"]))


def _number(value: float | None) -> str:
    return "none" if value is None else up(value)


def _percent(rate: float | None) -> str:
    return "no bound" if rate is None else f"{hundredths(rate)} %"


def markdown(doc: Mapping[str, Any]) -> str:
    """Return the text of the page in Markdown. The page depends only on the document."""
    return text_of(markdown_lines(doc))


def markdown_lines(doc: Mapping[str, Any]) -> list[Line]:
    """Return the lines of the page in Markdown."""
    lines = document.markdown_lines([*_blocks(doc)])
    return [part for line in lines for part in (line.split("\n") if isinstance(line, str) else [line])]


def _blocks(doc: Mapping[str, Any]) -> Iterator[Block]:
    yield Heading(1, f"Privacy statement: {doc['population']['dataset']}")
    yield Paragraph(doc["sentence"], strong=True)
    if doc["warnings"]:
        yield Bullets(tuple((Strong(warning),) for warning in doc["warnings"]))
    yield from _guarantee(doc)
    if doc["guarantee"]["epsilon"] is not None:
        yield from attacker_blocks(doc)
        yield from _groups(doc["groups"], doc["population"]["episodes_per_user"], said_in(doc))
    for name, title in (("covered", "Covered"), ("not_covered", "Not covered")):
        if doc[name]:
            yield Paragraph(title, strong=True)
            yield Bullets(tuple(doc[name]))
    if doc.get("verdict") is not None:
        model = SYNTHETIC_INPUT in doc["configuration"]["options"]
        line = verdict_line(doc["verdict"], doc["synthetic"], model, doc["version"])
        yield _titled("Verdict on the policy.", f" {line}")
    yield from _mechanisms(doc["mechanisms"], said_in(doc))
    if "second_group" in doc:
        second = doc["second_group"]
        words = f" {second['users']:,} other people, of whom only these sums are released:"
        yield _titled("Second group.", words)
        yield from _mechanisms([second["mechanism"]], said_in(doc))
    yield from _files(doc)
    for key, label in _LABELS.items():
        yield Blank(label, doc[key])


def of_contexts(doc: Mapping[str, Any]) -> bool:
    """Return True if the release has sums of real-valued contexts, which replace states."""
    options = doc.get("configuration", {}).get("options", {})  # documents of codebooks do not have this key
    return bool(options.get("question") == "contexts")


def _titled(title: str, *text: str | Formula) -> Paragraph:
    return Paragraph((Strong(title), *text))


def _guarantee(doc: Mapping[str, Any]) -> Iterator[Block]:
    people, guarantee, delta = doc["population"], doc["guarantee"], doc["delta"]
    said, several = said_in(doc), doc["alone"] is not None
    formula, symbols = "", "no guarantee"
    if guarantee["epsilon"] is not None:
        formula = "P(E | D) ≤ e^ε P(E | D′) + δ"
        symbols = f" with ε = {up(guarantee['epsilon'])}, δ = {up(guarantee['delta'], 3)}"
        symbols += f", ρ = {up(guarantee['rho'])} (zCDP)" if guarantee["rho"] is not None else ""
        symbols += f", μ = {up(guarantee['mu'])} (Gaussian DP)" if guarantee["mu"] is not None else ""
        symbols += f", {said['page.given'].format(**people)}"
    against = said[f"page.delta, {delta['verdict']}"].format(ratio=up(delta["ratio"], 3))
    yield _titled(
        f"Guarantee{' of this release' if several else ''}.", " ", Formula(formula),
        f"{symbols}. Trust: {guarantee['trust']}. Neighbours: {guarantee['neighbours']}. "
        f"Unit: {guarantee['unit']}.",
    )  # fmt: skip
    if several:
        yield _together(doc["ledger"]["together"], said)
    words = said["page.people, contexts" if of_contexts(doc) else "page.people"].format(
        **people, m=people["episodes_per_user"], columns=doc["data"]["columns"]["state"], against=against
    )
    yield _titled("People.", words)


def _together(together: Mapping[str, Any], said: Mapping[str, str]) -> Block:
    """Return the paragraph about the total cost of all releases in the ledger."""
    more = "".join(
        f", {symbol} = {up(together[name])}"
        for name, symbol in (("rho", "ρ"), ("mu", "μ"), ("pure", "Σε"))
        if together[name] is not None
    )
    words = said["page.together"].format(
        epsilon=_number(together["epsilon"]), delta=up(together["delta"], 3), more=more, rule=together["rule"]
    )
    return _titled(f"All {together['reservations']} releases together", words)


def attacker_blocks(doc: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the blocks with the bounds on an attacker: tests, advantage, posteriors, certain outcomes."""
    attacker, alone, said = doc["attacker"], doc["alone"], said_in(doc)
    rates = [_percent(test["false_positives"]) for test in attacker["tests"]]
    tests = [(said["page.true alarms"], attacker), *([(said["page.by this alone"], alone)] if alone else [])]
    unit = doc["population"]["unit"]
    yield _titled(said["page.attacker, title"], said["page.attacker"].format(unit=unit))
    rows = ((name, *(_percent(t["true_positives"]) for t in one["tests"])) for name, one in tests)
    yield Table("", (said["page.false alarms"], *rates), tuple(rows))
    by_this = alone and said["page.advantage, alone"].format(rate=_percent(alone["advantage"]))
    advantage = _percent(attacker["advantage"])
    yield Paragraph(said["page.advantage"].format(rate=advantage, alone=by_this or ""))
    after = (said["page.after"].format(rate=rate) for rate in rates)
    priors = (
        (row["prior"], row["right_guess"], *(one["posterior"] for one in row["posteriors"]),
         row["posterior_of_any_outcome"])
        for row in attacker["priors"]
    )  # fmt: skip
    yield Table(
        "",
        (said["page.before"], said["page.guess"], *after, said["page.any"]),
        tuple(tuple(map(_percent, row)) for row in priors),
    )
    delta = doc["guarantee"]["delta"] if alone is None else doc["ledger"]["together"]["delta"]
    yield Paragraph(_certain(doc, delta))


def never_certain(doc: Mapping[str, Any]) -> bool:
    """Return True if every outcome of the noise is possible under every record of a user.

    The result is False for floating-point noise, whose last digits can reveal a record, for randomized
    reports and for shuffled bits.
    """
    kinds = [one["record"]["kind"] for one in doc["mechanisms"]]
    return doc["guarantee"]["randomness"] == "secure" and set(kinds) == {"noise"}


def _certain(doc: Mapping[str, Any], delta: float) -> str:
    """Return the sentence about outcomes that exclude a record, and their probability.

    The probability is bounded by (epsilon, delta).
    """
    said = said_in(doc)
    none = said["certain, none"] if doc["alone"] is None and never_certain(doc) else ""
    return said["certain" if delta else "certain, pure"].format(delta=up(delta, 3), none=none)


def _groups(groups: Sequence[Mapping[str, Any]], m: int, said: Mapping[str, str]) -> Iterator[Block]:
    yield _titled("Groups", said["page.groups"].format(m=m, s="s" if m > 1 else ""))
    rows = (
        (
            str(row["people"]), _number(row["epsilon"]), up(row["delta"], 3), _number(row["rho"]),
            _number(row["mu"]), _percent(row["advantage"]),
        )
        for row in groups
    )  # fmt: skip
    yield Table("", ("people", "ε", "at δ", "ρ", "μ", said["page.column, advantage"]), tuple(rows))


def _mechanisms(mechanisms: Sequence[Mapping[str, Any]], said: Mapping[str, str]) -> Iterator[Block]:
    for number, one in enumerate(mechanisms, 1):
        yield _titled(f"Mechanism {number}.", f" {one['description']}")
        if one["families"]:
            rows = (
                (
                    f["family"], f["norm"], up(f["sensitivity"], 6), f"{f['scale']:.6g}", up(f["std"], 6),
                    "-" if f["cells"] is None else str(f["cells"]),
                )
                for f in one["families"][:_SHOWN]
            )  # fmt: skip
            more = len(one["families"]) - _SHOWN
            yield Table(
                "",
                ("sum", "norm", "sensitivity", "scale", "std, at most", "cells"),
                tuple(rows),
                more=said["page.more"].format(file=JSON_NAME, more=more) if more > 0 else "",
            )
        yield Paragraph(f"Randomness: {one['source_of_randomness']}.")
        yield Paragraph("Proofs:")
        yield Bullets(tuple(one["proof"]))


def _totals(totals: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key} = {value if isinstance(value, str) else _number(value)}" for key, value in totals.items()
    )


def limit_words(totals: Mapping[str, Any]) -> str:
    """Return a string that states the owner's limit and the key with which it was signed.

    totals : totals of the ledger.
    """
    if totals["limit_epsilon"] is None:
        return "NO LIMIT IS SET"
    key = totals.get("limit_key")
    signed = f"signed with the key {key}" if key else "not signed"
    return f"limit ε = {totals['limit_epsilon']:g} at δ = {totals['limit_delta']:g}, {signed}"


def _files(doc: Mapping[str, Any]) -> Iterator[Block]:
    configuration, ledger, said = doc["configuration"], doc["ledger"], said_in(doc)
    yield Paragraph("Files and hashes (SHA-256)", strong=True)
    hashes = (
        ("schema (its facts)", doc["population"]["schema"]),
        ("configuration", configuration["hash"]),
        *doc["files"].items(),
        ("this statement's fingerprint", doc["fingerprint"]),
    )
    yield Table("", ("what", "hash"), tuple((name, str(digest)) for name, digest in hashes))
    options = json.dumps(configuration["options"], ensure_ascii=False, sort_keys=True)
    versions = ", ".join(f"{name} {number}" for name, number in doc["versions"].items())
    yield Paragraph(f"Configuration: {configuration['algorithm']} {options}.")
    yield Paragraph(f"Purpose: {doc['purpose'] or said['page.purpose']}.")
    yield Paragraph(f"Versions: {versions}. Date: {doc['date']}.")
    if doc["replanned"]:
        yield Paragraph(said["page.replanned"])
    if ledger is None:
        yield Paragraph("NO LEDGER.", strong=True)
        return
    yield _titled(
        "Ledger",
        f" {ledger['name']}, identity {ledger['identity']}"
        f"{', NEW WITH THIS RELEASE' if ledger['new'] else ''}, {limit_words(ledger['after'])}; data "
        f"set {ledger['dataset']}, entry {ledger['number']}, hash {ledger['head']}. "
        f"Before: {_totals(ledger['before'])}. After: {_totals(ledger['after'])}.",
    )
