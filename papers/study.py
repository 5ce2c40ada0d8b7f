"""What all reproductions share: how a study is run, what it keeps, what it leaves behind.

:func:`reproduce` runs a :class:`Study` and writes its numbers (``NAME.json``), its page (``README.md``) and
its figures (``figures/``); everything is written to temporary files and renamed.

:class:`Kept` is a table that is computed once, stored as a Parquet file with the facts that made it
(settings, seeds, version of the library): it is used again if the facts are those asked for, else computed
anew and replaced. So a study that was stopped goes on, and a page is drawn again without running anything.
:meth:`Job.tables` computes many of them, wherever the job's work is done; several processes that reproduce
one study into one folder share them.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from discreet.core import checks
from discreet.experiments import engine as seam
from discreet.experiments.file_lock import Claims, shared
from discreet.experiments.run_config import made_by
from discreet.experiments.worker import Made, processes
from discreet.utils import plot_style as style
from discreet.utils.atomic_file import write_aside
from discreet.utils.markdown_table import Table
from papers.page import verdict

__all__ = ["Job", "Kept", "Lines", "Study", "file_name", "kept", "reproduce"]

K = TypeVar("K")
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


@dataclass(frozen=True)
class Kept:
    """A table at ``path``: what ``make`` gives, if it was made from these facts.

    facts : plain JSON values. make : its lines have the same keys, their values are numbers, words or None; a
    function of a module with its arguments (:class:`functools.partial`), so that it can be sent to a worker.
    """

    path: Path
    facts: Mapping[str, Any]
    make: Callable[[], Lines]

    def read(self) -> list[dict[str, Any]] | None:
        """Its lines, if it is stored."""
        import pyarrow.parquet as pq

        if not self.path.exists():
            return None
        table = pq.read_table(self.path)
        if (table.schema.metadata or {}).get(_FACTS) != self._words():
            return None
        return list(table.to_pylist())

    def write(self, lines: Lines) -> list[dict[str, Any]]:
        """Store them."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        found = [dict(line) for line in lines]
        table = pa.Table.from_pylist(found).replace_schema_metadata({_FACTS: self._words()})
        content = io.BytesIO()
        pq.write_table(table, content, compression="zstd")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_aside(self.path, content.getvalue())
        return found

    def _words(self) -> bytes:
        from discreet import __version__

        facts = {**self.facts, "version": __version__}
        return json.dumps(facts, sort_keys=True, ensure_ascii=False).encode()


def kept(path: Path, facts: Mapping[str, Any], make: Callable[[], Lines]) -> list[dict[str, Any]]:
    """The lines stored at ``path`` if made from these facts, else those of ``make``, now stored."""
    one = Kept(path, facts, make)
    found = one.read()
    return one.write(make()) if found is None else found


class _Tables:
    """Tables of which some are to be made (:class:`discreet.experiments.file_lock.Shared`)."""

    def __init__(self, wanted: Sequence[Kept], say: Say) -> None:
        self.wanted, self.claims, self._say = wanted, Claims(), say
        self.missing: Sequence[int] = range(len(wanted))
        self.done: dict[int, list[dict[str, Any]]] = {}
        for one in wanted:
            one.path.parent.mkdir(parents=True, exist_ok=True)

    def read(self) -> list[int]:
        """Take up what is stored."""
        found = {i: self.wanted[i].read() for i in self.missing}
        self.done |= {i: lines for i, lines in found.items() if lines is not None}
        self.missing = [i for i in self.missing if i not in self.done]
        return []

    def take(self, i: int) -> bool:
        """Is it ours to make?"""
        one = self.wanted[i]
        if not self.claims.take(one.path):
            return False
        if one.read() is None:
            return True
        self.claims.drop(one.path)  # another process has just finished it
        return False

    def keep(self, found: tuple[int, Lines]) -> None:
        """Store one."""
        i, lines = found
        one = self.wanted[i]
        self.done[i] = one.write(lines)
        self.claims.drop(one.path)
        self.missing = [j for j in self.missing if j != i]
        self._say(f"reproduce: {one.path.stem}: done")


# ------------------------------------------------------------------------------- what is run
@dataclass(frozen=True)
class Job:
    """What is asked of a study.

    out : folder of its results; quick : a small version; workers : how much is done side by side (default:
    all processors for compiled runs, one for the rest); say : told of what is done; progress : called with
    (number of a setting, its finished runs); engine : where work is done, in place of this machine.
    """

    out: Path
    quick: bool = False
    workers: int | None = None
    say: Say = print
    progress: Progress | None = None
    engine: seam.Engine | None = None

    def __post_init__(self) -> None:
        checks.flag("quick", self.quick)
        if self.workers is not None:
            checks.integer("workers", self.workers, 1)

    @property
    def folder(self) -> Path:
        """Where finished curves and cells are kept; those of the small version are apart."""
        return self.out / ("data-quick" if self.quick else "data")

    def tables(self, wanted: Mapping[K, Kept]) -> dict[K, list[dict[str, Any]]]:
        """The lines of each table, read or made: here, in ``workers`` processes, or on the engine.

        Each is stored as soon as it is made, and made by one process only of those that work on one folder.
        """
        tables = _Tables([*wanted.values()], self.say)

        def once() -> Iterator[tuple[int, tuple[int, Lines]]]:
            if self.engine is None and self.workers in (None, 1):
                yield from ((0, (i, tables.wanted[i].make())) for i in tables.missing if tables.take(i))
                return
            missing = [(i, tables.wanted[i]) for i in tables.missing]
            jobs = [seam.Job(Made(one.make), (i,), one.path.stem) for i, one in missing]
            opened = processes(self.workers or 1) if self.engine is None else nullcontext(self.engine)
            with opened as engine, closing(seam.results(engine, jobs, lambda _, i: tables.take(i))) as fresh:
                yield from ((0, found) for _, found in fresh)

        shared([tables], once)
        return {name: tables.done[i] for i, name in enumerate(wanted)}


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
    if job.engine is not None:
        job.engine.check(made_by())
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
        paths.append(out / "README.md")
        paths[-1].parent.mkdir(parents=True, exist_ok=True)
        write_aside(paths[-1], study.page(document).encode())
    return paths
