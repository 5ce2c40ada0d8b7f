"""Page that lists the numbers of a statement next to the texts of regulators, without a verdict.

The page depends only on the statement, the declared lines of its schema, and ``crosswalk.toml``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from discreet.accounting.text.guarantee_sentences import up
from discreet.reports.deployment_record import check_protects
from discreet.reports.dpo_report import read_columns
from discreet.reports.statement_page import (
    attacker_blocks,
    hundredths,
    limit_words,
    of_contexts,
    said_in,
    times,
)
from discreet.utils.document import (
    Blank,
    Block,
    Bullets,
    Heading,
    Link,
    Paragraph,
    Table,
    markdown_lines,
    text_of,
)

Document = Mapping[str, Any]


@cache
def crosswalk_texts() -> Mapping[str, Any]:
    """Return the content of ``crosswalk.toml``: version, titles, sources and rows."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def crosswalk_markdown(doc: Document, declared: Mapping[str, str]) -> str:
    """Return the page in Markdown.

    Parameters
    ----------
    doc : document of a statement that was verified.
    declared : lines that the schema declares.

    Raises
    ------
    ValueError
        If the statement protects no person (:func:`~discreet.reports.deployment_record.check_protects`).
    """
    check_protects(doc)
    return text_of(markdown_lines(list(_blocks(doc, _values(doc, declared)))))


def _blocks(doc: Document, values: Mapping[str, object]) -> Iterator[Block]:
    texts = crosswalk_texts()
    yield Heading(1, texts["title"].format(**values))
    yield Paragraph(texts["made"].format(**values))
    if doc["warnings"]:
        yield Bullets(tuple(doc["warnings"]))
    yield Heading(2, texts["bounds"])
    yield from attacker_blocks(doc)
    for text in texts["text"]:
        yield Heading(2, text["title"])
        rows = tuple(
            (article, asks, f"{filled} {texts['judge']}")
            for article, asks, filled in _rows(doc, text, values)
        )
        yield Table("", tuple(texts["columns"]), rows)
        if text.get("expert", False):
            yield Blank(texts["sign"])
    yield Heading(2, texts["references"])
    sources = (source for text in texts["text"] for source in text.get("sources", ()))
    yield Table("", ("source", "address"), tuple((name, Link("link", address)) for name, address in sources))


def _rows(
    doc: Document, text: Mapping[str, Any], values: Mapping[str, object]
) -> Iterator[tuple[str, str, str]]:
    """Yield (source, question, stated facts) for each row of a parsed ``crosswalk.toml``."""
    for row in text.get("row", ()):
        yield row["article"], row["asks"].format(**values), row["filled"].format(**values)
    points = [key.removeprefix("question.") for key in said_in(doc) if key.startswith("question.")]
    for number, (point, fields) in enumerate(zip(points, text.get("points", ()), strict="points" in text), 1):
        values = {"point": point, "fields": fields, "number": number}
        yield f"point {number}", text["asks"].format(**values), text["filled"].format(**values)


def _values(doc: Document, declared: Mapping[str, str]) -> dict[str, object]:
    """Return the values of all placeholders in the texts."""
    attacker, ledger, guarantee, said = doc["attacker"], doc["ledger"], doc["guarantee"], said_in(doc)
    total = guarantee if doc["alone"] is None else ledger["together"]
    rare = next(row for row in attacker["priors"] if row["prior"] == 0.01)
    tests = (hundredths(test["true_positives"]) for test in attacker["tests"])
    exceeds, texts = guarantee.get("exceeds"), crosswalk_texts()
    none = texts["undeclared"]
    lines = ("purpose", "recipients", "retention", "justification")
    if ledger is None:
        releases = "No ledger was kept, so other releases of these people are not known."
    else:
        releases = (
            f"Releases of these people in the ledger up to this one: {ledger['together']['reservations']}; "
            f"{limit_words(ledger['after'])}."
        )
    groups = (doc["population"]["groups"]["column"],) if "groups" in doc["population"] else ()
    facts = ("dataset", "unit", "users", "horizon", "states", "actions")
    return {
        **{name: doc["population"][name] for name in facts},
        **({"states": "no"} if of_contexts(doc) else {}),
        **{name: declared.get(name, none) for name in lines},
        "fingerprint": doc["fingerprint"],
        "version": texts["version"],
        "advantage": hundredths(attacker["advantage"]),
        "tests": ", ".join(tests),
        "posterior": hundredths(rare["posteriors"][0]["posterior"]),
        "exceeds": "" if exceeds is None else (
            "The probability of an outcome whose loss is above this release's ε is at most "
            f"{up(exceeds['at_most'], 3)}. "
        ),
        "releases": releases,
        "attackers": said["attackers"],
        "uncovered": len(doc["not_covered"]),
        "files": len(doc["files"]),
        "columns": ", ".join((*read_columns(doc), *groups)),
        "release": ", ".join(name for name in ("release.parquet", "release.csv") if name in doc["files"]),
        "mechanisms": len(doc["mechanisms"]) + ("second_group" in doc),
        "factor": times(total["epsilon"], said),
        "plus": f", plus {up(total['delta'], 3)}" if total["delta"] else "",
    }  # fmt: skip
