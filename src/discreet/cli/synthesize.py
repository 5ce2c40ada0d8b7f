"""Commands ``simulate-data`` and ``synthesize``, which write synthetic users."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from discreet.cli.common import (
    JsonFlag,
    command,
    console,
    new_table,
    pairs,
    print_json,
)
from discreet.cli.stored_options import (
    rows_bar,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from discreet.envs.mdp.tabular import TabularMDP
    from discreet.pipeline.synthetic_utility import Utility


@command
def simulate_data(
    env: Annotated[str, typer.Argument(help="Environment that generates the users.")],
    users: Annotated[int, typer.Option(help="Number of users, one episode each.")],
    out: Annotated[
        Path, typer.Option(help="New .parquet or .csv file; its schema is written to the same folder.")
    ],
    policy: Annotated[
        str, typer.Option(help="Behaviour policy: uniform, optimal, random, or expert (of icu-sepsis).")
    ] = "uniform",
    env_option: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for the environment.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Name of the population (default: ENV).")] = None,
    trim: Annotated[bool, typer.Option(help="End episodes in terminal states early.")] = True,
    seed: Annotated[int, typer.Option(help="Seed of everything.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Write synthetic trajectories of any number of users of an environment, and their schema."""
    from discreet import registry
    from discreet.data.schema import write_schema
    from discreet.pipeline.trajectory_files import cohort_schema, write_cohort

    mdp = registry.build("environment", env, None, pairs("env-option", env_option))
    behaviour = _behaviour(mdp, env, policy, seed)
    schema = cohort_schema(mdp, dataset or env)
    beside = out.with_suffix(".toml")
    for path in (out, beside):
        if path.exists():
            raise ValueError(f"out = {str(out)!r}: {path} exists; synthetic data overwrite nothing")
    out.parent.mkdir(parents=True, exist_ok=True)
    with rows_bar() as progress:
        write_cohort(mdp, behaviour, users, out, schema, seed=seed, trim=trim, progress=progress)
    write_schema(schema, beside)
    facts = {"file": str(out), "schema": str(beside), "users": users, "bytes": out.stat().st_size}
    if as_json:
        print_json(facts)
    else:
        console().print(f"{users:,} users of {env} under the {policy} policy: {out}, schema {beside}")


@command
def synthesize(
    release: Annotated[Path, typer.Argument(help="A folder that `learn` made, or its release.parquet.")],
    users: Annotated[int, typer.Option(help="Number of synthetic users.")],
    out: Annotated[
        Path,
        typer.Option(
            help="New .parquet or .csv file, or Minari folder; its schema is written to the same folder."
        ),
    ],
    members: Annotated[
        int, typer.Option(help="1: draw from the expected MDP. K: from K MDPs that the release allows.")
    ] = 1,
    seed: Annotated[int, typer.Option(help="Seed of everything.")] = 0,
    share: Annotated[
        float,
        typer.Option(help="Share of the users for the model; the others are for the utility."),
    ] = 0.5,
    level: Annotated[float, typer.Option(help="Level of the intervals of the utility.")] = 0.95,
    declaration: Annotated[
        Path | None, typer.Option(help="P.toml of `discreet prepare`: also write its readings as columns.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write synthetic users from a release's model, and their distance from the real users of the release."""
    from discreet.pipeline.synthetic_users import synthesize as make

    with rows_bar() as progress:
        made = make(
            release, out, users, members=members, seed=seed, share=share, level=level,
            declaration=declaration, progress=progress,
        )  # fmt: skip
    utility = made.utility
    if as_json:
        measured = None if utility is None else utility.to_dict()
        print_json({"file": str(made.path), "schema": str(made.schema), **made.facts, "utility": measured})
        return
    if utility is None:
        console().print("Utility is not known: the whole release gave the model (--share 1).")
    else:
        _print_utility(utility)
    if made.facts["epsilon"] is None or made.facts["randomness"] == "seeded":
        console().print("NOT PRIVATE: the release protects no user, and neither does this file.")
    console().print(
        f"{users:,} synthetic users: {made.path}, schema {made.schema}. Their intervals describe the model, "
        "not real users."
    )


def _print_utility(utility: Utility) -> None:
    """Print the distances of synthetic users from real users, and the values of simple policies."""
    to = console()
    to.print(f"Total variation between real and synthetic users, at level {utility.level:g}:")
    table = new_table("", "estimate", "interval", right=("estimate",))
    for name in ("states", "pairs", "transitions"):
        one = getattr(utility, name)
        found = (
            ("unknown", "") if one is None else (f"{one.estimate:.3f}", f"{one.low:.3f} to {one.high:.3f}")
        )
        table.add_row(name, *found)
    to.print(table)
    to.print("Mean return, and gains of other policies over the behaviour policy:")
    table = new_table(
        "", "synthetic users", "real users", "interval", right=("synthetic users", "real users")
    )
    for name, one in utility.values.items():
        table.add_row(name, f"{one.synthetic:.4g}", f"{one.estimate:.4g}", f"{one.low:.4g} to {one.high:.4g}")
    to.print(table)


def _behaviour(mdp: TabularMDP, env: str, policy: str, seed: int) -> NDArray[np.float64] | NDArray[np.int64]:
    """Return the behaviour policy with the given name.

    - seed : seed of the policy "random".
    """
    import numpy as np

    from discreet.core import checks
    from discreet.envs.mdp import planning

    checks.choice("policy", policy, ("uniform", "optimal", "random", "expert"))
    if policy == "expert":
        if env != "icu-sepsis":
            raise ValueError("policy = 'expert': only icu-sepsis has one")
        from discreet.envs.icu_sepsis import expert_policy

        return expert_policy(horizon=mdp.layout.horizon, inadmissible="renormalised")
    if policy == "optimal":
        return planning.optimal_values(mdp)[2]
    uniform = planning.uniform_policy(mdp)
    if policy == "uniform":
        return uniform
    weights = uniform * np.random.default_rng(seed).exponential(size=uniform.shape)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
