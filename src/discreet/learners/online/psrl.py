r"""PSRL: posterior sampling for tabular finite-horizon MDPs, the non-private baseline that samples.

Before each policy update a whole MDP is drawn from the posterior, and the next users follow the policy that
is optimal in it (Osband, Russo and Van Roy 2013; the idea is that of Strens 2000).

**Posterior.** For every pair of every step (pooled over steps if ``stationary``), independently,

    P(. | h, s, a) ~ Dirichlet(m / S + N3(h, s, a, s') over s'),     m = ``prior_visits``,
    r(h, s, a)     ~ Beta(b + R(h, s, a), b + N(h, s, a) - R(h, s, a)),     b = ``prior_rewards``.

The row is conjugate. So is the reward if it is 0 or 1; if it is any number in [0, 1] the Beta has the right
mean up to the prior, and is at least as wide as it ought to be, since no law on [0, 1] with that mean varies
more than the coin does. ``known_rewards`` are not drawn. A Dirichlet row is drawn as independent Gamma
variables over their sum; where all of them underflow to 0, which only m / S below about 1e-2 makes happen,
the row is the Dirichlet's limit for small parameters, one successor chosen in proportion to them.

Draws of different steps are independent. With counts pooled over steps one row (and one reward) is drawn for
all steps, since there is but one.

**Regret.** O~(H S sqrt(A T)) in expectation over the prior, for a stationary MDP and one draw before each
user: a Bayesian statement, which holds if the world was drawn from that very prior.

No privacy: a policy that is optimal in a draw from the posterior depends on everybody, with nothing that
bounds how much.

The defaults were chosen on :data:`discreet.experiments.suite.TRAINING` under ``NoPrivacy`` at 20 000 users
(benchmarks/baselines.py, ``--part tuning``). Weak priors learn faster there: from m = S, b = 1 and four draws
a release to the defaults regret falls by half. What matters most is how many draws share the users between
two releases; m is at the lower end of its grid and hardly matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from discreet.core import checks
from discreet.learners.online.randomized_base import SHARED, Draw, Floats, RandomizedLearner, RandomizedState


def dirichlet_rows(parameters: Floats, coins: np.random.Generator) -> Floats:
    """Independent Dirichlet rows, (..., S), of positive ``parameters`` (..., S). Rows sum to 1."""
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

    Refuses private privatizers: their sums give no posterior.

    Parameters
    ----------
    preset : "default" or "theory"
        ``default``: chosen on training worlds. ``theory``: Dirichlet(1, ..., 1), a draw before each user.
    prior_visits : float or "S"
        m above 0: how many visits the prior of a row is worth, spread evenly over the S states; "S" is
        Dirichlet(1, ..., 1).
    prior_rewards : float
        b above 0: rewards have the prior Beta(b, b).

    Further options: :class:`~discreet.learners.online.randomized_base.RandomizedLearner`.
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
        """One MDP from the posterior.

        state : the newest release's sums. coins : where it is drawn from; public, of the state's ties.
        """
        spec = state.spec
        each = 1.0 if self.prior_visits == "S" else float(self.prior_visits or 1.0) / spec.states
        rows = dirichlet_rows(each + state.transitions, coins)
        rewards = self._known(spec)
        if rewards is None:
            prior = float(self.prior_rewards or 1.0)
            # Sums of rewards are rounded: a missing reward of -1e-16 is none.
            missed = np.maximum(0.0, state.visits - state.reward_sums)
            rewards = coins.beta(prior + state.reward_sums, prior + missed)
            rewards = np.broadcast_to(rewards, (spec.horizon, spec.layout.rows))
        return Draw(rewards, rows, np.ones(state.visits.shape))

    def heuristics(self) -> Iterator[str]:
        """What keeps the Bayesian regret bound from holding."""
        yield from super().heuristics()
        yield "the bound is an average over the prior, for stationary worlds"
