r"""PSRL: posterior sampling for tabular finite-horizon MDPs, a non-private baseline.

Before each policy update, the learner draws an MDP from the posterior, and the next users follow its optimal
policy (Osband, Russo and Van Roy 2013; the idea is due to Strens 2000).

Each state-action pair (s, a) and step h has an independent posterior. With ``stationary``, all steps share
one posterior. N, R and N3 are the visits, reward sums and transition counts. With m = ``prior_visits`` and b
= ``prior_rewards``,

    P(. | h, s, a) ~ Dirichlet(m / S + N3(h, s, a, s') over s')

    r(h, s, a)     ~ Beta(b + R(h, s, a), b + N(h, s, a) - R(h, s, a)).

If the MDP was drawn from the prior, the expected regret is O~(H S sqrt(A T)) for a stationary MDP and one
draw before each user. PSRL gives no privacy, because the influence of one user on the policies is not
bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from discreet.core import checks
from discreet.core.releases import Floats
from discreet.learners.online.randomized_base import SHARED, Draw, RandomizedLearner, RandomizedState


def dirichlet_rows(parameters: Floats, coins: np.random.Generator) -> Floats:
    """Draw independent Dirichlet vectors (..., S), with positive ``parameters`` (..., S).

    ``coins`` : random number generator.
    """
    drawn = coins.standard_gamma(parameters)
    totals = drawn.sum(axis=-1, keepdims=True)
    lost = totals[..., 0] == 0.0
    if lost.any():
        shares = parameters[lost].cumsum(axis=-1)
        which = (coins.random((shares.shape[0], 1)) * shares[:, -1:] >= shares).sum(axis=-1)
        drawn[lost] = np.eye(parameters.shape[-1])[which]
        totals = drawn.sum(axis=-1, keepdims=True)
    rows: Floats = drawn / totals
    return rows


@dataclass(frozen=True, kw_only=True)
class PSRL(RandomizedLearner):
    """Posterior sampling (Osband, Russo and Van Roy 2013) on exact counts: a non-private baseline.

    The learner rejects privatizers that add noise.

    Parameters
    ----------
    preset : "default" or "theory"
        ``default``: options chosen on training environments. ``theory``: the prior Dirichlet(1, ..., 1) and a
        new draw before each user.
    prior_visits : float or "S"
        Weight m > 0 of the prior of the transition probabilities, as a number of visits. The weight is
        distributed evenly over the S successor states. "S" means m = S, which gives the prior Dirichlet(1,
        ..., 1).
    prior_rewards : float
        Parameter b > 0 of the prior Beta(b, b) of each mean reward.

    For further options see :class:`~discreet.learners.online.randomized_base.RandomizedLearner`.
    """

    prior_visits: float | Literal["S"] | None = None
    prior_rewards: float | None = None

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {
            **SHARED, "replan_growth": 1.1, "samples": 8, "prior_visits": 0.03, "prior_rewards": 0.1,
        },
        "theory": {"prior_visits": "S", "replan_growth": 1.0, "samples": 1},
    }  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prior_visits != "S":
            if isinstance(self.prior_visits, str):
                raise ValueError(f"prior_visits = {self.prior_visits!r}: must be a number above 0, or 'S'")
            object.__setattr__(self, "prior_visits", checks.positive("prior_visits", self.prior_visits))
        object.__setattr__(self, "prior_rewards", checks.positive("prior_rewards", self.prior_rewards))

    def draw(self, state: RandomizedState, coins: np.random.Generator) -> Draw:
        """Draw one MDP from the posterior.

        ``state`` : state with the sums of the latest release. ``coins`` : generator of the public random
        stream.
        """
        spec = state.spec
        each = 1.0 if self.prior_visits == "S" else float(self.prior_visits or 1.0) / spec.states
        rows = dirichlet_rows(each + state.transitions, coins)
        rewards = self._known(spec)
        if rewards is None:
            prior = float(self.prior_rewards or 1.0)
            # Sums of rewards have rounding errors, so N - R can be -1e-16 instead of 0.
            missed = np.maximum(0.0, state.visits - state.reward_sums)
            rewards = coins.beta(prior + state.reward_sums, prior + missed)
            rewards = np.broadcast_to(rewards, (spec.horizon, spec.layout.rows))
        return Draw(rewards, rows, np.ones(state.visits.shape))

    def heuristics(self) -> Iterator[str]:
        """Yield one string for each option value that the Bayesian regret bound does not cover."""
        yield from super().heuristics()
        yield "the bound is an average over the prior, for stationary worlds"
