"""
Policy gradients from a user-defined vector
===========================================

Each user's policy-gradient estimate is one vector, whose norm the core clips to B. The server adds noise to
the sum of a batch and takes a step. Users act by a softmax policy of the public parameters.
"""

from dataclasses import dataclass

import numpy as np
import shown

import discreet as dr


def gradient(trajectory, context):
    """Return the REINFORCE gradient of one user: returns to go times the score of each action."""
    policy, found = context["policy"], np.zeros_like(context["policy"])
    to_go = trajectory.rewards[::-1].cumsum()[::-1] - context["baseline"]
    for h, (s, a) in enumerate(zip(trajectory.states, trajectory.actions, strict=False)):
        found[h, s] -= to_go[h] * policy[h, s]
        found[h, s, a] += to_go[h]
    return found.ravel()


@dataclass(frozen=True)
class PolicyGradient:
    """REINFORCE with a softmax policy and batches of users."""

    batch: int = 1_500
    step: float = 30.0
    bound: float = 2.0

    def schedule(self, spec):
        times = np.arange(0, spec.users, self.batch)
        return dr.Schedule(spec.users, times, reads="measurements", plans="stochastic")

    def query(self, spec):
        size = spec.horizon * spec.states * spec.actions
        return dr.mechanisms.FamilyQuery(
            spec.layout, (dr.mechanisms.BoundedVector("gradient", size, self.bound, gradient),)
        )

    def begin(self, spec, ties):
        allowed = np.ones((spec.states, spec.actions)) if spec.layout.mask is None else spec.layout.mask
        return spec, allowed, np.zeros((spec.horizon, spec.states, spec.actions))

    def plan(self, state, release, ask):
        spec, allowed, weights = state
        if release.number:
            mean = release.measurement.estimates["gradient"].value.reshape(weights.shape) / self.batch
            weights = weights + self.step * mean
        scores = np.where(allowed, weights, -np.inf)
        policy = np.exp(scores - scores.max(axis=-1, keepdims=True))
        policy /= policy.sum(axis=-1, keepdims=True)
        context = {"policy": policy, "baseline": np.arange(spec.horizon, 0, -1) / 2}
        users = min(self.batch, spec.users - release.users)
        return dr.Plan(policy, users, context=context), (spec, allowed, weights)


mdp = dr.make("random", states=5, actions=3, horizon=4, seed=2)
privacy = {"no privacy": dr.NoPrivacy(), "epsilon 3": dr.Central(epsilon=3, delta=1e-6, noise="gaussian")}
results = {
    name: dr.simulate(mdp, PolicyGradient(), one, episodes=60_000, seeds=2, workers=1)
    for name, one in privacy.items()
}

# %%

figure, axes = shown.figure()
for colour, (name, result) in zip(shown.COLOURS, results.items(), strict=False):
    axes.plot(result.episodes, result.regret.mean(axis=0), color=colour, label=name)
axes.set(xlabel="users", ylabel="regret, in rewards")
axes.legend()
shown.stamp([results["epsilon 3"].guarantee], 2, figure)
