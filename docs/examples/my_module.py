"""Example plug-in with a learner, a privatizer and an environment.

Run `discreet check-plugin my_module` in this folder to test them. The command line then accepts their names:
`discreet run --plugin my_module --env ward --learner imagined-visits ...`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import discreet as dr


@dataclass(frozen=True)
class ImaginedVisits:
    """Greedy learner on released counts, with imagined visits of maximal return to every (h, s, a).

    The idea is similar to R-max.
    """

    prior: float = 5.0  # number of imagined visits to each (h, s, a); a heuristic without a regret theorem

    def schedule(self, spec: dr.mechanisms.ProblemSpec) -> dr.Schedule:
        return dr.Schedule(spec.users, growth=1.5)

    def query(self, spec: dr.mechanisms.ProblemSpec) -> dr.mechanisms.CountQuery:
        return dr.mechanisms.CountQuery(spec.layout)

    def begin(self, spec: dr.mechanisms.ProblemSpec, ties: Any) -> Any:
        return spec, np.append(self.schedule(spec).release_times, spec.users)

    def plan(self, state: Any, release: dr.Release, ask: Any) -> tuple[dr.Plan, Any]:
        spec, times = state
        sums = {name: np.maximum(estimate.value, 0.0) for name, estimate in release.estimates.items()}
        visits = sums["transition_counts"].sum(axis=-1)
        rewards = np.minimum(sums["reward_sums"], visits) + self.prior
        values, policy = np.zeros(spec.states), np.zeros((spec.horizon, spec.states), np.int64)
        for h in reversed(range(spec.horizon)):
            future = sums["transition_counts"][h] @ values + self.prior * (spec.horizon - h - 1)
            q = (rewards[h] + future) / (visits[h] + self.prior)
            if spec.layout.mask is not None:
                q = np.where(spec.layout.mask, q, -np.inf)
            policy[h], values = q.argmax(axis=-1), q.max(axis=-1)
        users = int(times[release.number + 1] - times[release.number])
        return dr.Plan(policy, users=users), state


@dataclass(frozen=True)
class MostlyTransitions(dr.mechanisms.Proposes):
    """Joint DP that spends most of the budget on transition counts.

    The library computes the noise scales and the guarantee.
    """

    epsilon: float = 1.0
    share: float = 0.8

    @property
    def trust(self) -> str:
        return "joint"

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"share = {self.share}: must be in (0, 1)")
        dr.Central(epsilon=self.epsilon)  # raises ValueError for a budget that Central refuses

    def mechanism(self, query: Any, schedule: dr.Schedule, randomness: Any) -> Any:
        names = list(query.row_families)
        rest = (1 - self.share) / max(1, len(names) - 1)
        weights = [self.share if name == "transition_counts" else rest for name in names]
        central = dr.Central(epsilon=self.epsilon, weights=tuple(weights) if len(names) > 1 else None)
        return central.mechanism(query, schedule, randomness)


def ward(*, treatments: int = 2, horizon: int = 12) -> dr.TabularMDP:
    """Return a ward in which patients have four states of health.

    A stronger treatment makes an improvement more likely, but it reduces the reward slightly.
    """
    transitions = np.zeros((4, treatments, 4))
    rewards = np.zeros((4, treatments))
    for strength in range(treatments):
        help_ = 0.2 + 0.5 * strength / max(1, treatments - 1)
        for health in range(4):
            better, worse = min(health + 1, 3), max(health - 1, 0)
            transitions[health, strength, better] += help_
            transitions[health, strength, worse] += 0.25
            transitions[health, strength, health] += 0.75 - help_
            rewards[health, strength] = health / 3 * (1.0 - 0.1 * strength)
    return dr.TabularMDP(transitions, rewards, 1, horizon=horizon, reward_law="bernoulli", name="ward")


dr.register("learner", "imagined-visits", ImaginedVisits)
dr.register("privatizer", "mostly-transitions", MostlyTransitions)
dr.register("environment", "ward", ward)
