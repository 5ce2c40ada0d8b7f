"""Counts of visits, transitions and rewards in a tabular problem, and their sensitivity to one user.

One user contributes one record (s, a, r, s') per step. The only neighbouring relation here replaces the
user's whole trajectory by another one. Let w_f be the weight of a family (1 / its noise scale). At each step
a replacement changes:

=============================  =====================  ===========================================
case at a step                 sum of w |change|      sum of (w change)^2
=============================  =====================  ===========================================
other (s, a)                   2 w_v + 2 w_t + c w_r  2 w_v^2 + 2 w_t^2 + c' w_r^2
same (s, a), other s'          2 w_t + w_r            2 w_t^2 + w_r^2
same (s, a, s')                w_r                    w_r^2
=============================  =====================  ===========================================

with c = 2, c' = 2 for uncentred rewards in [0, 1], and c = 1, c' = 1/2 for rewards centred at 1/2 (each
record then moves a cell by at most 1/2). Counts of different steps h are in different cells, so both sums are
at most H times the worst case of a step. If there are two admissible pairs, uncentred families attain this
bound: two trajectories never share a pair, and all rewards are 1. Then l1 = 2H for each family and 6H
jointly, l2 = sqrt(2H) and sqrt(6H).

For squares of centred rewards the second case is the worst of a step (without visits). This case cannot occur
at two consecutive steps: after it the two users are in different states, so in different pairs. Suppose that
m steps are in the same pair and H - m in different ones. At most n = min(m, H - m + 1) of the m steps have
different successors. Each of these n steps, except the last step of the horizon, is followed by one of the H
- m steps. Counts per step therefore change by at most

    max over m in [0, H] of (H - m) (2 w_v^2 + 2 w_t^2 + w_r^2 / 2) + n 2 w_t^2 + m w_r^2.

This is linear in m except at the bends of n, and therefore greatest at m = 0, (H + 1) // 2, H // 2 + 1 or H.
The bound is attained if there are two states with two admissible actions. Then steps of the second and of the
first case alternate, and both users arrive in the same state after each step of the first case. In the
remaining m - n steps only rewards differ.

Counts pooled over steps can contain up to H records of one user in a single cell. The l1 bound is unchanged.
By the triangle inequality the l2 change is at most H times the square root of a step's worst case (attained
by uncentred families: H sqrt(6) jointly), sqrt(H) times that of per-step counts.

If a query has pooled families in addition to families per step, the same records are used twice. So the
changes of both parts are summed: l1 changes for l1, squared changes for l2^2. Let W_1 and W_2 be the worst
case of a step for the pooled weights (no visits).

- ``pooled="all"``, all H records of a user: l1 <= H W_1 and l2 <= H sqrt(W_2), as above. Under Laplace noise
  a pooled count has the noise of a per-step count and contains H times as much (the sum of H per-step counts
  has sqrt(H) times the noise). With Gaussian noise pooling has no advantage.
- ``pooled="first"``, the record of the user's *first* visit to each state: l1 <= m W_1, l2^2 <= m W_2 with m
  = min(S, H). Suppose that the two users visit u <= m and v <= m states, and that c of these are common to
  both. A common state changes as one step does, by at most W (W_1 or W_2). A state that only one user visits
  removes one record. This removal is w_t + c w_r / 2 or w_t^2 + c' w_r^2 / 2, half of the first case of the
  table, so at most W / 2. The sum is at most (c + (u - c) / 2 + (v - c) / 2) W = (u + v) W / 2 <= m W.
  Whether a visit is the first is decided before its action and successor are seen, so transitions are still
  drawn from P.

First visits only (``stationary`` and ``first``): only these m records of a user, in different pairs, are
counted, in the family of visits too. With W the worst case of a step for all families, the argument above
holds unchanged. Removing one record changes w_v + w_t + c w_r / 2 or w_v^2 + w_t^2 + c' w_r^2 / 2. This is
again half of the first case of the table. So l1 <= m W and l2^2 <= m W. For uncentred families both bounds
are attained by two users who each visit m states, in pairs that the other does not visit. Noise is then
sqrt(m) times that of one step's counts, and a count contains up to H times as much. This is the best known
query for an environment that is the same at every step.

One step only (``step=h``): only a user's record of step h is counted, in families whose first axis is 1.
Replacing the user causes the change in the table once. No factor H occurs: l1 is the worst case of a step
and l2 its square root. Both are attained, for centred rewards too (no chain of records restricts them), by
two users who are in different pairs at step h, or in one pair with different successors. The l1 value is 2
for each uncentred family and 6 jointly, and the joint l2 value is sqrt(6). Without rewards l1 and l2 are 4
and 2; for transitions only, 2 and sqrt(2).

Up to m episodes of a user (``episodes``). A user's contribution is x = x_1 + ... + x_k with k <= m episodes,
possibly none. Replace it by x' = x'_1 + ... + x'_k', and extend both sums to m summands with zeros: the
change is the sum of m differences x_j - x'_j. Two episodes differ by at most D, the bound above in the same
norm, weights included. An episode and a zero differ by at most D too. Each step of the episode that is
removed changes one record, which is half of the first case of the table, and a return is at most C. By the
triangle inequality every sensitivity, l1 and l2, of each family and joint, is at most m D. The bound is
attained whenever D is attained: one user has m copies of one episode, the other m copies of another. All m
can be in the same cells, so sqrt(m) would not be enough. The number of a user's episodes is private. The
limit m is declared, and enforced by :class:`~discreet.mechanisms.dataset.dataset_release.OneShotSession`.

Group returns and clipped rewards (``groups``, ``cut``) are further families, whose scales depend on plans.
:mod:`discreet.core.clipped_returns` defines them and derives their sensitivity; it is imported only for these
families. Their changes are added to those above: l1 changes for l1, squared changes for l2^2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core import lazy as parts
from discreet.core.layout import Layout
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectory

Floats = NDArray[np.float64]
Norm = Literal["l1", "l2"]
VISITS = "visits"
TRANSITIONS = "transition_counts"
REWARDS = "reward_sums"
CENTERED_REWARDS = "centered_reward_sums"
POOLED_TRANSITIONS = "pooled_transition_counts"
POOLED_REWARDS = "pooled_reward_sums"
NOTHING = "no family"  # visits are not pooled
COUNTS = (VISITS, TRANSITIONS, POOLED_TRANSITIONS)  # families of integers
MOST_EPISODES = 10**6  # most episodes of one user; noise is proportional to this limit
Pooled = Literal["none", "all", "first"]
GROUP_RETURNS = "group_returns"
CUT_REWARDS = "cut_reward_sums"

_MAX_CELLS = 2 * 10**9


def _steered() -> Any:
    """Return the module of group returns and clipped rewards."""
    return parts.module("steered")


def cut_to(trajectory: Trajectory, step: int | None) -> Trajectory:
    """Return the record of one step (0-based) as a trajectory of one step; None returns all of it.

    For a query with ``step``, the result is the counted part of a checked trajectory. No sum or message uses
    the other steps.
    """
    if step is None:
        return trajectory
    states, actions, rewards = trajectory.states, trajectory.actions, trajectory.rewards
    return Trajectory(states[step : step + 2], actions[step : step + 1], rewards[step : step + 1])


@dataclass(frozen=True, eq=False)
class CountQuery:
    """Sums over users of visits N(h,s,a), transitions N(h,s,a,s') and rewards R(h,s,a).

    Parameters
    ----------
    layout : Layout
        Public sizes and mask. Inadmissible pairs have no cells.
    stationary : bool
        Pool the counts over steps (first axis 1 instead of H).
    first : bool
        With stationary: count only the record of a user's first visit to each state.
    visits : bool
        If False, there is no family of visits; visits are the sums of the transitions over s'.
    center_rewards : bool
        Release the sum of (r - 1/2) per pair instead of the sum of r.
    known_rewards : bool
        If True, rewards are public, and there is no reward family.
    reward_share : float, optional
        Share of the budget in (0, 1) for the reward family; the other families split the remaining budget
        equally. None: equal shares for all families. A privatizer's ``weights`` take precedence.
    pooled : "none", "all" or "first"
        Adds families of transitions and rewards summed over steps to the counts per step. They contain all
        records of a user ("all"), or only those of the first visit to each state ("first"). Rewards are
        centred as in the counts per step.
    pooled_share : float, optional
        Share of the budget in (0, 1) for the pooled families. It is split among them as the remaining budget
        is split among the other families. None: half.
    groups : int
        Number of public groups of users whose clipped returns are summed (``Plan.group``); 0: none.
    clip : float
        C in (0, H] with groups: larger returns of a user count as C. 0 without groups.
    return_share : float
        With groups: share of the budget in (0, 1) for group returns if a plan sets no share. The families of
        counts split the remaining budget.
    episodes : int
        m, the largest number of episodes that one user may have. Every sensitivity is m times the sensitivity
        to one episode. Above 1 only for offline data sets (``privatizer.stored``).
    step : int, optional
        h in [0, H): only the records of that step are counted, in families with first axis 1. None: the
        records of all steps are counted. Not allowed with stationary, pooled or groups.
    cut : float
        Clipping threshold C of the first batch, in [1e-6, H]. It adds a family of rewards summed over steps,
        in which each user's rewards count until their total reaches C. A release contains either this family
        or the rewards per step (``Plan.cut``). 0: no such family. Requires center_rewards. Not allowed with
        visits, known rewards, stationary, pooled, groups or step.

    Raises
    ------
    ValueError
        If the dense release would have more than 2e9 cells: a release is never sparse, because which
        cells are empty is private. Pool the steps or declare a mask. (In a session with many releases the
        limit is 2e8.)
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
        if self.groups or self.clip or self.cut:
            _steered().check_query(self)
        self.check_cells(_MAX_CELLS)

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
        old = self.layout
        return replace(self, layout=Layout(old.states, old.actions, old.horizon, old.mask))

    @property
    def slots(self) -> int:
        """T: 1 if steps are pooled or only one step is counted, otherwise H."""
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
        """m = min(S, H): the largest number of first visits that one user can make."""
        return min(self.layout.states, self.layout.horizon)

    @property
    def steered(self) -> bool:
        """True if plans choose the scales of releases (group returns, clipped rewards).

        Releases then contain measurements only.
        """
        return self.groups > 0 or self.cut > 0.0

    @cached_property
    def row_families(self) -> Mapping[str, tuple[int, ...]]:
        """Map each name to its shape over rows (admissible pairs), in the order of the flat vector."""
        rows, states = self.layout.rows, self.layout.states
        shapes: dict[str, tuple[int, ...]] = {}
        if self.visits:
            shapes[VISITS] = (self.slots, rows)
        shapes[TRANSITIONS] = (self.slots, rows, states)
        if not self.known_rewards:
            shapes[CENTERED_REWARDS if self.center_rewards else REWARDS] = (self.slots, rows)
        if self.pooled != "none":
            shapes[POOLED_TRANSITIONS] = (1, rows, states)
            if not self.known_rewards:
                shapes[POOLED_REWARDS] = (1, rows)
        return shapes | _steered().shapes(self) if self.steered else shapes

    @property
    def families(self) -> Mapping[str, tuple[int, ...]]:
        """Map each name to its shape, e.g. ``visits (T, S, A)`` or ``transition_counts (T, S, A, S)``."""
        pair = (self.layout.states, self.layout.actions)
        return {
            name: shape if name == GROUP_RETURNS else (shape[0], *pair, *shape[2:])
            for name, shape in self.row_families.items()
        }

    @property
    def support(self) -> Mapping[str, NDArray[np.bool_]]:
        """Cells that can be non-zero by public declaration: those of all admissible pairs."""
        return {
            name: self._table(name, np.ones(shape)).astype(bool) for name, shape in self.row_families.items()
        }

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """(families + 1,) first index of each family in the flat vector of cells."""
        sizes = [math.prod(shape) for shape in self.row_families.values()]
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    @property
    def cells(self) -> int:
        """Length of the flat vector: number of counters in a release."""
        return int(self.offsets[-1])

    @property
    def reward_shift(self) -> float:
        """Constant subtracted from a reward before it is added: 1/2 if centred, else 0."""
        return 0.5 if self.center_rewards else 0.0

    def contribution(
        self, trajectory: Trajectory, group: int = 0, cut: float | None = None
    ) -> Mapping[str, Floats]:
        """Return one user's summand in every family, for audits and tests. Shapes are as in ``families``.

        Sessions do not call this: they use :func:`~discreet.core.raw_encoder.add_record`, which tests compare
        with this method. ``trajectory`` : checked. ``group`` : the group of the plan. ``cut`` : C of the
        batch. None: the first C; infinite: rewards are no longer clipped.
        """
        found: Mapping[str, Floats] = parts.module("contributions").summand(self, trajectory, group, cut)
        return found

    def sensitivity(self, norm: Norm, weight: Mapping[str, float]) -> float:
        """Return the joint replace-one sensitivity of all families, each multiplied by its weight.

        With a clipping threshold, the result is for the families of one release: transitions and the costlier
        of the two reward families, with rewards clipped at the first C.

        Parameters
        ----------
        norm : "l1" or "l2"
        weight : family name to non-negative weight (1 / noise scale); an omitted family has weight 0.

        Returns
        -------
        float
            A bound on the norm over all pairs of users. It is exact for families per step if two states have
            two admissible actions.

        Raises
        ------
        ValueError
            If ``norm`` is another text, or ``weight`` has a name that is not a family of this query,
            or a number that is negative or not finite.
        """
        checks.choice("norm", norm, ("l1", "l2"))
        unknown = set(weight) - set(self.row_families)
        if unknown:
            raise ValueError(
                f"weight[{sorted(unknown)[0]!r}]: must be one of {', '.join(map(repr, self.row_families))}"
            )
        w = {name: checks.real(f"weight[{name!r}]", weight.get(name, 0.0), 0.0) for name in self.row_families}
        change = _steered().change(self, norm, w) if self.steered else self.change_of_counts(norm, w)
        return self.episodes * (change if norm == "l1" else math.sqrt(change))

    def change_of_counts(self, norm: Norm, w: Mapping[str, float]) -> float:
        """Return the l1 or squared l2 change in visits, transitions and rewards when one episode is replaced.

        norm : "l1" or "l2". w : weight of each family, at least 0. An omitted family has weight 0.

        The result is a sum over two parts, the families per step and the pooled families. Each part is the
        worst case of a record (table in the module's docstring) times the number of one user's records that
        can have this case.
        """
        rewards = CENTERED_REWARDS if self.center_rewards else REWARDS
        apart = 2.0 if not self.center_rewards else 1.0 if norm == "l1" else 0.5  # rewards, two pairs

        def moved(families: tuple[str, str, str], records: int, chained: bool) -> float:
            """Return the change by ``records`` records; ``chained`` : the records are in separate cells."""
            v, t, r = (w.get(name, 0.0) for name in families)
            if norm == "l2":
                v, t, r = v * v, t * t, r * r
            pair, successor = 2 * v + 2 * t + apart * r, 2 * t + r
            if not chained or pair >= successor:
                return records * max(pair, successor)
            bends = ((records + 1) // 2, records // 2 + 1, records)
            return max((records - m) * pair + min(m, records - m + 1) * 2 * t + m * r for m in bends)

        h, m = self.counted_steps, self.first_records
        in_one_cell = h if norm == "l1" else h * h
        records = m if self.first else in_one_cell if self.stationary else h
        pooled = m if self.pooled == "first" else in_one_cell
        return moved((VISITS, TRANSITIONS, rewards), records, not self.stationary) + moved(
            (NOTHING, POOLED_TRANSITIONS, POOLED_REWARDS), pooled, False
        )

    def to_cells(self, sums: Mapping[str, Floats]) -> Floats:
        """Convert ``sums``, a table by (state, action) for each of ``families``, to the flat vector of cells.

        Raises ``ValueError`` if a family is missing, or has another shape or a number that is not finite.
        """
        missing = [name for name in self.families if name not in sums]
        if missing:
            raise ValueError(f"sums lacks {missing[0]!r}: must hold {', '.join(map(repr, self.families))}")
        parts = []
        for name, shape in self.families.items():
            table = checks.floats(f"sums[{name!r}]", sums[name], shape)
            parts.append(table if name == GROUP_RETURNS else self.layout.to_rows(table).ravel())
        return np.concatenate(parts)

    def _table(self, name: str, part: Floats) -> Floats:
        """Return one family over rows as a table by (state, action); group returns already have this form."""
        return part.copy() if name == GROUP_RETURNS else self.layout.from_rows(part)

    def from_cells(self, cells: Floats) -> Mapping[str, Floats]:
        """Convert the flat vector of cells to tables by (state, action); views where the mask allows it."""
        tables = {}
        for f, (name, shape) in enumerate(self.row_families.items()):
            part = cells[self.offsets[f] : self.offsets[f + 1]].reshape(shape)
            tables[name] = self._table(name, part)
        return tables
