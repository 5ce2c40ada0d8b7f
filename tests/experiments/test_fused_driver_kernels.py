"""The compiled loop over releases against users who are played and counted one by one, in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import discreet as dr
from discreet.core.rng import Seeded
from discreet.envs.rollouts.rollout import rollout
from discreet.experiments import fused_driver_kernels as drivers
from discreet.experiments import simulate
from discreet.experiments.simulate import Setup

USERS = 40
MDP = dr.make("random", states=3, actions=2, horizon=4, seed=3)
ROWS, STATES = MDP.layout.rows, MDP.layout.states


def arguments(by: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """(truth, stream, side, scratch, record, environment), and the number of releases, of a new run."""
    setup = Setup(MDP, dr.DPUCBVI(replan_every=1), dr.NoPrivacy(), USERS, by)
    given: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(drivers, "run_releases", lambda *those: given.append(those))
        simulate._run_fused(setup, Seeded(3, 1), lambda users: None)
    return (*given[0][:6], setup.times.size - 1)


def value(policy: np.ndarray) -> np.ndarray:
    """(S,) expected return of a policy by rows (H, S), by backward induction."""
    after = np.zeros(STATES)
    state, action = MDP.layout.row_state, MDP.layout.row_action
    for h in reversed(range(MDP.horizon)):
        now = np.zeros(STATES)
        for s in range(STATES):
            row = policy[h, s]
            assert state[row] == s
            means, moves = MDP.rewards, MDP.transitions
            if means.ndim == 3:
                means, moves = means[h], moves[h]
            now[s] = means[s, action[row]] + moves[s, action[row]] @ after
        after = now
    return after


def test_counts_and_regret_are_those_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """After every release: exact counts, and regret of the users' first states under the played policy."""
    truth, stream, side, scratch, record, key, releases = arguments("episode", monkeypatch)
    visits, moves = np.zeros((MDP.horizon, ROWS)), np.zeros((MDP.horizon, ROWS, STATES))
    earned, regret, gaps, played = np.zeros((MDP.horizon, ROWS)), 0.0, 0.0, set()
    assert releases > 3
    assert not side.stochastic
    for release in range(releases):
        drivers.run_releases(truth, stream, side, scratch, record, key, release, release + 1, False)
        actions = MDP.layout.row_action[side.policy_rows]
        played.add(actions.tobytes())
        values = value(side.policy_rows)
        for user in range(side.times[release], side.times[release + 1]):
            one = rollout(MDP, actions, key, user)
            for h in range(MDP.horizon):
                row = MDP.layout.row_index[one.states[h], one.actions[h]]
                visits[h, row] += 1
                moves[h, row, one.states[h + 1]] += 1
                earned[h, row] += one.rewards[h] - stream.reward_shift
                gaps += truth.gaps[h, row]
            regret += truth.start_values[one.states[0]] - values[one.states[0]]
        for begin, table in zip(stream.begins, (visits, moves, earned), strict=False):
            found = stream.cells[begin : begin + table.size] if begin >= 0 else None
            assert found is None or found == pytest.approx(table.ravel(), abs=1e-9)
        assert record.running == pytest.approx([regret, gaps], abs=1e-9)
    assert stream.begins[1] >= 0
    assert visits.sum() == USERS * MDP.horizon
    assert len(played) > 1
    assert record.regret[-1] == record.running[0] > 0.0


@pytest.mark.parametrize("by", ["episode", "batch"])
def test_a_run_may_be_split_into_calls_anywhere(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for ends in ((), (1,), (1, 2, 3), (2, 4)):
        *given, releases = arguments(by, monkeypatch)
        for first, last in zip((0, *ends), (*ends, releases), strict=True):
            drivers.run_releases(*given, first, last, by == "batch")
        stream, record = given[1], given[4]
        found.append((stream.cells.copy(), record.regret, record.gap_regret, record.running))
        assert record.position[0] == record.users.size
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_a_batch_has_a_step_of_every_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regret of a batch is that of its first states, which its scratch still holds."""
    truth, stream, side, scratch, record, key, releases = arguments("batch", monkeypatch)
    regret, moved = 0.0, slice(stream.begins[1], stream.begins[1] + MDP.horizon * ROWS * STATES)
    for release in range(releases):
        drivers.run_releases(truth, stream, side, scratch, record, key, release, release + 1, True)
        users = int(side.times[release + 1])
        steps = stream.cells[moved].reshape(MDP.horizon, ROWS, STATES).sum(axis=(1, 2))
        assert steps.tolist() == [users] * MDP.horizon
        assert scratch.starts.sum() == users - side.times[release]
        regret += float(scratch.starts @ (truth.start_values - value(side.policy_rows)))
        assert record.running[0] == pytest.approx(regret, abs=1e-9)
