"""Page about a fitted codebook for the data protection officer, made from ``codebook.json`` only.

A codebook that was fitted to users' data is a private release, like a release for a policy. The page has the
same parts and wording as the page about a policy (:mod:`discreet.reports.dpo_report`), except for the
description of the release.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from discreet.accounting.text.sentence_templates import version_of, words
from discreet.core.guarantee import Guarantee, MechanismRecord
from discreet.reports.dpo_report import HTML_NAME, OFFICER_NAME, declared_fields, glossary, page
from discreet.reports.statement import attacker_of, check_delta, sentence_of, whole_of
from discreet.reports.trade_off_function import TradeOff
from discreet.utils.document import Block, Line, html_lines, markdown_lines, text_of

__all__ = ["FACTS", "PAGES", "codebook_signed", "write_codebook_pages"]

FACTS = "codebook.json"
Document = Mapping[str, Any]


def _title(doc: Document) -> str:
    return f"For the data protection officer: a codebook of {doc['population']['dataset']}"


def _document(facts: Document) -> dict[str, Any]:
    """Return the document from which the page is written. facts : content of ``codebook.json``."""
    guarantee = Guarantee.from_dict(facts["guarantee"])
    held, users = facts["ledger"], int(facts["users"])
    run: Any = SimpleNamespace(
        schema=SimpleNamespace(unit=facts["unit"], episodes_per_user=facts["episodes_per_user"]),
        guarantee=guarantee,
        synthetic=False,
        ledger=None if held is None else SimpleNamespace(together=held["together"]),
    )
    records = [one for one in guarantee.records if isinstance(one, MechanismRecord)]
    alone = TradeOff.of(guarantee, records)
    whole = whole_of(run, alone)
    warnings = [facts["warning"]] if "warning" in facts else []
    if held is not None and held["new"]:
        warnings.append(
            "NEW LEDGER: this is the first release that it holds; if these people's data were released "
            "before, that is not counted here, and losses add up."
        )
    if held is not None and held["after"]["limit_epsilon"] is None:
        warnings.append("NO LIMIT: the owner has set none for these data in this ledger.")
    if guarantee.randomness != "secure":
        warnings.append("SEEDED NOISE: whoever knows the seed can remove it; for simulation only.")
    return {
        "sentence": sentence_of(run, whole, alone, words(version_of(facts["guarantee"]))),
        "warnings": warnings,
        "purpose": facts["purpose"],
        "population": {
            "dataset": facts["dataset"], "unit": facts["unit"], "users": users,
            "users_public": guarantee.users_public, "episodes_per_user": facts["episodes_per_user"],
            "provenance": facts["provenance"],
        },
        "declared": facts["declared"],
        "guarantee": facts["guarantee"],
        "delta": {
            "delta": guarantee.delta, "ratio": guarantee.delta * users,
            "verdict": check_delta(guarantee.delta, users),
        },
        "attacker": attacker_of(whole.attacker),
        "alone": None if whole.releases == 1 else attacker_of(alone),
        "mechanisms": [
            {"description": one.line(guarantee.delta), "record": one.to_dict()} for one in records
        ],
        "ledger": held,
        "replanned": False,
        "date": facts["date"],
    }  # fmt: skip


def _fields(doc: Document, facts: Document) -> Iterator[tuple[str, str]]:
    fit = facts["forecast"]
    yield from declared_fields(doc, doc["declared"])
    values = ", ".join(fit["values"])
    what = (
        f"{fit['number']} bins of equal shares" if fit["what"] == "quantiles" else f"{fit['number']} centres"
    )
    yield "What was fitted", f"{what}, of {values}, in {fit['rounds']} noisy rounds"
    yield "How far noise moves it", fit["verdict"]
    sources = [f"{fact}: {source}" for fact, source in doc["population"]["provenance"].items()]
    yield "Where public facts come from", "; ".join(sources) or "not stated"
    yield "Trust", "central: whoever keeps the raw data is trusted; everybody else sees what is released"
    yield "Date", doc["date"]


_OWN = {
    "Algorithms and their correctness": (
        "k-means, or a histogram, by noisy sums over people, each of whom counts with the mean of her own "
        "steps; codebook.json holds sensitivity and scale, 'discreet codebook verify' computes the promise "
        "again. Sensitivity: proof in the module discreet.mechanisms.linear.per_user_means, tested by brute "
        "force on neighbours."
    ),
    "Utility": "how far noise moves what was fitted stands above, beside how far public points lie apart.",
    "The query model": (
        "noisy sums, each asked where the ones before had said; all of them are in the promise. Nothing is "
        "answered later, and preparing records with the codebook costs nothing of its own."
    ),
}


def _blocks(facts: Document, fingerprint: str) -> Iterator[Block]:
    doc = _document(facts)
    terms = glossary(doc, next(iter(facts["files"])), statement=False)
    return page(
        doc, _title(doc), _fields(doc, facts), terms, (fingerprint, "", ""), made=FACTS,
        checked="discreet codebook verify", read=FACTS, own=_OWN,
    )  # fmt: skip


def _markdown(facts: Document, fingerprint: str) -> list[Line]:
    return markdown_lines(list(_blocks(facts, fingerprint)))


def _html(facts: Document, fingerprint: str) -> list[Line]:
    return html_lines(_title(_document(facts)), list(_blocks(facts, fingerprint)))


PAGES: Mapping[str, Callable[[Document, str], list[Line]]] = {OFFICER_NAME: _markdown, HTML_NAME: _html}
"""Functions that write the pages about a codebook, by file name.

The arguments of each function are the content of ``codebook.json`` and the SHA-256 of this file.
"""


def write_codebook_pages(folder: Path, text: str) -> None:
    """Write the pages about a codebook into a folder. text : the text that ``codebook.json`` will have."""
    fingerprint = hashlib.sha256(text.encode()).hexdigest()
    for name, lines in PAGES.items():
        (folder / name).write_text(text_of(lines(json.loads(text), fingerprint)), "utf-8", newline="\n")


def codebook_signed() -> tuple[str, ...]:
    """Return the names of the files that a signature of a codebook covers.

    These are ``codebook.json``, which states the hashes of the other files, and the pages.
    """
    return (FACTS, *PAGES)
