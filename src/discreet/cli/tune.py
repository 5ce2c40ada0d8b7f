"""Command ``tune``: random search for the options of a learner, on training environments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from discreet.cli.common import (
    DeltaOption,
    EngineOption,
    EpsilonOption,
    JsonFlag,
    KnobOptions,
    LearnerOption,
    PluginOption,
    PrivatizerOption,
    WorkersOption,
    announce_compilation,
    command,
    console,
    new_table,
    print_json,
    progress_bar,
    say,
    settings_of,
)


def _searched(given: Sequence[str] | None) -> dict[str, str | None]:
    """Parse the values of ``--search``. Raises ``ValueError`` if an option is repeated or has no name."""
    found: dict[str, str | None] = {}
    for item in given or []:
        name, equals, where = item.partition("=")
        name = name.strip().replace("-", "_")
        if not name or name in found:
            raise ValueError(f"--search {item!r}: must be OPTION or OPTION=RANGE, each option once")
        found[name] = where if equals else None
    return found


@command
def tune(
    learner: LearnerOption = None,
    privatizer: PrivatizerOption = None,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    option: KnobOptions = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            help="OPTION, OPTION=LOW:HIGH or OPTION=A,B: also search it, or set its range. Repeatable."
        ),
    ] = None,
    trials: Annotated[int, typer.Option(help="Number of settings; the first one is the default.")] = 32,
    seeds: Annotated[int, typer.Option(help="Repetitions of each setting in each environment.")] = 4,
    seed: Annotated[int, typer.Option(help="Seed of the tuning; no report may use it.")] = 31,
    users: Annotated[int, typer.Option(help="Users of each run, one episode each.")] = 20_000,
    worlds: Annotated[
        Path | None,
        typer.Option(help="A TOML file, a table `worlds` each (default: the leaderboard's for training)."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of runs and of tuning.toml (default: results/tune-LEARNER); continues."),
    ] = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
    plugin: PluginOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Tune the options of a learner by random search on training environments; write them as a file."""
    from discreet.core import checks
    from discreet.experiments import tuning
    from discreet.experiments.engine import open_engine

    name = learner or "noise-aware"
    folder = out or Path("results") / f"tune-{name}"
    preset, options = settings_of(option)
    asked = _searched(search)
    checks.integer("trials", trials, 1)
    announce_compilation()
    total = trials * len(tuning.worlds_of(worlds, name)) * seeds * users

    def made(executor: object = None) -> tuning.Tuning:
        with progress_bar(f"tune {name}", total) as progress:
            return tuning.tune(
                name, privatizer or "none", worlds=worlds, users=users, trials=trials, seeds=seeds, seed=seed,
                epsilon=epsilon, delta=delta, preset=preset, options=options, search=asked,
                plugins=plugin or (), out=folder, workers=workers, executor=executor,  # type: ignore[arg-type]
                progress=progress,
            )  # fmt: skip

    if engine in (None, "local"):
        found = made()
    else:
        with open_engine(str(engine), workers) as there:
            found = made(there)
    if as_json:
        print_json({**found.to_dict(), "out": str(folder)})
        return
    table = new_table("trial", "score", "options", right=("trial", "score"))
    for row in found.rows():
        table.add_row(*row)
    console().print(str(found), style="bold", soft_wrap=True)
    console().print(table)
    console().print(f"Score: {tuning.MEASURE}; less is better.", soft_wrap=True)
    effort = found.effort
    say(f"discreet: {effort['simulated_runs']:,} runs with {effort['simulated_users']:,} users")
    console().print(f"Report with another seed: discreet run {folder / 'tuning.toml'} --env ENV --seed SEED")
