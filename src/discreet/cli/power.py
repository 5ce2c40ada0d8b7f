"""Command ``power``: the probability that a gain is shown, by simulation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.common import (
    DeltaOption,
    JsonFlag,
    command,
    console,
    new_table,
    print_json,
    say,
)
from discreet.cli.stored_options import (
    LearnerSettings,
    learner_and_privatizer,
    rows_bar,
)

if TYPE_CHECKING:
    from discreet.data.schema import Schema
    from discreet.pipeline.power_analysis import PublicMDP


def _differs(world: str | None) -> str:
    """Return advice to try other assumptions: other environments, or a smaller gain if ``world`` is None."""
    return f"Your world will differ: try {'others' if world else 'a smaller gain'}, too."


@command
def power(
    schema: Annotated[Path | None, typer.Option(help="SCHEMA.toml: what is public about the data.")] = None,
    target_gain: Annotated[
        float | None, typer.Option(help="Best possible gain in a synthetic MDP of the schema's sizes.")
    ] = None,
    world: Annotated[
        str | None, typer.Option(help="Instead: an environment (icu-sepsis, ...) or a table (.csv).")
    ] = None,
    users: Annotated[int | None, typer.Option(help="Expected users (default: found, for --epsilon).")] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Privacy budget, above 0 (default: found, for --users).")
    ] = None,
    delta: DeltaOption = None,
    learner: Annotated[
        str | None, typer.Option(help="decision-points, dp-pevi or dp-vapvi (default: as `discreet learn`).")
    ] = None,
    option: LearnerSettings = None,
    draws: Annotated[int, typer.Option(help="Simulated releases.")] = 60,
    as_json: JsonFlag = False,
) -> None:
    """Simulate the probability that a gain is shown; find the sample size or epsilon that a gain needs."""
    from discreet.data.schema import read_schema
    from discreet.pipeline.learned_files import default_algorithm, refuse_groups

    if schema is None:
        raise ValueError("schema is missing: give --schema SCHEMA.toml")
    public, target = read_schema(schema), target_gain
    if (target is None) == (world is None):
        raise ValueError("target-gain: give either --target-gain G (generates a world) or --world NAME|FILE")
    if users is None and epsilon is None:
        raise ValueError("users is missing: give --users N or --epsilon E; the other one is found")

    algorithm = learner or default_algorithm(public)
    if algorithm in _LINEAR:
        refuse_groups(public, algorithm)
        _power_linear(public, users, epsilon, delta, target, world, draws, as_json, algorithm, option)
        return
    if algorithm != "decision-points":
        raise ValueError(
            f"learner = {algorithm!r}: must be decision-points (with stationary = true in the schema), "
            "dp-pevi or dp-vapvi, the learners that `discreet power` simulates"
        )
    if not public.stationary:
        raise ValueError(
            "learner = 'decision-points': must be of a schema with stationary = true; `discreet learn` "
            "refuses it too"
        )
    if option:
        raise ValueError("set: must not be given for decision-points here")

    from discreet.mechanisms.privatizers.central import Central
    from discreet.pipeline import power_analysis
    from discreet.pipeline.power_analysis import EPSILONS

    if public.groups is not None:
        say("discreet: [groups] are left out of the simulation; they do not change the noise of a release")
    rows = []
    with rows_bar() as progress:
        progress("make the world", 0, None)
        known = (
            _world(world, public)
            if world is not None
            else power_analysis.synthetic_mdp(public, target or 0.0)
        )
        delta = 0.0 if delta is None else delta
        if epsilon is None:
            progress("find epsilon", 0, None)
            epsilon = power_analysis.smallest_epsilon(known, users or 1, delta, draws=draws)
            if epsilon is None:
                say(f"discreet: no epsilon up to {EPSILONS[-1]:g} shows such a gain in 9 of 10 draws")
                epsilon = EPSILONS[-1]
        privatizer = Central(epsilon=epsilon, delta=delta)
        if users is None:
            progress("find the number of users", 0, None)
            users = power_analysis.sample_size(known, privatizer, draws=draws)
            if users is None:
                raise ValueError(f"epsilon = {epsilon:g}: not even 1e9 users would show such a gain")
        for done, times in enumerate((1 / 3, 1.0, 3.0)):
            progress("simulate releases", done, 3)
            many = max(round(users * times), 1)
            rows.append(power_analysis.gain_power(known, many, privatizer, draws=draws))
    if as_json:
        print_json({"usual": known.usual, "best": known.best, "rows": [row.to_dict() for row in rows]})
        return
    table = new_table(
        "users", "ε", "chance that a gain is shown", "true gain of the policy", "states changed"
    )
    for row in rows:
        table.add_row(*_first_cells(row), f"{row.gain:.3f} of {row.best:.3f}", f"{row.changes:.0f}")
    console().print(table)
    where = f"{world} " if world else "a synthetic environment of the schema's sizes, "
    console().print(
        f"{draws} simulated releases each, in {where}where the best policy gains {known.best:.3f}. "
        f"{_differs(world)}"
    )


def _first_cells(row: Any) -> tuple[str, str, str]:
    """Return the cells that both tables have: users, epsilon, and the probability with its interval."""
    chance = f"{100 * row.chance:.0f} % ({100 * row.low:.0f} to {100 * row.high:.0f})"
    return f"{row.users:,}", f"{row.epsilon:g}", chance


_LINEAR = ("dp-pevi", "dp-vapvi")


def _power_linear(
    schema: Schema,
    users: int | None,
    epsilon: float | None,
    delta: float | None,
    target: float | None,
    world: str | None,
    draws: int,
    as_json: bool,
    algorithm: str,
    option: list[str] | None,
) -> None:
    """Print the power of linear learners, estimated by simulation. Half of the simulated users are held
    out.
    """
    from dataclasses import replace

    from discreet.pipeline import linear_power_analysis as linear_power
    from discreet.pipeline.learned_files import LinearSums
    from discreet.pipeline.power_analysis import EPSILONS

    budget = {"epsilon": 1.0 if epsilon is None else epsilon}
    learner, _ = learner_and_privatizer(
        algorithm, option, budget if delta is None else {**budget, "delta": delta}
    )
    features = LinearSums(schema, learner).features
    rows = []
    with rows_bar() as progress:
        progress("make the world", 0, None)
        if world is not None:
            known = _world(world, schema)
            if (known.mdp.states, known.mdp.actions) != (features.states, features.actions):
                raise ValueError(
                    f"world = {world!r}: has {known.mdp.states} states and {known.mdp.actions} actions, the "
                    f"schema's features {features.states} and {features.actions}"
                )
        else:
            known, features = linear_power.made_up(schema, features, target or 0.0)
        if epsilon is None:
            progress("find epsilon", 0, None)
            epsilon = linear_power.linear_smallest_epsilon(
                known, features, learner, users or 1, EPSILONS, draws=draws
            )
            if epsilon is None:
                say(f"discreet: no epsilon up to {EPSILONS[-1]:g} shows such a gain in 9 of 10 draws")
                epsilon = EPSILONS[-1]
            learner = replace(learner, epsilon=epsilon)
        if users is None:
            progress("find the number of users", 0, None)
            users = linear_power.linear_sample_size(known, features, learner, draws=draws)
            if users is None:
                raise ValueError(f"epsilon = {epsilon:g}: not even 3e6 users would show such a gain")
        for done, times in enumerate((1 / 3, 1.0, 3.0)):
            progress("simulate users", done, 3)
            many = min(max(round(users * times), 1), linear_power.MOST_PEOPLE)
            rows.append(linear_power.linear_gain_power(known, features, learner, many, draws=draws))
    if as_json:
        print_json({"usual": known.usual, "best": known.best, "rows": [row.to_dict() for row in rows]})
        return
    table = new_table(
        "users", "ε", "chance that a gain is shown", "policy truly better", "true gain of the policy"
    )
    for row in rows:
        better = f"{100 * row.better:.0f} %"
        table.add_row(*_first_cells(row), better, f"{row.gain:.3f} of {row.best:.3f}")
    console().print(table)
    where = f"{world}, " if world else "a synthetic linear environment of the schema's sizes, "
    off = rows[0].nonlinear
    console().print(
        f"{draws} data sets each, of users simulated in {where}where the best policy gains "
        f"{known.best:.3f}; one half is for learning, the other for evaluation (--set judged=true). "
        + (
            f"This environment is not linear in these features: probabilities differ by up to {off:.2g}. "
            if off
            else ""
        )
        + _differs(world)
    )


def _world(name: str, schema: Schema) -> PublicMDP:
    """Return a public MDP and its behaviour policy, from a file or from the environment with this name.

    A file is a table of the schema's states and actions. The behaviour policy of ICU-Sepsis is its expert
    policy. For any other environment, it is the uniform policy.
    """
    if Path(name).suffix in (".csv", ".parquet"):
        from discreet.pipeline.environment_table import read_mdp

        return read_mdp(name, schema)
    from discreet import registry
    from discreet.envs.icu_sepsis import expert_policy
    from discreet.envs.mdp.planning import uniform_policy
    from discreet.mechanisms.interfaces import ReturnBounds
    from discreet.pipeline.power_analysis import PublicMDP
    from discreet.pipeline.trajectory_files import outcomes_of

    mdp = registry.build("environment", name, None, {})
    behaviour = uniform_policy(mdp)
    if name == "icu-sepsis":
        behaviour = expert_policy(horizon=mdp.horizon, inadmissible="renormalised")
    return PublicMDP(mdp, behaviour, ReturnBounds(terminal=mdp.terminal, outcomes=outcomes_of(mdp)))
