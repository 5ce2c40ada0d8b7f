r"""Query on users' first visits to each state, for a stationary environment.

Query. Each episode is written as H + 1 records. The first one leads from a *start state* of every episode
(one action, S + 1 states in all) to the first state; the records (s_h, a_h, s_{h+1}) follow it. The reward of
a record is the return G_h of the *remaining episode* after it, scaled by the public bounds of a return to [0,
1]. Only the records of the first visit to each state are counted, in one table for all steps
(``CountQuery(stationary=True, first=True)``):

* visits N(s, a), transitions M(s, a, s') and centred returns G(s, a) = sum of (G_h - 1/2).

Groups. If users belong to one of G public groups, the group is the action of the start state: its record
is (start, group, first state), and the start state has G rows. All other records stay the same.

This conversion maps one user's records to one user's records, so the sensitivities are those of the query
(:mod:`discreet.core.count_query`): m = min(S + 1, H + 1) records of a user, in different pairs. Neighbours
replace one user's whole record, including the group. The same bound covers this case: a group is an action,
and the bound is over all trajectories of the layout. In full, with w_v, w_t, w_r the weights of the three
families and

    W_1 = max(2 w_v + 2 w_t + w_r, 2 w_t + w_r),   W_2 = max(2 w_v^2 + 2 w_t^2 + w_r^2 / 2, 2 w_t^2 + w_r^2),

let two episodes visit u and v states, including the start state, and c states in common; u, v <= m. In a
common state each episode has one record, in the same pair or in different pairs, and the sums change by at
most W. In a state that only one episode visits, the sums change by one record: w_v + w_t + w_r / 2, or w_v^2
+ w_t^2 + w_r^2 / 4, at most W / 2. Therefore

    l1 <= (c + (u + v - 2 c) / 2) W_1 <= m W_1,   l2^2 <= m W_2,

and with k episodes per user, by the triangle inequality, k times l1 and l2. The start state is common to
both, for any groups. With two or more groups, both bounds can be attained if the maximum in W is the term of
different pairs. Without groups the start records are in one pair, and the bounds are not attained.

Reason for returns. To compute the return of an action from M, the value of each of S next states is needed.
The noise of S cells enters. Its size is sigma ||V||_2, about sqrt(S) / 4 times the noise of one cell. The sum
of returns is one cell, and the visits need only a quarter of its precision. In addition, a sum of returns
needs no Markov property. The disadvantage is the larger sampling variance, Var(G) of the whole remaining
episode instead of Var(V(s')). Under privacy, returns are still more precise if there are fewer than about
(sigma sqrt(S))^2 visits.

An episode whose outcome is not known ends in a censored state. Its return counts as the middle of the bounds,
for every user. This value is in [0, 1] like other returns, so the sensitivities do not change.

Whether a visit is the first one is determined before its action and its outcome. Therefore, conditionally on
(s, a), the return of a counted record has the distribution of any visit's return at that step, if the
environment is stationary. The horizon ends episodes, so later visits have fewer remaining steps. The query
counts the first visits, because they are the earliest. :mod:`discreet.learners.ope.deviation_gains` allows
for the number of remaining steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.count_query import CountQuery
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.core.layout import Layout
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectories
from discreet.learners.estimation import model_kernels as kernels
from discreet.mechanisms.interfaces import ProblemSpec, ReturnBounds, StepwiseRelease

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

__all__ = ["FirstVisits", "Told"]

_SHARE = 0.52  # share of the budget for returns: they get half the noise of visits


@dataclass(frozen=True, eq=False)
class FirstVisits:
    """First-visit query for one public environment, and the conversion of its episodes to records.

    spec : Spec
        ``stationary`` must be declared; ``returns`` defines how an episode's return is computed.
    episodes : int
        Largest number of episodes per user, for the noise and for the deviations of sampling.

    ``spec.groups`` is the number G of public groups of users.

    Raises
    ------
    ValueError
        If the environment is not declared stationary, or the spec's returns do not fit its layout.
    """

    __repr__ = brief

    spec: ProblemSpec
    episodes: int = 1

    def __post_init__(self) -> None:
        if not self.spec.stationary:
            raise ValueError(
                "stationary = False: first visits are of a world that is declared the same at every step "
                "(spec.stationary, stationary of a schema)"
            )
        for state in self.returns.terminal:
            checks.integer("returns.terminal", state, 0, self.spec.states - 1)
        checks.integer("episodes", self.episodes, 1)
        _ = self.bounds

    @property
    def returns(self) -> ReturnBounds:
        """Return the rule that defines an episode's return."""
        return ReturnBounds() if self.spec.returns is None else self.spec.returns

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the smallest and the largest possible return, in the user's units."""
        return self.returns.bounds(self.spec.horizon)

    @property
    def arrival(self) -> Floats:
        """Return (S + 1,) rewards on arrival by rule, in units of the range of returns.

        A censored end has the middle of the range.
        An episode pays at most once, and returns beyond the bounds are clipped to them.
        """
        least, most = self.bounds
        found = np.zeros(self.layout.states)
        for state, reward in (self.returns.outcomes or {}).items():
            found[state] = (min(max(reward, least), most) - min(max(0.0, least), most)) / (most - least)
        return found

    @property
    def start(self) -> int:
        """Return S, the first state of every episode."""
        return self.spec.states

    @property
    def groups(self) -> int:
        """Return G, the number of public groups of users: actions of the start state."""
        return self.spec.groups

    @property
    def layout(self) -> Layout:
        """Return S + 1 states, H + 1 steps; G actions in the start state, one in terminal ones."""
        own = self.spec.layout
        actions = max(own.actions, self.groups)
        mask = np.zeros((own.states + 1, actions), bool)
        mask[:-1, : own.actions] = own.row_index >= 0
        ends = list(self.returns.terminal)
        mask[ends] = np.arange(actions) == mask[ends].argmax(axis=1)[:, None]
        mask[-1, : self.groups] = True
        return Layout(own.states + 1, actions, own.horizon + 1, mask)

    def query(self) -> CountQuery:
        """Return the count query, which is summed over users."""
        return CountQuery(
            self.layout, stationary=True, first=True, center_rewards=True, reward_share=_SHARE,
            episodes=self.episodes,
        )  # fmt: skip

    def told(self, people: Trajectories, group: Ints | None = None) -> Trajectories:
        """Return the same episodes as records of H + 1 steps, with the remaining returns as rewards.

        Raises ``ValueError`` if the arrays do not have these shapes, or a state, a reward or a group is out
        of range; actions are checked when they are counted.

        Parameters
        ----------
        people : Trajectories
            States (n, H + 1), actions (n, H) and rewards (n, H) in [0, 1].
        group : (n,) integers in [0, G), optional
            None if there is one group.
        """
        horizon, n = self.spec.horizon, len(people)
        begun = self._begun(group, n)
        states, actions = np.asarray(people.states), np.asarray(people.actions)
        if states.shape != (n, horizon + 1) or actions.shape != (n, horizon):
            raise ValueError(
                f"trajectories: states of shape {states.shape} and actions of shape {actions.shape} must be "
                f"({n}, {horizon + 1}) and ({n}, {horizon})"
            )
        if n and not (states.min() >= 0 and states.max() < self.spec.states):
            raise ValueError(f"trajectories: states must be in [0, {self.spec.states - 1}]")
        rewards = np.asarray(people.rewards)
        if rewards.shape != actions.shape or not ((rewards >= 0.0) & (rewards <= 1.0)).all():
            raise ValueError(f"trajectories: rewards must be ({n}, {horizon}) numbers in [0, 1]")
        least, most = self.bounds
        left = np.cumsum(self._rewards(people)[:, ::-1], axis=1)[:, ::-1]
        left = np.clip((left - least) / (most - least), 0.0, 1.0)
        first = (self.layout.row_index >= 0).argmax(axis=1)
        ended = np.isin(states[:, :-1], self.returns.terminal)
        actions = np.where(ended, first[states[:, :-1]], actions)
        begin = np.full((n, 1), self.start, states.dtype)
        return Trajectories(
            np.concatenate([begin, states], axis=1),
            np.concatenate([begun[:, None].astype(actions.dtype), actions], axis=1),
            np.concatenate([left[:, :1], left], axis=1),
        )

    def _begun(self, group: Ints | None, n: int) -> Ints:
        """Return (n,) actions of the start records."""
        if group is None:
            if self.groups > 1:
                raise ValueError(f"group: must be given, there are {self.groups} groups")
            return np.zeros(n, np.int64)
        found = np.asarray(group)
        if found.shape != (n,) or found.dtype.kind not in "iu":
            raise ValueError(f"group: must be {n} integers, one for each episode")
        if n and not (found.min() >= 0 and found.max() < self.groups):
            raise ValueError(f"group: must be in [0, {self.groups - 1}]")
        return found.astype(np.int64)

    def _rewards(self, people: Trajectories) -> Floats:
        """Return (n, H) rewards in the user's units; terminal states pay 0."""
        returns, states = self.returns, np.asarray(people.states)
        ended = np.isin(states[:, :-1], returns.terminal)
        if returns.outcomes is not None:
            arrival = np.zeros(self.spec.states)
            arrival[list(returns.outcomes)] = list(returns.outcomes.values())
            return np.where(ended, 0.0, arrival[states[:, 1:]])
        scaled = np.asarray(people.rewards, np.float64)
        if self.spec.known_rewards is not None:
            chosen = np.clip(np.asarray(people.actions), 0, self.spec.actions - 1)
            scaled = self.spec.known_rewards[np.arange(self.spec.horizon), states[:, :-1], chosen]
        return np.where(ended, 0.0, returns.low + (returns.high - returns.low) * scaled)

    def read(self, release: StepwiseRelease) -> Told:
        """Return the sums of a release of this query; raise ``ValueError`` for another query's release."""
        layout = self.layout
        if release.layout != layout:
            raise ValueError("release.layout: must be that of first visits in this world")
        laws = release.laws
        for name in (VISITS, TRANSITIONS, CENTERED_REWARDS):
            if name not in laws:
                raise ValueError(f"release holds no {name}: must be one of first visits")
        sums = release.step(0)
        if sums.visits is None or sums.rewards is None:
            raise ValueError("release.step(0): must hold visits and rewards, as its laws name them")
        noise = (laws[name].std() for name in (VISITS, TRANSITIONS, CENTERED_REWARDS))
        heavy = "laplace" in laws[VISITS].family
        return self.told_of(
            sums.visits, sums.transitions, sums.rewards, *noise, people=release.users, heavy=heavy
        )

    def told_of(
        self,
        visits: Floats,
        moves: Floats,
        returns: Floats,
        *noise: float,
        people: float,
        heavy: bool = False,
    ) -> Told:
        """Return the sums by rows, with the standard deviation of one cell and the number of users."""
        begun = float(visits[self.layout.row_state == self.start].sum())
        return Told(
            self, visits, moves, returns, _FirstVisitDeviations(*noise), float(people), max(begun, 1.0), heavy
        )


