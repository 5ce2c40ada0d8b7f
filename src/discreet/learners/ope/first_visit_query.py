r"""Query on users' first visits to each state, for a stationary environment.

**Query.** Each episode is converted to H + 1 records. The first record leads from an artificial *start state*
to the first state of the episode. The start state has one action and is the same for all episodes, so there
are S + 1 states in all. The records (s_h, a_h, s_{h+1}) of the episode follow. The reward of a record is the
return G_h of the remaining episode, including this step, scaled to [0, 1] by the public bounds of a return.
For each state, only the record of its first visit in an episode is counted. One table covers all steps
(``CountQuery(stationary=True, first=True)``):

* visits N(s, a), transitions M(s, a, s') and centred returns G(s, a) = sum of (G_h - 1/2).

**Groups.** If users belong to one of G public groups, the group is the action in the start state. Its record
is (start, group, first state), and the start state has G rows. All other records stay the same.

**Sensitivity.** The conversion changes each user's records separately. Therefore the sensitivities are those
of the query (:mod:`discreet.core.count_query`), with m = min(S + 1, H + 1) counted records per user, in
different pairs. Neighbours replace one user's whole record, including the group. The same bound covers the
group, because a group is an action and the bound holds for all trajectories of the layout. Derivation: let
w_v, w_t and w_r be the weights of visits, transitions and returns, and

    W_1 = max(2 w_v + 2 w_t + w_r, 2 w_t + w_r),   W_2 = max(2 w_v^2 + 2 w_t^2 + w_r^2 / 2, 2 w_t^2 + w_r^2).

Suppose that the replaced episode visits u states, the new episode visits v states, and c of these states are
common to both. All three numbers include the start state; u, v <= m. In a common state, each episode has one
record, in the same pair or in different pairs, and the change of the sums is at most W. In a state that only
one episode visits, the sums change by one record. This change is w_v + w_t + w_r / 2 in l1, or
w_v^2 + w_t^2 + w_r^2 / 4 in squared l2. Both are at most W / 2. Therefore

    l1 <= (c + (u + v - 2 c) / 2) W_1 <= m W_1,   l2^2 <= m W_2.

With k episodes per user, the triangle inequality gives k times l1 and l2. Both episodes visit the start state
in any group. With two or more groups, both bounds can be attained if the maximum in W is the term for
different pairs. Without groups, the start records are in the same pair, and the bounds are not attained.

**Reason for releasing returns.** The return of an action can also be computed from M and the values of the S
next states. This result contains the noise of S cells: sigma ||V||_2, about sqrt(S) / 4 times the noise of
one cell. The sum of returns is only one cell. Visits need only a quarter of the precision of returns. In
addition, sums of returns do not require the Markov property. Their disadvantage is a larger sampling
variance: Var(G) of the whole remaining episode instead of Var(V(s')). With privacy, returns are more precise
if there are fewer than about (sigma sqrt(S))^2 visits.

**Censored episodes.** An episode with unknown outcome ends in the censored state. Its return counts as the
middle of the bounds, for every user. This value is in [0, 1] like all other returns, so the sensitivities do
not change.

**Selection of records.** A visit is the first one or not before its action and its outcome are known.
Therefore, in a stationary environment, the return of a counted record has the same distribution as the return
of any visit with the same (s, a) and step. Episodes end at the horizon, so later visits have fewer remaining
steps. The query counts first visits because they are the earliest.
:mod:`discreet.learners.ope.deviation_gains` allows for the number of remaining steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.count_query import CountQuery
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.core.layout import Layout
from discreet.core.releases import Floats, Ints
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectories
from discreet.learners.ope.release_split import consistent_counts
from discreet.mechanisms.interfaces import ProblemSpec, ReturnBounds, StepwiseRelease

_SHARE = 0.52  # share of the budget for returns; their noise is then half the noise of visits


@dataclass(frozen=True, eq=False)
class FirstVisits:
    """First-visit query for one public environment, with the conversion of episodes to records.

    spec : Spec
        The environment, which must be declared stationary. ``spec.returns`` defines the return of an episode.
        ``spec.groups`` is the number G of public groups of users.
    episodes : int
        Largest number of episodes per user. Noise and sampling errors increase with this number.

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
        """Return the rule that defines the return of an episode."""
        return ReturnBounds() if self.spec.returns is None else self.spec.returns

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the smallest and the largest possible return, in the user's units."""
        return self.returns.bounds(self.spec.horizon)

    @property
    def arrival(self) -> Floats:
        """Return the (S + 1,) rewards on arrival in each state, defined by ``spec.returns``.

        The unit is the range of returns. Arrival in the censored state gives the middle of the range. An
        episode gets at most one such reward, and rewards beyond the bounds of returns are clipped to the
        bounds.
        """
        least, most = self.bounds
        found = np.zeros(self.layout.states)
        for state, reward in (self.returns.outcomes or {}).items():
            found[state] = (min(max(reward, least), most) - min(max(0.0, least), most)) / (most - least)
        return found

    @property
    def start(self) -> int:
        """Return the index of the start state, which is S."""
        return self.spec.states

    @property
    def groups(self) -> int:
        """Return G, the number of public groups of users. The start state has one action for each group."""
        return self.spec.groups

    @cached_property
    def layout(self) -> Layout:
        """Return the layout of the query, with S + 1 states and H + 1 steps.

        The start state has G actions, and each terminal state has one action.
        """
        own = self.spec.layout
        actions = max(own.actions, self.groups)
        mask = np.zeros((own.states + 1, actions), bool)
        mask[:-1, : own.actions] = own.row_index >= 0
        ends = list(self.returns.terminal)
        mask[ends] = np.arange(actions) == mask[ends].argmax(axis=1)[:, None]
        mask[-1, : self.groups] = True
        return Layout(own.states + 1, actions, own.horizon + 1, mask)

    def query(self) -> CountQuery:
        """Return the count query, which is answered by sums over users."""
        return CountQuery(
            self.layout, stationary=True, first=True, center_rewards=True, reward_share=_SHARE,
            episodes=self.episodes,
        )  # fmt: skip

    def to_records(self, people: Trajectories, group: Ints | None = None) -> Trajectories:
        """Convert episodes to records of H + 1 steps whose rewards are the returns of the remaining episode.

        Raises ``ValueError`` if an array has a wrong shape, or if a state, a reward or a group is out of
        range. Actions are checked later, when they are counted.

        Parameters
        ----------
        people : Trajectories
            States (n, H + 1), actions (n, H) and rewards (n, H) in [0, 1].
        group : (n,) integers in [0, G), optional
            Group of each episode. None if there is only one group.
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
        """Return the (n,) actions in the start state, which are the groups of the n episodes.

        Raises ``ValueError`` if ``group`` is missing or invalid.
        """
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
        """Return the (n, H) rewards in the user's units. Steps from terminal states have reward 0."""
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

    def read(self, release: StepwiseRelease) -> VisitSums:
        """Return the sums in a release of this query.

        Raises ``ValueError`` if it belongs to another query.
        """
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
        return self.sums_of(
            sums.visits, sums.transitions, sums.rewards, *noise, people=release.users, heavy=heavy
        )

    def sums_of(
        self,
        visits: Floats,
        moves: Floats,
        returns: Floats,
        *noise: float,
        people: float,
        heavy: bool = False,
    ) -> VisitSums:
        """Return the given sums, with the noise of their cells, as a :class:`VisitSums` object.

        - visits, moves, returns : (R,), (R, S + 1) and (R,) sums.
        - noise : standard deviations of the noise in one cell of visits, of transitions, and of returns.
        - people : number of users.
        - heavy : True if the noise is Laplace noise.
        """
        begun = float(visits[self.layout.row_state == self.start].sum())
        return VisitSums(
            self, visits, moves, returns, _FirstVisitDeviations(*noise), float(people), max(begun, 1.0), heavy
        )


