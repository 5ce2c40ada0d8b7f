"""Page about a fitted codebook for the data protection officer, computed only from ``codebook.json``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from discreet.core.guarantee import Guarantee, MechanismRecord
from discreet.reports.dpo_report import HTML_NAME, OFFICER_NAME, declared_fields, glossary, page
from discreet.reports.statement import attacker_of, check_delta, sentence_of, whole_of
from discreet.reports.statement_page import said_in
from discreet.reports.trade_off_function import TradeOff
from discreet.utils.document import Block, Line, html_lines, markdown_lines, text_of

FACTS = "codebook.json"
Document = Mapping[str, Any]


def _title(doc: Document) -> str:
    return f"For the data protection officer: a codebook of {doc['population']['dataset']}"


def release_document(facts: Document) -> dict[str, Any]:
    """Return the document from which a page about a release is written.

    - facts : content of ``codebook.json``, or of the judgement of a log.
    """
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
    said = said_in(facts)
    warnings = [facts["warning"]] if "warning" in facts else []
    if held is not None and held["new"]:
        warnings.append(said["warning.new ledger"])
    if held is not None and held["after"]["limit_epsilon"] is None:
        warnings.append(said["warning.no limit"])
    if guarantee.randomness != "secure":
        warnings.append(said["warning.codebook_seeded"])
    return {
        "sentence": sentence_of(run, whole, alone, said),
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
    fit, said = facts["forecast"], said_in(doc)
    yield from declared_fields(doc, doc["declared"])
    values = ", ".join(fit["values"])
    what = (
        f"{fit['number']} bins of equal shares" if fit["what"] == "quantiles" else f"{fit['number']} centres"
    )
    yield "What was fitted", f"{what}, of {values}, in {fit['rounds']} noisy rounds"
    yield said["codebook.moves"], fit["verdict"]
    sources = [f"{fact}: {source}" for fact, source in doc["population"]["provenance"].items()]
    yield said["officer.provenance"], "; ".join(sources) or "not stated"
    yield "Trust", said["officer.trust"]
    yield "Date", doc["date"]


_OWN = {
    "Algorithms and their correctness": "mechanisms", "Utility": "utility", "The query model": "queries",
}  # fmt: skip
"""Keys of the answers about codebooks, by title of NIST's point."""


def _blocks(facts: Document, fingerprint: str) -> Iterator[Block]:
    doc = release_document(facts)
    said, terms = said_in(doc), glossary(doc, next(iter(facts["files"])), statement=False)
    return page(
        doc, _title(doc), _fields(doc, facts), terms, (fingerprint, "", ""), made=FACTS,
        checked=said["codebook.checked"], read=FACTS,
        own={title: said[f"codebook.{key}"] for title, key in _OWN.items()},
    )  # fmt: skip


def _markdown(facts: Document, fingerprint: str) -> list[Line]:
    return markdown_lines(list(_blocks(facts, fingerprint)))


def _html(facts: Document, fingerprint: str) -> list[Line]:
    return html_lines(_title(release_document(facts)), list(_blocks(facts, fingerprint)))


PAGES: Mapping[str, Callable[[Document, str], list[Line]]] = {OFFICER_NAME: _markdown, HTML_NAME: _html}
"""Functions that write the pages about a codebook, by file name.

The arguments of each function are the content of ``codebook.json`` and the SHA-256 of this file.
"""


def write_codebook_pages(folder: Path, text: str) -> None:
    """Write the pages about a codebook into a folder.

    text : content that ``codebook.json`` will have.
    """
    fingerprint = hashlib.sha256(text.encode()).hexdigest()
    for name, lines in PAGES.items():
        (folder / name).write_text(text_of(lines(json.loads(text), fingerprint)), "utf-8", newline="\n")


def codebook_signed() -> tuple[str, ...]:
    """Return the names of the files that a signature of a codebook covers."""
    return (FACTS, *PAGES)
