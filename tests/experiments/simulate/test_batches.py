"""Simulated batches with queries of their own: by users and by flows, under every trust model."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import stats

import discreet as dr
from discreet.core.count_query import CountQuery
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.core.rng import Seeded
from discreet.envs.rollouts.rollout import batch_counts, reported_step
from discreet.experiments.estimate import estimate_run
from discreet.experiments.simulate import Setup
from discreet.mechanisms.batch_queries import BatchChannel
from discreet.mechanisms.interfaces import Plan, ProblemSpec, Release, Schedule
from discreet.mechanisms.privatizers.shuffle import Shuffle

MDP = dr.make("riverswim", states=3, horizon=3)


@dataclass(frozen=True)
class Asker:
    """A crude batch of two plans for each step, then a fine one; whoever is left follows the last policy."""

    crude: int = 40
    fine: int = 100

    def schedule(self, spec: ProblemSpec) -> Schedule:
        sizes = [self.crude] * spec.horizon + [self.fine]
        crude = [CountQuery(spec.layout, step=h, known_rewards=True) for h in range(spec.horizon)]
        times = np.concatenate([[0], np.cumsum(sizes)])
        return Schedule(spec.users, times=times, queries=(*crude, self.query(spec)), plans="deterministic")

    def query(self, spec: ProblemSpec) -> CountQuery:
        return CountQuery(spec.layout, visits=False, center_rewards=True)

    def begin(self, spec: ProblemSpec, ties: Any) -> tuple[ProblemSpec, int]:
        return spec, 0

    def plan(self, state: Any, release: Release, ask: Any) -> tuple[Plan, Any]:
        spec, planned = state
        ends = self.schedule(spec).release_times
        at = int(np.searchsorted(ends, planned, side="right"))  # of the open batch; past the last
        assert release.number == at - 1
        assert release.users == ends[at - 1]
        policy = np.full((spec.horizon, spec.states), planned % 3 % 2)
        if at == ends.size:
            return Plan(policy, spec.users - planned, last=False), (spec, spec.users)
        half, whole = (int(ends[at - 1]) + int(ends[at])) // 2, int(ends[at])
        users = (half if planned < half else whole) - planned
        return Plan(policy, users, last=planned >= half), (spec, planned + users)


@pytest.mark.parametrize("by", ["episode", "batch"])
@pytest.mark.parametrize(
    "privatizer",
    [
        dr.NoPrivacy(), dr.Central(epsilon=1.0, delta=1e-6), dr.Local(epsilon=1.0, randomizer="laplace"),
        dr.Local(epsilon=1.0, randomizer="subset"), Shuffle(epsilon=1.0),
    ],
    ids=str,
)  # fmt: skip
def test_the_drivers_run_batches(privatizer: Any, by: Any) -> None:
    setup = Setup(MDP, Asker(), privatizer, 250, by=by)
    assert not setup.fused
    assert isinstance(setup.start(Seeded(0)).channel, BatchChannel)
    run = setup.run(0, 0)
    assert run.regret[-1] >= 0.0
    assert setup.recorded[-1] == 250
    again = setup.run(0, 0)
    assert np.array_equal(run.regret, again.regret)
    forecast = estimate_run(setup)
    assert forecast.releases == 4
    assert set(forecast.std) <= {VISITS, TRANSITIONS, CENTERED_REWARDS}


def test_auto_takes_flows_for_large_batches() -> None:
    assert not Setup(MDP, Asker(), dr.NoPrivacy(), 240).batched
    assert Setup(MDP, Asker(100, 300), dr.NoPrivacy(), 601).batched


def test_reports_of_one_step_have_their_law() -> None:
    """One report a user; thinned counts within 5.5 deviations (12 cells: 5e-7)."""
    policy, key, n, share = np.ones((3, 3), np.int64), Seeded(4).keys.environment, 200_000, 0.3
    counts = batch_counts(MDP, policy, n, key, 7)
    for step in range(3):
        found = reported_step(MDP, counts, step, share, key, 7)
        moves, bits = found["reported_moves"], found["reported_bits"]
        assert moves.shape == (1, 3, 2, 3)
        assert bits.shape == (1, 3, 2, 2)
        assert moves.sum() + bits.sum() == n
        here = counts["transition_counts"][step]
        assert (moves[0] <= here).all()
        spread = np.sqrt(here * share * (1 - share)) + 1e-9
        assert (np.abs(moves[0] - (1 - share) * here) <= 5.5 * spread).all()
        asked = bits[0].sum(axis=-1)
        assert np.array_equal(asked, (here - moves[0]).sum(axis=-1))
        for s, a in np.argwhere(asked > 0):
            ones, mean = bits[0, s, a, 1], MDP.rewards[step, s, a]
            assert stats.binomtest(int(ones), int(asked[s, a]), float(mean)).pvalue > 1e-8
