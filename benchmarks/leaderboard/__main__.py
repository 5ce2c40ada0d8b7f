"""``python -m benchmarks.leaderboard``: check submissions, make them, print the tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.leaderboard import leaderboard
from discreet.cli.common import (
    JsonFlag,
    WorkersOption,
    announce_compilation,
    command,
    new_app,
    print_json,
    say,
)
from discreet.experiments import build_run
from discreet.utils.atomic_file import write_aside
from discreet.utils.markdown_table import markdown
from discreet.utils.toml_file import read_toml

app = new_app(
    "leaderboard", "The leaderboard of private reinforcement learning (benchmarks/leaderboard/README.md)."
)
Files = Annotated[list[Path], typer.Argument(help="Submissions, or folders of them (TOML or JSON).")]


def _prepare(config: Any) -> Any:
    return build_run.prepare(build_run.resolved(config))


def _submissions(files: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for file in files:
        inside = (
            (one for one in file.iterdir() if one.suffix in (".toml", ".json")) if file.is_dir() else [file]
        )
        found += sorted(inside)
    if not found:
        raise ValueError(f"files = {[str(file) for file in files]}: must have at least one submission")
    return found


def verify(
    files: Files,
    rerun: Annotated[bool, typer.Option("--rerun", help="Run one of the seeds again.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Recompute what can be recomputed of each submission; exit status 1 if anything is not as stated."""
    everything, document = True, []
    for file in _submissions(files):
        given = leaderboard.read(file)
        found = leaderboard.verify(given, _prepare, rerun)
        everything &= all(one.ok is not False for one in found)
        document.append(
            {"file": str(file), "task": given.task.name, "checks": [one.to_json() for one in found]}
        )
        if not as_json:
            print(f"{file}: {given.task.name}, {given.system}")
            for one in found:
                word = {True: "as stated", False: "NOT AS STATED", None: "not recomputed"}[one.ok]
                print(f"  {one.name}: {word}: {one.words}", flush=True)
    if as_json:
        print_json(document)
    raise typer.Exit(0 if everything else 1)


def fill(
    file: Annotated[Path, typer.Argument(help="A submission without results.")],
    out: Annotated[Path | None, typer.Option(help="The file to write (default: FILE).")] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of runs (default: the task's minimum).")] = None,
    workers: WorkersOption = None,
) -> None:
    """Run a submission and write its results."""
    announce_compilation()
    text = leaderboard.fill(file, _prepare, seeds, workers)
    write_aside(out or file, text.encode())
    say(f"leaderboard: {out or file}")


def broad(
    file: Annotated[
        Path, typer.Argument(help="The JSON lines of `python -m benchmarks.studies.broad --out`.")
    ],
    about: Annotated[Path, typer.Option(help="TOML with name, budget, system, who, code, commit, date ...")],
    out: Annotated[Path, typer.Option(help="The folder of the submissions.")],
) -> None:
    """Make the submissions to the tasks of the broad suite."""
    facts = read_toml(about)
    name, budget = facts.pop("name", None), facts.pop("budget", None)
    if not (isinstance(name, str) and isinstance(budget, str)):
        raise ValueError(f"{about}: must have name, of the files, and budget, as the study calls it")
    guarantee = facts.pop("guarantee", {})
    texts, missing = leaderboard.broad(file.read_text("utf-8").splitlines(), budget, facts, guarantee, out)
    for task, text in texts.items():
        out.mkdir(parents=True, exist_ok=True)
        write_aside(out / f"{task}-{name}.toml", text.encode())
        say(f"leaderboard: {out / f'{task}-{name}.toml'}")
    for words in missing:
        say(f"leaderboard: not made: {words}")
    raise typer.Exit(0 if texts else 1)


def table(
    files: Files,
    page: Annotated[Path | None, typer.Option(help="A page whose tables are replaced.")] = None,
) -> None:
    """Print the tables of the submissions, or write them into a page."""
    given = [leaderboard.read(file) for file in _submissions(files)]
    if page is None:
        print(leaderboard.table(given), end="")
        return
    write_aside(page, leaderboard.written(page.read_text("utf-8"), given).encode())


def tasks() -> None:
    """Print the tasks."""
    print(markdown(leaderboard.tasks_table()))


for one in (verify, fill, broad, table, tasks):
    command(one, app)

if __name__ == "__main__":
    app()
