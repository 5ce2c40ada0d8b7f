"""What all reproductions share: how a study is run, what it keeps, what it leaves behind.

:func:`reproduce` runs a :class:`Study` and writes its numbers (``NAME.json``), its page
(``reproductions/NAME.md``) and its figures (``figures/``), laid out as in ``docs``; everything is written
aside and renamed.

:func:`kept` stores a table that is computed once as a Parquet file with the facts that made it (settings,
seeds, version of the library): it is used again if the facts are those asked for, else computed anew and
replaced. So a study that was stopped goes on, and a page is drawn again without running anything.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from discreet.core import checks
from discreet.experiments import style
from discreet.reproductions.page import verdict
from discreet.storage.files import write_aside
from discreet.tables import Table

__all__ = ["Job", "Lines", "Study", "file_name", "kept", "reproduce"]

Document = Mapping[str, Any]
Say = Callable[[str], None]
Progress = Callable[[int, int], None]
Lines = Sequence[Mapping[str, Any]]
_FACTS = b"facts"


# -------------------------------------------------------------------------------- what is kept
def file_name(*parts: object) -> str:
    """A file's name from the words that tell it from others, in plain letters."""
    words = (str(part).replace("ρ", "rho").replace("ε", "epsilon").replace("÷", "over") for part in parts)
    return "-".join(re.sub(r"[^A-Za-z0-9.]+", "-", word).strip("-") for word in words) + ".parquet"


def kept(path: Path, facts: Mapping[str, Any], make: Callable[[], Lines]) -> list[dict[str, Any]]:
    """The lines stored at ``path`` if made from these facts, else those of ``make``, now stored.

    ``facts`` must be plain JSON values; lines have the same keys, their values are numbers, words or None.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from discreet import __version__

    words = json.dumps({**facts, "version": __version__}, sort_keys=True, ensure_ascii=False).encode()
    if path.exists():
        table = pq.read_table(path)
        if (table.schema.metadata or {}).get(_FACTS) == words:
            return list(table.to_pylist())
    lines = [dict(line) for line in make()]
    table = pa.Table.from_pylist(lines).replace_schema_metadata({_FACTS: words})
    content = io.BytesIO()
    pq.write_table(table, content, compression="zstd")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_aside(path, content.getvalue())
    return lines


# ------------------------------------------------------------------------------- what is run
@dataclass(frozen=True)
class Job:
    """What is asked of a study.

    out : folder of its results; quick : a small version; workers : processes or threads, where a study uses
    several; say : told of what is done; progress : called with (number of a setting, its finished runs).
    """

    out: Path
    quick: bool = False
    workers: int | None = None
    say: Say = print
    progress: Progress | None = None

    def __post_init__(self) -> None:
        checks.flag("quick", self.quick)
        if self.workers is not None:
            checks.integer("workers", self.workers, 1)

    @property
    def folder(self) -> Path:
        """Where finished curves and cells are kept; those of the small version are apart."""
        return self.out / ("data-quick" if self.quick else "data")


@dataclass(frozen=True)
class Study:
    """A study: everything after ``run`` is a function of what it found, so that no number is typed in.

    run : a job to the document, plain values that can be written as JSON. Where a figure needs more than
    these, it is under the key ``found``, which is not written.
    claims : to {claim, holds or verdict, numbers, and source if the paper makes it};
    tables : (title, table) that a terminal shows;
    figures : stem of a file's name to what draws it; page : its Markdown, None if it is written by hand;
    planned : how many runs ``progress`` will tell of, by ``quick``.
    """

    name: str
    run: Callable[[Job], dict[str, Any]]
    claims: Callable[[Document], list[dict[str, Any]]]
    tables: Callable[[Document], Iterable[tuple[str, Table]]]
    figures: Mapping[str, Callable[[Document], Any]]
    page: Callable[[Document], str] | None = None
    planned: Callable[[bool], int] | None = None


def reproduce(study: Study, job: Job) -> dict[str, Any]:
    """Run a study, or read what is there of it; write numbers, page and figures; returns the numbers.

    Returns
    -------
    dict
        What the study's ``run`` describes, with ``paper``, ``quick``, ``claims`` and ``tables`` ({title,
        head, rows}).
    """
    document = {"paper": study.name, "quick": job.quick, **study.run(job)}
    document["claims"] = study.claims(document)
    document["tables"] = [
        {"title": title, "head": list(table[0]), "rows": [list(row) for row in table[1:]]}
        for title, table in study.tables(document)
    ]
    paths = _draw(study, document, job.out)
    document.pop("found", None)
    job.out.mkdir(parents=True, exist_ok=True)
    numbers = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_aside(job.out / f"{study.name}.json", numbers.encode())
    for one in document["claims"]:
        where = f" ({one['source']})" if "source" in one else ""
        job.say(f"{verdict(one)}: {one['claim']}{where}: {one['numbers']}")
    for path in paths:
        job.say(f"reproduce: {path}")
    return document


def _draw(study: Study, document: Document, out: Path) -> list[Path]:
    """The figures, each as PNG and PDF, and the page."""
    paths = []
    for stem, draw in study.figures.items():
        drawn = draw(document)
        for suffix in (".png", ".pdf") if drawn is not None else ():
            paths.append(out / "figures" / f"{stem}{suffix}")
            style.save_figure(drawn, paths[-1])
    if study.page is not None:
        paths.append(out / "reproductions" / f"{study.name}.md")
        paths[-1].parent.mkdir(parents=True, exist_ok=True)
        write_aside(paths[-1], study.page(document).encode())
    return paths
