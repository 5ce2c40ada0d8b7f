"""Private LSVI-UCB: the policy changes only when a noisy determinant has doubled.

Source: Ngo, Vietri and Wu (2022, arXiv 2202.01292). The learner is :class:`LSVIUCB` with
``response="requery"`` and three rules of that paper:

1. Noisy prefix sums of phi phi^T are released after every user (preset ``paper``).
2. A new policy is computed when det Lambda_h has doubled for some h since the last policy change. Then the
   response of every step is queried again, over all users so far.
3. Lambda_h has the ridge 2 lambda~, where lambda~ is a bound on the operator norm of the noise.

The number of rounds of queries is limited in advance to

    N = ceil(sum_h d log2(1 + K b^2 / (d L_h))),                                                   (1)

where K is the number of users, b the bound of ||phi||, and L_h the ridge with the noise of one sum. The
budget of the responses is split over N rounds.

**Differences from the paper.** The session states the epsilon of the noise that is drawn, which is smaller
than with the composition theorems of the paper. The width beta of the preset ``paper`` is quoted from the
public code of Sahu (2025, arXiv 2504.09339), because the paper's text was not available:

    beta = 5 H^2 sqrt(d lambda~) log(chi) + 6 d H sqrt(log(chi)),                                  (2)
    chi = 254 * 162 K^4 d U H / p,   U = max(1, 1 + 2 H sqrt(d K) / lambda~).

**No theorem.** With noise, determinants need not grow, and the usual analysis of rule 2 fails (abstract of
Zhou 2026, arXiv 2605.23131).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from discreet.accounting.noise_distributions.linear_noise import GoeLaw
from discreet.core.releases import Floats
from discreet.learners.online import bonuses
from discreet.learners.online.linear_base import LinearState
from discreet.learners.online.lsvi_ucb import LSVIUCB
from discreet.mechanisms.features import Features
from discreet.mechanisms.interfaces import ProblemSpec, Release
from discreet.mechanisms.linear.linear_queries import GRAM


@dataclass(frozen=True, kw_only=True)
class PrivateLSVIUCB(LSVIUCB):
    """LSVI-UCB with privacy and rare policy changes (Ngo, Vietri and Wu 2022).

    Parameters
    ----------
    preset : "default" or "paper"
        ``default``: the options of :class:`LSVIUCB` with ``response="requery"`` and policy changes at doubled
        determinants. ``paper``: raw responses of the declared range, a release after every user, the ridge 2
        lambda~ and the width (2) of :mod:`discreet.learners.online.private_lsvi_ucb`.
    switches : int
        Largest number of rounds of queries. None: the number (1) of the module docstring.
    beta : "range" or "published"
        Width of the bonus. ``range``: b_h. ``published``: the width (2).

    For further options and errors, see :class:`LSVIUCB`.
    """

    THEOREM: ClassVar[str] = " of Ngo et al. (2022), whose analysis fails under noise"
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {**LSVIUCB.PRESETS["default"], "response": "requery", "switching": "determinant"},
        "paper": LSVIUCB.PRESETS["paper"],
    }

    def tuned(self, spec: ProblemSpec) -> Self:
        """Return this learner with a value for every option that is None, chosen from the public ``spec``.

        Raises ``ValueError`` in the same cases as :meth:`LSVIUCB.tuned`.
        """
        mine = super().tuned(spec)
        if mine.switches is not None or mine.switching != "determinant":
            return mine
        return replace(mine, switches=mine._doublings(spec))

    def _doublings(self, spec: ProblemSpec) -> int:
        """Return the limit (1) on the number of policy changes, from public values only."""
        law, query = self._noise_of_one_sum(spec), self._query(spec)
        d, largest = query.features.dimension, bonuses.users(spec) * query.features.bound**2
        total = 0.0
        for h in range(query.steps):
            level = float(self.lam or 1.0)
            if law is not None and self.ridge == "bound":
                level += 2.0 * law.operator_norm_bound(float(self.failure or 0.05) / query.steps, h)
            elif law is not None:
                level += float(self.ridge or 0.0) * law.edge(h)
            total += d * math.log2(1.0 + largest / (d * level))
        return max(1, math.ceil(total))

    def _added(self, state: LinearState, release: Release) -> Floats:
        """Return the ridges added because of noise, from the largest number of noise terms so far."""
        gram = release.estimates[GRAM]
        assert isinstance(gram.law, GoeLaw)
        most = replace(gram, law=replace(gram.law, terms=gram.law.terms_bound))
        return super()._added(state, replace(release, estimates={**release.estimates, GRAM: most}))

    def _width(self, state: LinearState, release: Release, step: int) -> float:
        if self.beta == "range":
            return super()._width(state, release, step)
        spec = state.spec
        assert isinstance(spec.features, Features)
        d, horizon, users = spec.features.dimension, spec.horizon, bonuses.users(spec)
        bound = max(float(self.lam or 1.0), float(self._added(state, release)[step]) / 2.0)
        u = max(1.0, 1.0 + 2 * horizon * math.sqrt(d * users) / bound)
        chi = math.log(254 * 162 * u * d * horizon / float(self.failure or 0.05)) + 4 * math.log(users)
        beta = 5 * horizon**2 * math.sqrt(d * bound) * chi + 6 * d * horizon * math.sqrt(chi)
        return float(self.bonus_scale or 0.0) * beta

    def heuristics(self) -> Iterator[str]:
        """Yield one string for each option value that the regret theorem does not cover."""
        yield from super().heuristics()
        if self.beta == "published":
            yield "beta is quoted from public code, not from the paper"
