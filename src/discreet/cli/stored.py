"""Commands for stored trajectories: cohort."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from discreet.cli.shell import JsonFlag, command, console, pairs, print_json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from discreet.data.readers import Progress
    from discreet.mdp.tabular import TabularMDP


@contextmanager
def rows_bar() -> Iterator[Progress]:
    """A bar on standard error for each pass over rows; yields the callback ``(what, done, total)``."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rows]} rows"))
    with Progress(
        *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        tasks: dict[str, TaskID] = {}

        def update(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total, rows="0")
            bar.update(tasks[what], completed=done, total=total, rows=f"{done:,}")

        yield update


# ------------------------------------------------------------------------------------ cohort
@command
def cohort(
    env: Annotated[str, typer.Argument(help="Environment whose people are made up.")],
    users: Annotated[int, typer.Option(help="People, one episode each.")],
    out: Annotated[Path, typer.Option(help="File: .parquet or .csv; its schema is written beside it.")],
    policy: Annotated[
        str, typer.Option(help="What people do: uniform, optimal, random, or expert (of icu-sepsis).")
    ] = "uniform",
    env_option: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for the environment.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Name of the population (default: ENV).")] = None,
    trim: Annotated[bool, typer.Option(help="End episodes in terminal states early.")] = True,
    seed: Annotated[int, typer.Option(help="Seed of everything.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Make up people of an environment: a file of trajectories of any size, and its schema."""
    from discreet import registry
    from discreet.data.schema import write_schema
    from discreet.data.writers import cohort_schema, write_cohort

    mdp = registry.build("environment", env, None, pairs("env-option", env_option))
    behaviour = _behaviour(mdp, env, policy, seed)
    schema = cohort_schema(mdp, dataset or env)
    out.parent.mkdir(parents=True, exist_ok=True)
    with rows_bar() as progress:
        write_cohort(mdp, behaviour, users, out, schema, seed=seed, trim=trim, progress=progress)
    beside = out.with_suffix(".toml")
    write_schema(schema, beside)
    facts = {"file": str(out), "schema": str(beside), "users": users, "bytes": out.stat().st_size}
    if as_json:
        print_json(facts)
    else:
        console().print(f"{users:,} people of {env} under the {policy} policy: {out}, schema {beside}")


def _behaviour(mdp: TabularMDP, env: str, policy: str, seed: int) -> NDArray[np.float64] | NDArray[np.int64]:
    """A behaviour policy by its name."""
    import numpy as np

    from discreet.mdp import planning
    from discreet.numerics import checks

    checks.choice("policy", policy, ("uniform", "optimal", "random", "expert"))
    if policy == "expert":
        if env != "icu-sepsis":
            raise ValueError("policy = 'expert': only icu-sepsis has one")
        from discreet.envs.icu import expert_policy

        return expert_policy(horizon=mdp.layout.horizon, inadmissible="renormalised")
    if policy == "optimal":
        return planning.optimal_values(mdp)[2]
    uniform = planning.uniform_policy(mdp)
    if policy == "uniform":
        return uniform
    weights = uniform * np.random.default_rng(seed).exponential(size=uniform.shape)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
