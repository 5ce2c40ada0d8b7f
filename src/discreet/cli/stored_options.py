"""Options and helpers that the commands for stored trajectories share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.common import (
    say,
    settings_of,
    typed_pairs,
)

if TYPE_CHECKING:
    from discreet.data.row_batches import Progress
    from discreet.ledger.ledger import Ledger


SqlOption = Annotated[
    str | None,
    typer.Option(
        help="A query of the database duckdb://FILE, or of the given files; it can read no other file.",
        rich_help_panel="Source",
    ),
]


FORMAT = (
    "KEY=VALUE. Format of CSV files: delimiter (default: found from their first line), decimal (. or ,), "
    "encoding (a name in Python). Or scratch: a folder for temporary files. "
)


SYNTHETIC = (
    "Or synthetic=true: the files hold users of `discreet synthesize`; intervals describe their model. "
)


WORKERS = "Or workers: threads that read, check and count (default: all processors). "


SourceOption = Annotated[
    list[str] | None, typer.Option(help=f"{FORMAT}Repeatable.", rich_help_panel="Source")
]


SOURCE_KEYS = {
    "delimiter": str,
    "decimal": str,
    "encoding": str,
    "scratch": str,
    "synthetic": bool,
    "workers": int,
}


CSV_KEYS = ("delimiter", "decimal", "encoding", "scratch")


LearnerSettings = Annotated[
    list[str] | None,
    typer.Option("--set", help="KEY=VALUE for the learner; preset=NAME: named settings. Repeatable."),
]


def source_of(given: Sequence[str] | None, *keys: str) -> dict[str, Any]:
    """Return the keys and values of ``--source``.

    - keys : allowed keys. Default: those of CSV files, and ``scratch``.
    """
    return typed_pairs("source", given, {key: SOURCE_KEYS[key] for key in keys or CSV_KEYS})


def queried(files: Sequence[str] | None, sql: str | None) -> tuple[list[str], list[str] | None]:
    """Return the sources of rows, and the files that a query of ``duckdb://`` can read.

    With a query and without a database, the query reads the given files.
    """
    given = list(files or ())
    if sql is None or any(one.startswith("duckdb://") and one != "duckdb://" for one in given):
        return given, None
    return ["duckdb://"], [one for one in given if one != "duckdb://"] or None


@contextmanager
def rows_bar() -> Iterator[Progress]:
    """Show a progress bar on standard error for each stage of a computation.

    Yields the function that reports progress; its arguments are (name of the stage, number done, total
    number).
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[parts]}"))
    with Progress(
        *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        tasks: dict[str, TaskID] = {}

        def update(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                for stage in tasks.values():
                    bar.stop_task(stage)
                tasks[what] = bar.add_task(what, total=total, parts="")
            of = f" of {total:,}" if total else ""
            bar.update(
                tasks[what], completed=done, total=total, parts=f"{done:,}{of}" if done or total else ""
            )

        yield update


BudgetEpsilon = Annotated[
    float | None, typer.Option("--epsilon", help="Privacy budget, above 0.", rich_help_panel="Budget")
]


BudgetDelta = Annotated[
    float | None,
    typer.Option("--delta", help="Privacy delta, in (0, 1); 0: pure epsilon.", rich_help_panel="Budget"),
]


LedgerOption = Annotated[
    Path | None, typer.Option(help="Ledger (default: the user's own).", rich_help_panel="Budget")
]


BudgetRho = Annotated[
    float | None, typer.Option("--rho", help="Budget in zCDP instead of epsilon.", rich_help_panel="Budget")
]


_EITHER = (
    "decision-points",
    "linear-advantage",
    "world-model",
)  # these learners, and plug-ins, can learn from noisy sums and from exact sums


def learner_and_privatizer(
    algorithm: str,
    option: list[str] | None,
    budget: dict[str, float],
    exact: bool = False,
) -> tuple[Any, Any]:
    """Build and return (learner, privatizer) from names and options.

    The privatizer is None if the learner adds noise itself, or is not private.

    - exact : True if sums without noise are allowed.
    """
    from discreet import registry

    found = registry.entry("offline learner", algorithm)
    taken = registry.options_of(found.factory())
    preset, given = settings_of(option)
    options: dict[str, Any] = {**given}
    noise = {
        name.removeprefix("privatizer."): options.pop(name)
        for name in [*options]
        if name.startswith("privatizer.")
    }
    either = (algorithm in _EITHER or found.plugin is not None) and not (exact and not budget)
    private = algorithm.startswith("dp-") or "rho" in taken or either
    if private and not {"epsilon", "rho"} & {*budget, *options, *noise}:
        raise ValueError(f"epsilon is missing: {algorithm} needs --epsilon (with --delta) or --rho")
    if budget and not private:
        name, value = next(iter(budget.items()))
        raise ValueError(f"{name} = {value:g}: {algorithm} is not private, it takes no budget")
    if "rho" in taken and "epsilon" in budget and "delta" not in {*budget, *options}:
        raise ValueError(f"delta is missing: {algorithm} needs --delta with --epsilon (0: Laplace noise)")
    if "rho" in taken:  # linear learners have the budget as options
        options = {**options, **budget}
        if noise:
            raise ValueError(f"set = 'privatizer.{next(iter(noise))}': {algorithm} has no privatizer")
        return registry.build("offline learner", algorithm, preset, options), None
    learner = registry.build("offline learner", algorithm, preset, options)
    if not private:
        return learner, None
    if "epsilon" in {*budget, *noise} and "delta" not in {*budget, *noise}:
        say(
            "discreet: no --delta is given: epsilon is pure, by Laplace noise. With --delta, below a tenth "
            "of 1/users, Gaussian noise is allowed too, which is often far less; --delta 0 says that pure is "
            "meant"
        )
    return learner, registry.build("privatizer", "central", None, {**noise, **budget})


def plugged(folder: Path, plugin: Sequence[str] | None) -> Any:
    """Return the learner that made a folder if a plug-in module registers it; otherwise None."""
    if not plugin:
        return None
    from discreet import registry
    from discreet.reports.statement_page import stated_in

    for module in plugin:
        registry.load_plugin(module)
    name = stated_in(folder, "configuration", "algorithm")
    options = stated_in(folder, "configuration", "options", "learner")
    for one in registry.entries("offline learner") if isinstance(options, dict) else ():
        # a statement names the learner's class, because registered names depend on the plug-ins of a machine
        if one.plugin in plugin and getattr(one.factory(), "__name__", None) == name:
            given = {key: value for key, value in options.items() if key != "preset" and value is not None}
            return registry.build("offline learner", one.name, None, given)
    return None


def ledger_of(
    folder: Path, ledger: Path | None, no_ledger: bool, recorded: bool | None = None
) -> Ledger | None:
    """Open the ledger with which a folder is compared.

    This is ``ledger``, if given. Otherwise it is the default ledger, if the folder has a ledger entry.
    Returns None if this file does not exist, or if the folder has no ledger entry.

    - recorded : True if the folder has an entry; None to read that from its statement.
    """
    from discreet.ledger.ledger import Ledger, default_path
    from discreet.reports.statement_page import stated_in

    path = ledger or default_path()
    recorded = stated_in(folder, "ledger") is not None if recorded is None else recorded
    if no_ledger or not (ledger is not None or (path.exists() and recorded)):
        return None
    return Ledger.open(path, create=False)
