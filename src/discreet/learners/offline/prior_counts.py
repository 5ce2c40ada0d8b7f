"""Public prior that counts as additional visits in offline planning with tables.

The planner reads x + w P0 as transition counts and n + w as visits, where x and n are the counts and visits
of the release. The mean reward is the mean of both sources, weighted by n and w. The strength w has an upper
limit, which is estimated from the same release for each step.

**Limit.** For a pair with n visits, let d = sum (x / n - P0)^2 over the S successors. Let P be the true row
and s the standard deviation of the noise of a count. Approximately,

    E d = |P - P0|^2 + e,

    e = (1 - sum P0^2) / n + S s^2 / n^2.

Pairs have the weights 1 / e^2. Let t be the weighted mean of d - e, minus two of its standard deviations, an
estimate of |P - P0|^2. The limit of w is the weighted mean of 1 - sum P0^2, divided by t. Only pairs whose
visits exceed two standard deviations of their noise are used.

Mean rewards have a separate limit, with the same formulas for one cell and the variance 1/4.

With a prior, pessimistic values are not proven bounds. The environment must be declared stationary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core.families import CENTERED_REWARDS, REWARDS, TRANSITIONS
from discreet.core.layout import Layout
from discreet.core.releases import Floats
from discreet.mechanisms.interfaces import NoiseDistribution

if TYPE_CHECKING:
    from discreet.learners.online.prior import Prior

_ERRORS = 2.0  # standard deviations that are subtracted from the mean of d - e


class PriorVisits(NamedTuple):
    """Prior of the pairs of a layout, as visits. Row r of each array belongs to the admissible pair r."""

    moves: Floats  # (R, S) rows P0
    means: Floats  # (R,) mean rewards
    strength: Floats  # (R,) strengths of the rows, in visits
    reward_strength: Floats  # (R,) strengths of the mean rewards, in visits

    @classmethod
    def of(cls, prior: Prior, layout: Layout) -> PriorVisits:
        """Return the prior for a layout. Raises ``ValueError`` if it does not fit the layout."""
        packed, rows = prior.packed(layout), layout.rows
        strength, reward_strength, means = packed[: 3 * rows].reshape(3, rows)
        return cls(packed[3 * rows :].reshape(rows, layout.states), means, strength, reward_strength)

    def limited(
        self, released: tuple[Floats, Floats, Floats], laws: Mapping[str, NoiseDistribution]
    ) -> PriorVisits:
        """Return the prior with strengths that agree with the data of one step.

        released : visits (R,), transitions (R, S) and reward sums (R,) of the step, before post-processing.
        laws : noise distribution of each released family.
        """
        visits, moves, sums = released
        states, noise = moves.shape[1], float(laws[TRANSITIONS].std())
        total = moves.sum(axis=1)
        n = np.maximum(total, 1.0)
        seen = total > 2.0 * np.sqrt(states) * noise
        free = 1.0 - (self.moves**2).sum(axis=1)
        off = ((moves / n[:, None] - self.moves) ** 2).sum(axis=1)
        due = free / n + states * noise**2 / n**2
        strength = _limit(self.strength, off, due, free, max(states - 1, 1), seen)
        reward_strength = self.reward_strength
        name = next((one for one in (CENTERED_REWARDS, REWARDS) if one in laws), None)
        if name is not None:
            found = 0.5 + (sums - 0.5 * visits) / n if name == CENTERED_REWARDS else sums / n
            due = 0.25 / n + float(laws[name].std()) ** 2 / n**2
            quarter = np.full(n.size, 0.25)
            reward_strength = _limit(reward_strength, (found - self.means) ** 2, due, quarter, 1, seen)
        return self._replace(strength=strength, reward_strength=reward_strength)

    def added(self, moves: Floats, visits: Floats, rewards: Floats) -> tuple[Floats, Floats, Floats]:
        """Return transition counts (R, S), visits (R,) and mean rewards (R,), with the prior included."""
        both = visits + self.reward_strength
        mixed = visits * rewards + self.reward_strength * self.means
        return (
            moves + self.strength[:, None] * self.moves,
            visits + self.strength,
            np.where(both > 0.0, mixed / np.where(both > 0.0, both, 1.0), rewards),
        )


def _limit(
    strength: Floats, off: Floats, due: Floats, free: Floats, cells: int, seen: NDArray[np.bool_]
) -> Floats:
    """Return strengths up to the limit. ``off`` and ``due`` are d and e of the module docstring."""
    weights = np.where(seen & (strength > 0.0), 1.0 / np.maximum(due, 1e-12) ** 2, 0.0)
    if not weights.any():
        return strength
    weights /= weights.sum()
    error = float((weights * (off - due)).sum())
    error -= _ERRORS * float(np.sqrt((weights**2 * 2.0 * due**2 / cells).sum()))
    return np.minimum(strength, float((weights * free).sum()) / error) if error > 0.0 else strength