class _FirstVisitDeviations(NamedTuple):
    """Standard deviations of the noise in one cell of visits, of transitions, and of returns."""

    visits: float
    moves: float
    returns: float


@dataclass(frozen=True, eq=False)
class VisitSums:
    """Released sums of first visits. Each row is one of the R admissible pairs of :attr:`FirstVisits.layout`.

    Attributes
    ----------
    visits, moves, returns : (R,), (R, S + 1) and (R,)
        Noisy visits, transitions, and sums of centred returns G_h - 1/2.
    people : float
        Number of users in the sums.
    episodes : float
        Number of episodes, estimated by the noisy number of visits to the start state.
    heavy : bool
        True if the noise is Laplace noise.
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
        """Return the (S + 1, ...) sums of a table (R, ...) over the actions of each state."""
        return np.asarray(np.add.reduceat(table, self.layout.state_ptr[:-1], axis=0))

    @property
    def begins(self) -> Ints:
        """Return the (G,) rows of the start state, one for each group."""
        return np.flatnonzero(self.layout.row_state == self.question.start)

    @property
    def decided(self) -> NDArray[np.bool_]:
        """Return an (R,) mask of the rows in states with several actions. The start state is excluded."""
        layout = self.layout
        several = np.diff(layout.state_ptr)[layout.row_state] > 1
        return np.asarray(several & (layout.row_state != self.question.start))

    @property
    def ended(self) -> float:
        """Return the estimated share of episodes that reached a terminal state."""
        ends = list(self.question.returns.terminal)
        return float(np.clip(self.per_state(self.visits)[ends].sum() / self.episodes, 0.0, 1.0))

    def consistent(self, moves: Floats | None = None, visits: Floats | None = None) -> Floats:
        """Return (R, S + 1) non-negative transition counts that are consistent with visits.

        Transitions and visits are combined by least squares and then projected. By default, those of the
        release are used.
        """
        moves = self.moves if moves is None else moves
        visits = self.visits if visits is None else visits
        return consistent_counts(moves, visits, self.noise.moves, self.noise.visits)

    def sampled(self, moves: Floats, draw: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw the transitions and visits of another release with the same number of users.

        moves : (R, S + 1) expected counts of transitions. The draw contains sampling errors and noise.
        """
        noisy = draw.poisson(np.maximum(moves, 0.0)).astype(np.float64)
        visits = noisy.sum(axis=1) + self.noise.visits * draw.standard_normal(len(moves))
        if self.noise.moves > 0.0:
            noisy += self.noise.moves * draw.standard_normal(noisy.shape)
        return noisy, visits
