"""What a reproduction leaves behind: its numbers as JSON, its page, its figures; written aside, renamed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from discreet.experiments import plots
from discreet.experiments.results import write_aside

__all__ = ["write_document", "write_pages"]

Tables = Iterable[tuple[str, Sequence[Sequence[Any]]]]


def write_document(
    document: dict[str, Any], tables: Tables, out: Path, name: str, say: Callable[[str], None]
) -> None:
    """Add the tables that the command line shows, write ``out / name.json``, and tell the claims.

    tables : (title, rows), the first row the head. A claim has ``claim``, ``numbers`` and either a
    ``verdict`` in words or ``holds``.
    """
    document["tables"] = [
        {"title": title, "head": list(table[0]), "rows": [list(row) for row in table[1:]]}
        for title, table in tables
    ]
    content = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    out.mkdir(parents=True, exist_ok=True)
    write_aside(out / f"{name}.json", content.encode())
    for claim in document["claims"]:
        verdict = claim["verdict"] if "verdict" in claim else "holds" if claim["holds"] else "FAILS"
        say(f"{verdict}: {claim['claim']}: {claim['numbers']}")


def write_pages(page: str, figures: Mapping[str, Any], out: Path, name: str) -> list[Path]:
    """The page and its figures, laid out as in ``docs``: copy ``reproductions`` and ``figures`` there.

    figures : name of a file, without its ending, to what is drawn; each becomes a PNG and a PDF.
    """
    paths = []
    for stem, drawn in figures.items():
        for suffix in (".png", ".pdf"):
            paths.append(out / "figures" / f"{stem}{suffix}")
            plots.save_figure(drawn, paths[-1])
    (out / "reproductions").mkdir(parents=True, exist_ok=True)
    paths.append(out / "reproductions" / f"{name}.md")
    write_aside(paths[-1], page.encode())
    return paths
