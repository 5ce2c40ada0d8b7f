r"""PSRL: posterior sampling for tabular finite-horizon MDPs, a non-private baseline.

Before each policy update a whole MDP is drawn from the posterior. The next users follow the optimal policy of
this MDP (Osband, Russo and Van Roy 2013; the idea is due to Strens 2000).

**Posterior.** For every pair of every step (pooled over steps if ``stationary``), independently, with m =
``prior_visits`` and b = ``prior_rewards``,

    P(. | h, s, a) ~ Dirichlet(m / S + N3(h, s, a, s') over s')

    r(h, s, a)     ~ Beta(b + R(h, s, a), b + N(h, s, a) - R(h, s, a)).

The Dirichlet prior of a row is conjugate. The Beta prior is conjugate if rewards are 0 or 1. If rewards are
arbitrary numbers in [0, 1], the Beta has the correct mean up to the prior. Its variance is then at least that
of the true posterior, because the Bernoulli distribution has the largest variance of all distributions on [0,
1] with that mean. ``known_rewards`` are not drawn. A Dirichlet row is drawn as independent Gamma variables
divided by their sum. If all these variables underflow to 0 (possible only for m / S below about 1e-2), the
row is the Dirichlet's limit for small parameters. In this limit one successor has probability 1. It is chosen
with probability proportional to the parameters.

Draws of different steps are independent. With counts pooled over steps, one row (and one reward) is drawn for
all steps.

**Regret.** O~(H S sqrt(A T)) in expectation over the prior, for a stationary MDP and one draw before each
user. This is a Bayesian statement: it holds if the MDP was drawn from that prior.

PSRL gives no privacy: a policy that is optimal in a draw from the posterior depends on all users, without a
bound on one user's influence.

The defaults were chosen on ``benchmarks.leaderboard.env_suites.TRAINING`` under ``NoPrivacy`` at 20 000 users
(benchmarks/baselines.py, ``--part tuning``). Weak priors learn faster there: compared with m = S, b = 1 and
four draws per release, the defaults halve the regret. The most important option is the number of draws
between two releases. m is at the lower end of its grid and has little effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from discreet.core import checks
from discreet.learners.online.randomized_base import SHARED, Draw, Floats, RandomizedLearner, RandomizedState


def dirichlet_rows(parameters: Floats, coins: np.random.Generator) -> Floats:
    """Draw independent Dirichlet rows (..., S) with these positive parameters (..., S)."""
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

    The learner refuses privatizers that add noise, because noisy sums give no posterior.

    Parameters
    ----------
    preset : "default" or "theory"
        ``default``: chosen on training environments. ``theory``: Dirichlet(1, ..., 1), with a new draw before
        each user.
    prior_visits : float or "S"
        Weight m > 0 of a row's prior in visits, distributed evenly over the S states; "S" gives Dirichlet(1,
        ..., 1).
    prior_rewards : float
        Parameter b > 0 of the prior Beta(b, b) of rewards.

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

        ``state`` : state with the sums of the newest release. ``coins`` : public random generator, made from
        the state's ties.
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
        """Yield the options that invalidate the Bayesian regret bound, each with the reason."""
        yield from super().heuristics()
        yield "the bound is an average over the prior, for stationary worlds"
