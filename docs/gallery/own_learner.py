"""
Write a learner in thirty lines
===============================

A learner declares when it needs a release and of which sums, and computes a policy from each release. It
never sees the data of a user. Everything that it computes is therefore covered by the guarantee of the
releases. The learner below is similar to R-max. The figure compares it with the default learner.
"""

from dataclasses import dataclass

import numpy as np
import shown

import discreet as dr


@dataclass(frozen=True)
class ImaginedVisits:
    """Greedy learner on released counts, with imagined visits of maximal return to every (h, s, a)."""

    prior: float = 5.0

    def schedule(self, spec):
        return dr.Schedule(spec.users, growth=1.5)

    def query(self, spec):
        return dr.mechanisms.CountQuery(spec.layout)

    def begin(self, spec, ties):
        return spec, np.append(self.schedule(spec).release_times, spec.users)

    def plan(self, state, release, ask):
        spec, times = state
        sums = {name: np.maximum(estimate.value, 0) for name, estimate in release.estimates.items()}
        visits = sums["transition_counts"].sum(axis=-1)
        rewards = np.minimum(sums["reward_sums"], visits) + self.prior
        values, policy = np.zeros(spec.states), np.zeros((spec.horizon, spec.states), np.int64)
        for h in reversed(range(spec.horizon)):
            future = sums["transition_counts"][h] @ values + self.prior * (spec.horizon - h - 1)
            q = (rewards[h] + future) / (visits[h] + self.prior)
            policy[h], values = q.argmax(axis=-1), q.max(axis=-1)
        return dr.Plan(policy, users=int(times[release.number + 1] - times[release.number])), state


mdp = dr.make("random", states=5, actions=3, horizon=5, seed=2)
private = dr.Central(epsilon=3, delta=1e-6)
results = {
    name: dr.simulate(mdp, learner, private, episodes=20_000, seeds=4, workers=1)
    for name, learner in {"imagined visits": ImaginedVisits(), "noise-aware": dr.NoiseAwareUCBVI()}.items()
}

# %%

figure, axes = shown.figure()
for colour, (name, result) in zip(shown.COLOURS, results.items(), strict=False):
    axes.plot(result.episodes, result.regret.mean(axis=0), color=colour, label=name)
    shown.band(axes, result.episodes, result.regret.min(axis=0), result.regret.max(axis=0), colour)
axes.plot(
    result.episodes,
    result.uniform_regret * result.episodes / result.users,
    ":",
    color="0.5",
    label="never learns",
)
axes.set(xlabel="people", ylabel="regret, in rewards")
axes.legend()
shown.stamp([result.guarantee for result in results.values()], 4, figure)
