"""What is written is read back, and an interrupted file never appears."""

import stat
from dataclasses import replace

import numpy as np
import pytest
from counted import count

import discreet as dr
from discreet.data.row_batches import open_source
from discreet.data.validate import episodes
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.pipeline.trajectory_files import (
    TrajectoryWriter,
    cohort_schema,
    write_cohort,
    write_trajectories,
)


@pytest.fixture
def world():
    return dr.make("riverswim", horizon=6)


def read(path, schema, **how):
    parts = [part.trajectories for part in episodes(open_source(path, schema), **how)]
    return dr.Trajectories(
        *(np.concatenate([getattr(p, name) for p in parts]) for name in ("states", "actions", "rewards"))
    )


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("each", [1, 2])
def test_a_cohort_is_its_rollouts(world, tmp_path, suffix, each) -> None:
    schema = replace(
        cohort_schema(world, "made-up", episodes_per_user=each),
        state_labels=tuple("abcdef"), low=-2.0, high=2.0, first_step=1,
    )  # fmt: skip
    policy = dr.envs.uniform_policy(world)
    path = tmp_path / f"cohort{suffix}"
    write_cohort(world, policy, 50, path, schema, seed=3, chunk=7)
    expected, got = rollout_batch(world, policy, 50 * each, 3), read(path, schema, batch_rows=11)
    assert np.array_equal(got.states, expected.states)
    assert np.array_equal(got.actions, expected.actions)
    assert np.allclose(got.rewards, expected.rewards, rtol=0, atol=1e-15)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_trimmed_episodes_count_alike(tmp_path) -> None:
    transitions = np.zeros((3, 2, 3))
    transitions[:2, :, :] = [0.25, 0.25, 0.5]
    transitions[2, :, 2] = 1.0
    world = dr.TabularMDP(transitions, np.zeros((3, 2)), [1.0, 0.0, 0.0], horizon=4, terminal=[2])
    schema = replace(cohort_schema(world, "made-up"), terminal=(2,))
    full = rollout_batch(world, dr.envs.uniform_policy(world), 80, 5)
    full.actions[full.states[:, :-1] == 2] = 0  # as rows that are left out are counted
    for trim in (False, True):
        write_trajectories(full, tmp_path / f"{trim}.parquet", schema, trim=trim)
    whole, short = (open_source(tmp_path / f"{trim}.parquet", schema) for trim in (False, True))
    assert whole.rows == 80 * 4 > short.rows
    assert np.array_equal(count(whole).transitions, count(short).transitions)


def test_nothing_appears_when_it_fails(world, tmp_path) -> None:
    schema = cohort_schema(world, "made-up")
    bad = rollout_batch(world, dr.envs.uniform_policy(world), 3)
    bad.rewards[1, 2] = 1.2
    with pytest.raises(ValueError, match="1.2"):
        write_trajectories(bad, tmp_path / "x.parquet", schema)
    with pytest.raises(KeyboardInterrupt), TrajectoryWriter(tmp_path / "x.csv", schema):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match=r"\.parquet or \.csv"):
        TrajectoryWriter(tmp_path / "x.json", schema)
    with pytest.raises(ValueError, match="layout"):
        write_cohort(dr.make("riverswim", horizon=7), [[0] * 6] * 7, 1, tmp_path / "x.csv", schema)