class _FirstVisitDeviations(NamedTuple):
    """Standard deviations of the noise in one cell of visits, of transitions, and of returns."""

    visits: float
    moves: float
    returns: float


@dataclass(frozen=True, eq=False)
class Told:
    """Release of first visits, by rows (R) of :attr:`FirstVisits.layout`.

    Attributes
    ----------
    visits, moves, returns : (R,), (R, S + 1) and (R,)
        Sums; ``returns`` are of G_h - 1/2.
    people : float
        Number of users in the sums.
    episodes : float
        Number of episodes, read from the noisy count of the start state.
    heavy : bool
        Whether the noise is Laplace noise.
    """

    __repr__ = brief

    question: FirstVisits
    visits: Floats
    moves: Floats
    returns: Floats
    noise: _FirstVisitDeviations
    people: float
    episodes: float
    heavy: bool = False

    @property
    def layout(self) -> Layout:
        """Return the layout of the query."""
        return self.question.layout

    def per_state(self, table: Floats) -> Floats:
        """Sum (R, ...) over the actions of a state: (S + 1, ...)."""
        return np.asarray(np.add.reduceat(table, self.layout.state_ptr[:-1], axis=0))

    @property
    def begins(self) -> Ints:
        """Return (G,) rows of the start state, one per group."""
        return np.flatnonzero(self.layout.row_state == self.question.start)

    @property
    def decided(self) -> NDArray[np.bool_]:
        """Return a (R,) mask of rows in states where users had a choice. A group is not a choice."""
        layout = self.layout
        several = np.diff(layout.state_ptr)[layout.row_state] > 1
        return np.asarray(several & (layout.row_state != self.question.start))

    def consistent(self, moves: Floats | None = None, visits: Floats | None = None) -> Floats:
        """Return (R, S + 1) transitions, non-negative and consistent with visits.

        They are the least-squares estimate after a projection.
        """
        moves = self.moves if moves is None else moves
        visits = self.visits if visits is None else visits
        if self.noise.moves == 0.0:
            return np.maximum(moves, 0.0)
        of_visits, of_moves = self.noise.visits**2, self.noise.moves**2
        both = of_visits + self.layout.states * of_moves
        gap = moves.sum(axis=1) - visits
        target = np.maximum(visits + gap * (of_visits / both), 0.0)
        kept = np.maximum(moves - (gap * (of_moves / both))[:, None], 0.0)
        kernels.project_table(kept, target, np.zeros(len(visits)), kept, np.empty(len(visits)))
        return kept

    def sampled(self, moves: Floats, draw: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw (moves, visits) of another release with as many users, with ``moves`` as the true counts."""
        noisy = draw.poisson(np.maximum(moves, 0.0)).astype(np.float64)
        visits = noisy.sum(axis=1) + self.noise.visits * draw.standard_normal(len(moves))
        if self.noise.moves > 0.0:
            noisy += self.noise.moves * draw.standard_normal(noisy.shape)
        return noisy, visits
