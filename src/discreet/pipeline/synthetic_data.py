"""Synthetic data from a random MDP that fits a schema, for a test run before real data are read.

The synthetic data contain no information about the real population. They satisfy every declaration of the
schema: sizes, mask, terminal states, reward range and episodes per user. Therefore the whole pipeline runs on
them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from discreet.core import checks
from discreet.core.releases import Floats
from discreet.data.row_batches import Progress, Source
from discreet.data.schema import Schema
from discreet.data.sources import places_of
from discreet.envs.mdp.tabular import TabularMDP
from discreet.pipeline.trajectory_files import write_cohort

_SUCCESSORS = 5  # largest number of next states of a pair of state and action


def made_up_world(schema: Schema, seed: int = 0) -> tuple[TabularMDP, Floats]:
    """Build a random stationary MDP with the layout of a schema, and a behaviour policy (H, S, A).

    Every pair of state and action leads to at most 5 random states. Terminal states lead to themselves, with
    reward 0 in the units of the file. If the schema has known rewards, the MDP has these rewards. Otherwise,
    its rewards are random.
    """
    layout, draw = schema.layout, np.random.default_rng(checks.integer("seed", seed, 0))
    states, actions = layout.states, layout.actions
    few = min(_SUCCESSORS, states)
    rows = np.zeros((states, actions, states))
    # `few` independent random permutations of the states
    reached = draw.permuted(np.tile(np.arange(states), (few, 1)), axis=1)
    for a in range(actions):
        chances = draw.dirichlet(np.full(few, 0.5), states)
        for i in range(few):
            rows[np.arange(states), a, np.roll(reached[i], a)] += chances[:, i]
    rows /= rows.sum(axis=-1, keepdims=True)
    means = draw.uniform(size=(states, actions)) ** 2
    ends = list(schema.terminal)
    rows[ends] = np.eye(states)[ends][:, None]
    means[ends] = -schema.low / (schema.high - schema.low)
    rewards = means[None] if schema.known is None else schema.known
    initial = np.ones(states)
    if len(ends) < states:
        initial[ends] = 0.0
    mdp = TabularMDP(
        rows[None],
        rewards,
        initial / initial.sum(),
        horizon=layout.horizon,
        mask=layout.mask,
        terminal=ends if schema.known is None else (),
    )
    mask = np.ones((states, actions), bool) if layout.mask is None else layout.mask
    weights = draw.exponential(size=(states, actions)) * mask
    behaviour = weights / weights.sum(axis=1, keepdims=True)
    return mdp, np.repeat(behaviour[None], layout.horizon, axis=0)


def write_made_up(
    schema: Schema, users: int, path: str | Path, *, seed: int = 0, progress: Progress | None = None
) -> Source:
    """Write the trajectories of synthetic users to a file that fits the schema, and return it as a source.

    :func:`~discreet.pipeline.trajectory_files.write_cohort` describes the parameters.
    """
    mdp, behaviour = made_up_world(schema, seed)
    write_cohort(
        mdp, behaviour, users, path, schema, seed=seed, trim=bool(schema.terminal), progress=progress
    )
    if schema.context is not None:
        _add_contexts(schema, Path(path), seed)
    return Source(schema, places_of(path))


def _add_contexts(schema: Schema, path: Path, seed: int) -> None:
    """Add columns with random contexts (uniform) and equal action probabilities to a file of trajectories."""
    assert schema.context is not None
    table, draw = parquet.read_table(path), np.random.default_rng([seed, 1])
    for name, (low, high) in schema.context.features.ranges.items():
        table = table.append_column(name, pa.array(draw.uniform(low, high, table.num_rows)))
    if schema.context.propensity is not None:
        equal = np.full(table.num_rows, 1.0 / schema.layout.actions)
        table = table.append_column(schema.context.propensity, pa.array(equal))
    parquet.write_table(table, path)
