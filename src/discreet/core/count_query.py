"""Counts of visits, transitions and rewards in a tabular problem, as a query with options.

A :class:`CountQuery` describes the sums that the papers and this library's learners use. The options of the
query choose families (:attr:`CountQuery.parts`). The sums, cells and sensitivity follow from the families
alone (:mod:`discreet.core.query`). The options have these meanings:

- default: visits, transitions and rewards are counted in separate cells for each step;
- ``stationary``: all steps are counted in the same cells. The l1 sensitivity bound is unchanged. The l2
  bound is H sqrt(6) for the three uncentred families, which is sqrt(H) times the bound for counts per step;
- ``stationary`` and ``first``: only first visits to states are counted. Let m = min(S, H). The noise is then
  sqrt(m) times that of the counts of one step, and a count is up to H times as large. No better query is
  known for an environment that is the same at every step;
- ``pooled="all"``: pooled counts are released in addition to counts per step. With Laplace noise, a pooled
  count has the same noise as a count per step and is H times as large. (The sum of H counts per step has
  sqrt(H) times the noise.) With Gaussian noise pooling has no advantage;
- ``pooled="first"``: pooled counts of first visits are released in addition to counts per step;
- ``step=h``: only one step is counted, so the sensitivity has no factor H;
- ``groups`` and ``cut``: group returns and clipped rewards are released. The noise scales of these families
  depend on plans (:mod:`discreet.core.clipped_returns`).

With centred rewards and without visits, consider the squared costs of one step. The costliest case is
SUCCESSOR (same pair, different next states). SUCCESSOR cannot occur at two consecutive steps
(:mod:`discreet.core.exchange`). Therefore the joint sensitivity of the default query is below the sum over
its families.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.exchange import EACH_STEP, OneStep, Over
from discreet.core.families import (
    CUT_REWARDS,
    GROUP_RETURNS,
    POOLED_REWARDS,
    POOLED_TRANSITIONS,
    ClippedRewards,
    GroupReturns,
    OneOf,
    SumFamily,
    pooled,
    rewards,
    transitions,
    visits,
)
from discreet.core.layout import Layout
from discreet.core.query import SumQuery
from discreet.core.registry import parts
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectory

Floats = NDArray[np.float64]
MOST_EPISODES = 10**6  # largest allowed value of ``episodes``; noise is proportional to ``episodes``
Pooled = Literal["none", "all", "first"]

# least threshold C. Noise scales are proportional to C / C_0, and with this limit they lose no digits
LEAST_CUT = 1e-6

_MAX_CELLS = 2 * 10**9


@dataclass(frozen=True, eq=False)
class CountQuery(SumQuery):
    """Sums over users of visits N(h,s,a), transitions N(h,s,a,s') and rewards R(h,s,a).

    Parameters
    ----------
    layout : Layout
        Public sizes and mask. Inadmissible pairs have no cells.
    stationary : bool
        If True, count all steps in the same cells. The first axis of a table is then 1 instead of H.
    first : bool
        If True, count only the record of a user's first visit to each state. Requires ``stationary``.
    visits : bool
        If False, there is no family of visits. Visits are then the sums of the transitions over s'.
    center_rewards : bool
        If True, release the sum of (r - 1/2) for each pair instead of the sum of r.
    known_rewards : bool
        If True, rewards are public, and there is no reward family.
    reward_share : float, optional
        Share of the budget in (0, 1) for the reward family. The other families split the remaining budget
        equally. None: equal shares for all families. If a privatizer has ``weights``, they replace this
        share.
    pooled : "none", "all" or "first"
        Adds families of transitions and rewards summed over steps to the counts per step. They contain all
        records of a user ("all"), or only those of the first visit to each state ("first"). Rewards are
        centred as in the counts per step.
    pooled_share : float, optional
        Share of the budget in (0, 1) for the pooled families. None: half. The pooled families split their
        share in the same proportions as the other families split the remaining budget.
    groups : int
        Number of public groups of users whose clipped returns are summed (``Plan.group``); 0: none.
    clip : float
        C in (0, H] if there are groups. A larger return of a user counts as C. 0 without groups.
    return_share : float
        Share of the budget in (0, 1) for group returns if a plan sets no share. The families of counts split
        the remaining budget. Used only with groups.
    episodes : int
        Largest number m of episodes that one user may have. Every sensitivity is m times the sensitivity to
        one episode. Values above 1 are allowed only for offline data sets (``privatizer.stored``).
    step : int, optional
        Step h in [0, H). Only the records of that step are counted, in families with first axis 1. None: the
        records of all steps are counted. Not allowed with stationary, pooled or groups.
    cut : float
        Clipping threshold C of the first batch, in [1e-6, H]. It adds a family of rewards summed over steps,
        in which each user's rewards count until their total reaches C. A release contains either this family
        or the rewards per step (``Plan.cut``). 0: no such family. Requires center_rewards. Not allowed with
        visits, known rewards, stationary, pooled, groups or step.

    Raises
    ------
    ValueError
        If the dense release would have more than 2e9 cells. A release is never sparse, because the set of
        empty cells is private. Pool the steps or declare a mask. (In a session with many releases the limit
        is 2e8.)
    """

    __repr__ = brief

    layout: Layout
    stationary: bool = False
    visits: bool = True
    center_rewards: bool = False
    known_rewards: bool = False
    reward_share: float | None = None
    pooled: Pooled = "none"
    pooled_share: float | None = None
    groups: int = 0
    clip: float = 0.0
    return_share: float = 0.15
    episodes: int = 1
    step: int | None = None
    cut: float = 0.0
    first: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.layout, Layout):
            raise ValueError(f"layout = {self.layout!r}: must be a Layout")
        for name in ("stationary", "visits", "center_rewards", "known_rewards", "first"):
            object.__setattr__(self, name, checks.flag(name, getattr(self, name)))
        if self.first and not self.stationary:
            raise ValueError("first = True: must be false when stationary is false")
        if self.known_rewards and self.center_rewards:
            raise ValueError("center_rewards = True: must be false when known_rewards is true")
        if self.reward_share is not None:
            checks.real("reward_share", self.reward_share, 0.0, 1.0, open_low=True, open_high=True)
        object.__setattr__(self, "pooled", checks.choice("pooled", self.pooled, ("none", "all", "first")))
        if self.pooled != "none" and self.stationary:
            raise ValueError(f"pooled = {self.pooled!r}: must be 'none' when stationary is true")
        if self.pooled_share is not None:
            if self.pooled == "none":
                raise ValueError(f"pooled_share = {self.pooled_share!r}: must be None when pooled is 'none'")
            checks.real("pooled_share", self.pooled_share, 0.0, 1.0, open_low=True, open_high=True)
        object.__setattr__(self, "groups", checks.integer("groups", self.groups, 0))
        for name in ("clip", "cut"):
            value = checks.real(name, getattr(self, name), 0.0, float(self.layout.horizon))
            object.__setattr__(self, name, value)
        checks.real("return_share", self.return_share, 0.0, 1.0, open_low=True, open_high=True)
        object.__setattr__(self, "episodes", checks.integer("episodes", self.episodes, 1, MOST_EPISODES))
        if self.step is not None:
            step = checks.integer("step", self.step, 0, self.layout.horizon - 1)
            object.__setattr__(self, "step", step)
            if self.stationary or self.pooled != "none" or self.groups:
                raise ValueError(
                    f"step = {step}: must be None with stationary, pooled or groups (sums over steps)"
                )
        self._check_clipping()
        self.check_cells(_MAX_CELLS)

    def _check_clipping(self) -> None:
        """Raise ``ValueError`` if groups or a clipping threshold do not fit the other options."""
        groups, clip, cut, horizon = self.groups, self.clip, self.cut, self.layout.horizon
        if (clip > 0.0) != (groups > 0):
            raise ValueError(f"clip = {clip:g}: must be above 0 with groups, and 0 without")
        if not cut:
            return
        if cut < LEAST_CUT:
            raise ValueError(f"cut = {cut:g}: must be 0, or in [{LEAST_CUT:g}, {horizon}]")
        needed: dict[str, Any] = {
            "center_rewards": True, "visits": False, "known_rewards": False, "stationary": False,
            "pooled": "none", "groups": 0, "episodes": 1, "step": None,
        }  # fmt: skip
        for name, value in needed.items():
            if getattr(self, name) != value:
                raise ValueError(f"cut = {cut:g}: needs {name} = {value!r}, not {getattr(self, name)!r}")

    def check_cells(self, most: int) -> None:
        """Raise ``ValueError`` if a release has more than ``most`` cells."""
        if self.cells > most:
            raise ValueError(
                f"counts need {self.cells:.3g} cells (H={self.slots}, pairs={self.layout.rows}, "
                f"S={self.layout.states}): at most {most:.3g} are allowed, since each of them gets "
                "noise in every release; pool the steps (stationary=True) or declare admissible actions"
            )

    def copy(self) -> CountQuery:
        """Return an equal query that shares no array (offsets, rows, mask) with this one."""
        return replace(self, layout=self.layout.copy())

    @property
    def slots(self) -> int:
        """Size T of the first axis: 1 if steps are pooled or only one step is counted, otherwise H."""
        return 1 if self.stationary or self.step is not None else self.layout.horizon

    @property
    def counted(self) -> slice:
        """Steps whose records are counted: all H steps, or one step."""
        return slice(0, self.layout.horizon) if self.step is None else slice(self.step, self.step + 1)

    @property
    def counted_steps(self) -> int:
        """Number of counted records of one user: H, or 1."""
        return self.layout.horizon if self.step is None else 1

    @property
    def first_records(self) -> int:
        """Largest number of first visits to states that one user can make: m = min(S, H)."""
        return min(self.layout.states, self.layout.horizon)

    @property
    def stored_only(self) -> bool:
        """True if the query is only for offline data sets: with several episodes, or only first visits."""
        return self.episodes > 1 or self.first

    @cached_property
    def parts(self) -> tuple[SumFamily | OneOf, ...]:
        """Families chosen by the options, in the order of the flat vector."""
        over: Over = EACH_STEP
        if self.stationary:
            over = pooled("first" if self.first else "all")
        elif self.step is not None:
            over = OneStep(self.step)
        center = self.reward_shift
        own: list[SumFamily | OneOf] = [visits(over)] if self.visits else []
        own.append(transitions(over))
        if self.cut:
            own.append(OneOf((rewards(center, over), ClippedRewards(CUT_REWARDS, self.cut))))
        elif not self.known_rewards:
            own.append(rewards(center, over))
        if self.pooled != "none":
            own.append(transitions(pooled(self.pooled), POOLED_TRANSITIONS))
            if not self.known_rewards:
                own.append(rewards(center, pooled(self.pooled), POOLED_REWARDS))
        if self.groups:
            own.append(GroupReturns(GROUP_RETURNS, self.groups, self.clip))
        return tuple(own)

    @property
    def reward_shift(self) -> float:
        """Constant that is subtracted from a reward before it is added: 1/2 if centred, otherwise 0."""
        return 0.5 if self.center_rewards else 0.0

    def contribution(
        self, trajectory: Trajectory, group: int = 0, cut: float | None = None
    ) -> Mapping[str, Floats]:
        """Return the values that one user adds to every family. Shapes are as in ``families``.

        This method is for audits and tests. Sessions use :func:`~discreet.core.raw_encoder.add_records`, and
        tests compare the two functions.

        trajectory : checked trajectory. group : group of the plan. cut : threshold C of the batch. None means
            the first C. If C is infinite, rewards are not clipped.
        """
        return parts().user_sums.summand(self, trajectory, group, cut)
