"""Count query: visits, transitions and rewards of a tabular problem, and their sensitivity to one user.

One user contributes one record (s, a, r, s') per step. The only neighbouring relation here replaces the
user's whole trajectory by another one. With w_f the weight of a family (1 / its noise scale), it changes at
each step:

=============================  =====================  ===========================================
case at a step                 sum of w |change|      sum of (w change)^2
=============================  =====================  ===========================================
other (s, a)                   2 w_v + 2 w_t + c w_r  2 w_v^2 + 2 w_t^2 + c' w_r^2
same (s, a), other s'          2 w_t + w_r            2 w_t^2 + w_r^2
same (s, a, s')                w_r                    w_r^2
=============================  =====================  ===========================================

with c = 2, c' = 2 for uncentred rewards in [0, 1], and c = 1, c' = 1/2 for rewards centred at 1/2 (each
record then moves a cell by at most 1/2). Counts per step are in different cells for different h, so both sums
are at most H times the worst case of a step. Uncentred families attain it if there are two admissible pairs:
two trajectories that never share a pair, with all rewards 1. Then l1 = 2H for each family and 6H jointly, l2
= sqrt(2H) and sqrt(6H).

For squares of centred rewards the second case is the worst of a step (without visits). It cannot occur at two
steps in a row: after it the two users are in different states, so in different pairs. Suppose that m steps
are in the same pair and H - m in different ones. At most n = min(m, H - m + 1) of the m steps have different
successors: each of these, except the last step of all, is followed by one of the H - m. Counts per step
therefore change by at most

    max over m in [0, H] of (H - m) (2 w_v^2 + 2 w_t^2 + w_r^2 / 2) + n 2 w_t^2 + m w_r^2.

This is linear in m except at the bends of n, and therefore greatest at m = 0, (H + 1) // 2, H // 2 + 1 or H.
It is attained in full if there are two states with two admissible actions. The second and the first case then
alternate, both users arriving in one state after the first, and where m > n only rewards differ.

Counts pooled over steps add up to H records of one user in a single cell. The l1 bound is unchanged. By the
triangle inequality the l2 change is at most H times the square root of a step's worst case (attained by
uncentred families: H sqrt(6) jointly), sqrt(H) times that of per-step counts.

Pooled families next to the per-step ones use the same records a second time, so their changes add: l1 to l1,
squares to squares. Let W_1 and W_2 be the worst case of a step for the pooled weights (no visits).

- ``pooled="all"``, all H records of a user: l1 <= H W_1 and l2 <= H sqrt(W_2), as above. Under Laplace noise
  a pooled count has the noise of a per-step count and contains H times as much (the sum of H per-step
  counts has sqrt(H) times the noise). Under Gaussian noise this gains nothing.
- ``pooled="first"``, the record of the user's *first* visit to each state: l1 <= m W_1, l2^2 <= m W_2 with m
  = min(S, H). Suppose that the two users visit u <= m and v <= m states, and that c of these are common to
  both. A state of both changes as one step does, by at most W. A state of only one user removes one record.
  This is w_t + c w_r / 2 or w_t^2 + c' w_r^2 / 2, half of the first case of the table, so at most W / 2. The
  sum is at most (c + (u - c) / 2 + (v - c) / 2) W = (u + v) W / 2 <= m W. Whether a visit is the first is
  decided before its action and successor are seen, so transitions are still drawn from P.

First visits alone (``stationary`` and ``first``): only the same m records of a user, in different pairs, are
counted, visits included. With W the worst case of a step for all families, the argument above holds
unchanged. Removing one record changes w_v + w_t + c w_r / 2 or w_v^2 + w_t^2 + c' w_r^2 / 2. This is again
half of the first case of the table. So l1 <= m W and l2^2 <= m W. For uncentred families both are attained by
two users who each visit m states, in pairs that the other does not visit. Noise is then sqrt(m) times that of
one step's counts, and a count contains up to H times as much. This is the best query that we know for an
environment that is the same at every step.

One step alone (``step=h``): only a user's record of step h is counted, in families whose first axis is 1.
Replacing the user causes the change in the table once. The factor H disappears: l1 is the worst case of a
step and l2 its square root. Both are attained, for centred rewards too (no chain of records restricts them),
by two users who are in different pairs at step h, or in one pair with different successors. The values are 2
for each uncentred family, 6 jointly, sqrt(6) in l2; without rewards 4 and 2; for transitions alone 2 and
sqrt(2).

Up to m episodes of a user (``episodes``). A user's contribution is x = x_1 + ... + x_k with k <= m episodes,
possibly none. Replace it by x' = x'_1 + ... + x'_k', and fill both up to m summands with zeros: the change is
the sum of m differences x_j - x'_j. Two episodes differ by at most D, the bound above in the same norm,
weights included. An episode and a zero differ by at most D too. Every step of the episode removes one record,
which is half of the first case of the table, and a return is at most C. By the triangle inequality every
sensitivity, l1 and l2, of each family and joint, is at most m D. It is attained whenever D is: by m times the
same episode against m times the other one (all m may be in the same cells, so sqrt(m) would not be enough).
The number of a user's episodes is private. The limit m is declared, and enforced by
:class:`~discreet.mechanisms.dataset.dataset_release.OneShotSession`.

Group returns and clipped rewards (``groups``, ``cut``) are further families, whose scales depend on plans.
:mod:`discreet.core.clipped_returns` defines them and derives their sensitivity; it is imported only for them.
Their changes add to those above, l1 to l1 and squares to squares.
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
MOST_EPISODES = 10**6  # of one user; noise grows with it
Pooled = Literal["none", "all", "first"]
GROUP_RETURNS = "group_returns"
CUT_REWARDS = "cut_reward_sums"

_MAX_CELLS = 2 * 10**9


def _steered() -> Any:
    """Return the module of group returns and clipped rewards."""
    return parts.module("steered")


def cut_to(trajectory: Trajectory, step: int | None) -> Trajectory:
    """Return the record of one step (0-based) as a trajectory of one step; None returns all of it.

    For a query with ``step``, this is the counted part of a checked trajectory; no sum or message uses the
    rest.
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
        False drops the family of visits, since visits are the sums of the transitions over s'.
    center_rewards : bool
        Release the sum of (r - 1/2) per pair instead of the sum of r.
    known_rewards : bool
        Rewards are public: no reward family.
    reward_share : float, optional
        Share of the budget in (0, 1) that the reward family gets (the rest is split equally); None:
        equal shares for all families. A privatizer's ``weights`` take precedence.
    pooled : "none", "all" or "first"
        In addition to the counts per step, transitions and rewards (centred as theirs are) summed over
        steps: of all of a user's records, or of the first visit to each state.
    pooled_share : float, optional
        Share of the budget in (0, 1) that the pooled families get, split among them as the rest is;
        None: half.
    groups : int
        Number of public groups of users whose clipped returns are summed (``Plan.group``); 0: none.
    clip : float
        C in (0, H], with groups: the largest value that one user's return counts for; 0 without.
    return_share : float
        With groups: share of the budget in (0, 1) that group returns get if a plan names none; the
        families of counts split the rest.
    episodes : int
        m, the largest number of episodes that one user may have: every sensitivity is m times that of one
        episode. Above 1 only for offline data sets (``privatizer.stored``).
    step : int, optional
        h in [0, H): only the records of that step are counted, in families with first axis 1; None: those
        of every step. Not with stationary, pooled or groups.
    cut : float
        C at the first batch, in [1e-6, H]. Rewards summed over steps, for each user until their total reaches
        C, are an alternative to those per step; a release contains one of the two (``Plan.cut``). 0: no such
        family. With center_rewards, and without visits, known rewards, stationary, pooled, groups and step.

    Raises
    ------
    ValueError
        If the dense release would have more than 2e9 cells: a release is never sparse, because which cells
        are empty is private. Pool the steps or declare a mask. (A session of many releases allows 2e8.)
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
        """T: 1 if steps are pooled or only one is counted, else H."""
        return 1 if self.stationary or self.step is not None else self.layout.horizon

    @property
    def counted(self) -> slice:
        """Steps whose records are counted: all H, or one."""
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
        """True if plans choose scales of its releases (group returns, clipped rewards): measurements only."""
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
        """Cells that can be non-zero by public declaration: all admissible ones."""
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

        Sessions do not call this: they use :func:`~discreet.core.raw_encoder.add_record`, which is compared
        with it. ``trajectory`` : checked. ``group`` : the plan's. ``cut`` : C of the batch; None: the first
        one; infinite: no rewards are summed up to a threshold any more.
        """
        found: Mapping[str, Floats] = parts.module("contributions").summand(self, trajectory, group, cut)
        return found

    def sensitivity(self, norm: Norm, weight: Mapping[str, float]) -> float:
        """Return the joint replace-one sensitivity of all families, each multiplied by its weight.

        With a clipping threshold: that of the families which one release contains, which are transitions and
        the costlier of the two reward families, with users clipped at the first C.

        Parameters
        ----------
        norm : "l1" or "l2"
        weight : family name to non-negative weight (1 / noise scale); families left out count 0.

        Returns
        -------
        float
            A bound on the norm over all pairs of users, exact for families per step if two states have two
            admissible actions.

        Raises
        ------
        ValueError
            If ``norm`` is another word, or ``weight`` has a name that is not a family of this query, or a
            number that is negative or not finite.
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
        """Return the change by one replaced episode in visits, transitions and rewards: l1, or l2 squared.

        norm : "l1" or "l2". w : weight of each family that counts, at least 0; families left out count 0.

        It is a sum over two parts, the families per step and the pooled ones. Each part is the worst case of
        a
        record (table in the module's docstring) times the number of one user's records that can have it.
        """
        rewards = CENTERED_REWARDS if self.center_rewards else REWARDS
        apart = 2.0 if not self.center_rewards else 1.0 if norm == "l1" else 0.5  # of rewards in two pairs

        def moved(families: tuple[str, str, str], records: int, chained: bool) -> float:
            """Return the change by ``records`` records; ``chained`` : they are in separate cells."""
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
        """Return one family over rows as a table by (state, action); group returns are one already."""
        return part.copy() if name == GROUP_RETURNS else self.layout.from_rows(part)

    def from_cells(self, cells: Floats) -> Mapping[str, Floats]:
        """Convert the flat vector of cells to tables by (state, action); views where the mask allows it."""
        tables = {}
        for f, (name, shape) in enumerate(self.row_families.items()):
            part = cells[self.offsets[f] : self.offsets[f + 1]].reshape(shape)
            tables[name] = self._table(name, part)
        return tables
