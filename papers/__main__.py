"""``python -m papers``: run again what the papers ran."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

import papers
from discreet.cli.common import (
    EngineOption,
    JsonFlag,
    WorkersOption,
    announce_compilation,
    command,
    console,
    new_app,
    new_table,
    print_json,
    progress_bar,
    say,
)
from discreet.experiments.engine import open_engine
from papers.study import Job
from papers.study import reproduce as reproduce_study

app = new_app("papers", "Reproductions of the papers, each at the epsilon that its noise really has.")


def reproduce(
    paper: Annotated[str, typer.Argument(help=f"{', '.join(papers.NAMES[:-1])} or {papers.NAMES[-1]}.")],
    quick: Annotated[bool, typer.Option("--quick", help="A small version, for CI.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder (default: results/PAPER).")] = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a study; write its numbers, its page and its figures. A study that was stopped goes on."""
    found, folder = papers.load(paper), out or Path("results") / paper
    announce_compilation()
    with ExitStack() as stack:
        local = engine in (None, "local")
        there = None if local else stack.enter_context(open_engine(str(engine), workers))
        progress = None
        if found.planned is not None:
            progress = stack.enter_context(progress_bar(paper, found.planned(quick), "runs"))
        document = reproduce_study(found, Job(folder, quick, workers, say, progress, there))
    if as_json:
        print_json(document)
        return
    for one in document["tables"]:
        console().print(one["title"], style="bold")
        shown = new_table(*one["head"])
        for row in one["rows"]:
            shown.add_row(*(cell.replace("*", "") for cell in row))  # emphasis of the page
        console().print(shown)
    if quick:
        say("papers: --quick has too few users and seeds for verdicts; those of the full version count")


def list_() -> None:
    """Print the names of the studies."""
    for name in papers.NAMES:
        print(name)


command(reproduce, app)
command(list_, app)

if __name__ == "__main__":
    app()
