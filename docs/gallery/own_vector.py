"""
Q-learning from a user-defined vector
=====================================

Each user's temporal-difference errors are one vector, a function of their trajectory and of the public Q
table. The core clips its norm to B, so the printed epsilon holds for any function of one trajectory. The
statement says what else it rests on.
"""

from dataclasses import dataclass

import numpy as np
import shown

import discreet as dr


def errors(trajectory, context):
    """Return the temporal-difference error of every step, in its cell of the Q table."""
    q, found = context["q"], np.zeros_like(context["q"])
    for h, (s, a) in enumerate(zip(trajectory.states, trajectory.actions, strict=False)):
        future = q[h + 1, trajectory.states[h + 1]].max() if h + 1 < len(q) else 0.0
        found[h, s, a] = trajectory.rewards[h] + future - q[h, s, a]
    return found.ravel()


@dataclass(frozen=True)
class QLearning:
    """Tabular Q-learning with batches of users and exploration at random."""

    batch: int = 1_500
    step: float = 40.0
    explore: float = 0.3
    bound: float = 1.2

    def schedule(self, spec):
        times = np.arange(0, spec.users, self.batch)
        return dr.Schedule(spec.users, times, reads="measurements", plans="stochastic")

    def query(self, spec):
        size = spec.horizon * spec.states * spec.actions
        vector = dr.mechanisms.BoundedVector("errors", size, self.bound, errors)
        return dr.mechanisms.FamilyQuery(spec.layout, (vector,))

    def begin(self, spec, ties):
        allowed = np.ones((spec.states, spec.actions)) if spec.layout.mask is None else spec.layout.mask
        return spec, allowed, np.zeros((spec.horizon, spec.states, spec.actions))

    def plan(self, state, release, ask):
        spec, allowed, q = state
        if release.number:
            mean = release.measurement.estimates["errors"].value.reshape(q.shape) / self.batch
            rate = self.step / (1 + release.number / 10)
            q = allowed * np.clip(q + rate * mean, 0, np.arange(spec.horizon, 0, -1)[:, None, None])
        greedy = np.eye(spec.actions)[np.where(allowed, q, -1).argmax(axis=-1)]
        random = allowed / allowed.sum(axis=-1, keepdims=True)
        policy = (1 - self.explore) * greedy + self.explore * random
        users = min(self.batch, spec.users - release.users)
        return dr.Plan(policy, users, context={"q": q}), (spec, allowed, q)


mdp = dr.make("random", states=5, actions=3, horizon=4, seed=2)
privacy = {"no privacy": dr.NoPrivacy(), "epsilon 1": dr.Central(epsilon=1, delta=1e-6, noise="gaussian")}
results = {
    name: dr.simulate(mdp, QLearning(), one, episodes=30_000, seeds=2, workers=1)
    for name, one in privacy.items()
}

# %%

figure, axes = shown.figure()
for colour, (name, result) in zip(shown.COLOURS, results.items(), strict=False):
    axes.plot(result.episodes, result.regret.mean(axis=0), color=colour, label=name)
axes.set(xlabel="users", ylabel="regret, in rewards")
axes.legend()
shown.stamp([results["epsilon 1"].guarantee], 2, figure)
