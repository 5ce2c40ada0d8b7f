r"""World model: an MDP estimated from one release, for planning and for training RL agents.

All computations are post-processing of a release, so they cost no privacy budget. :func:`world_model` reads a
release of first visits (:mod:`discreet.learners.ope.first_visit_query`) or of counts per step. If the
environment is declared stationary, counts per step are summed over steps.

Notation: a row r = (s, a) is a pair of state and action; visits v and transitions M have noise of standard
deviation sigma_v and sigma_m. S is the number of next states, and k the number of episodes per user.

1. N = w v + (1 - w) sum M, w = S sigma_m^2 / (sigma_v^2 + S sigma_m^2), has the standard deviation sd(N). X =
   M - (sum M - N) / S, and n = max(N, 1, 2 sd(N)). A state s has A_s rows, N_s = sum_a N and X_s = sum_a X.
2. Rows are shrunk twice (James and Stein): towards the distribution of their state, and towards the
   distribution p_0 of arrivals. With first visits, p_0 includes one self-transition of each finished episode,
   which makes p_0 pessimistic. The errors have nu_s = (S A_s sigma_m^2 + k N_s) / N_s^2 and nu_r = (S
   sigma_m^2 + k n) / n^2. The mean of |X_s / N_s - p_0|^2 - nu_s over states, with weights 1 / nu_s^2, is
   tau_1^2. With w_s = tau_1^2 / (tau_1^2 + nu_s) and the projection Pi onto the simplex, P_s = Pi(p_0 + w_s
   (X_s / N_s - p_0)). In the same way, tau_2^2 and w_r follow from |X_r / n - X_s / N_s|^2 - nu_r (1 - n /
   N_s), and P_r = Pi(P_s + w_r (X_r / n - P_s)).
3. The uncertainty of a row is a Dirichlet distribution with parameters alpha_r P_r, where alpha_r + 1 = (1 -
   |P_r|^2) / (w_r nu_r + (1 - w_r)^2 w_s nu_s) and alpha_r >= 1/2. Its mean is P_r.
4. Returns of first visits are a second estimate of the advantage of a row. V(t) is the reward of an arrival
   in t, plus the value that the behaviour policy has in t in the model. Transitions give the advantage a_M =
   (P_r - P_b) V, with variance u = Var_{P_r}(V) / (alpha_r + 1). Returns give a_G = G_r / n - G_s / N_s, with
   variance (sigma_r^2 + (q sigma_v)^2) / n^2 + k spread / n. The two advantages are averaged with weights
   proportional to their precisions. P_r is replaced by the *tilted* row P_r(t) e^{theta V(t)} / Z whose
   advantage is the combined one.

**As before.** One additional action draws the next state of the behaviour policy. It replaces rows with N <=
3 sd(N), and rows whose share of the decisions in their state is outside (0.005, 0.995). **Pessimism**: the
reward of all other rows is reduced by a multiple of sqrt(u) (PEVI, arXiv 2012.15085; MOPO, arXiv 2005.13239).

*Rewards.* If a rule pays rewards on arrival, the model uses these rewards, in units of the range of returns.
Otherwise, they are in units of one step, and are either known or estimated from counts per step. First visits
contain only returns, from which the rewards of steps cannot be computed. Such a release is rejected.
:attr:`WorldModel.units` converts to the user's units.

*Limits.* The model has no correction for hidden causes. Do not evaluate a policy with the data of its model:
use ``part="train"`` for the model, and the held-out part for the evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import checks
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.core.guarantee import Guarantee
from discreet.core.layout import Layout
from discreet.core.releases import Floats, Ints, Release
from discreet.core.short_repr import brief
from discreet.envs.mdp.tabular import TabularMDP
from discreet.learners.estimation.linear_regression import simplex_rows
from discreet.learners.ope.first_visit_query import FirstVisits
from discreet.learners.ope.policy_origin import PolicyArray
from discreet.learners.ope.release_split import (
    ReleasePart,
    ReturnSteps,
    check_kind,
    check_spec,
    combined_visits,
    content_hash,
    release_sizes,
    split_release,
)
from discreet.learners.ope.session_release import by_step
from discreet.learners.ope.transition_gains import return_steps
from discreet.mechanisms.interfaces import ProblemSpec, StepSums, StepwiseRelease
from discreet.utils.system import optional

if TYPE_CHECKING:
    from discreet.envs.world_env import WorldEnv
    from discreet.envs.world_env_kernels import WorldTables

Bools = NDArray[np.bool_]
Part = Literal["train", "held_out", "whole"]

AS_BEFORE = -1  # in tables of policies: the action of the behaviour policy
PENALTY = 0.5  # default multiple of the standard deviation of an action's value
_LEAST_VARIANCE = 1e-6  # number of draws of true distributions around their mean
_LEAST_ALPHA = 0.5
_TAKEN = (0.005, 0.995)  # range for an action's share of the decisions in its state
_TURNS = 20  # largest number of improvements of a policy
_STANDS_OUT = 3.0  # standard deviations of the noise that the visits of an action must exceed


# ---------------------------------------------------------------------------------- estimation
class _Cells(NamedTuple):
    """Sizes and noise of one table of counts."""

    ptr: Ints  # (n + 1,) first row of each of n states
    live: Bools  # (n,) states in which episodes continue
    arrivals: Bools  # (n,) states whose arrivals are counted in p_0
    of_visits: float  # inf if visits were not released
    of_moves: float
    episodes: int

    @property
    def state(self) -> Ints:
        return np.repeat(np.arange(self.ptr.size - 1), np.diff(self.ptr))

    @property
    def several(self) -> Bools:
        """(R,) mask, True for the rows of states in which episodes continue and that have several actions."""
        return np.asarray(((np.diff(self.ptr) > 1) & self.live)[self.state])

    def per_state(self, table: Floats) -> Floats:
        return np.asarray(np.add.reduceat(table, self.ptr[:-1], axis=0))


class _RowEstimates(NamedTuple):
    """Estimated distributions of next states."""

    visits: Floats  # (R,) N
    deviation: float  # sd(N)
    floor: Floats  # (R,) n
    probability: Floats  # (R, S)
    alpha: Floats  # (R,)
    of_state: Floats  # (n, S) P_s
    share: Floats  # (R,) probabilities of the behaviour policy


def _weighted(excess: Floats, noise: Floats, chosen: Bools) -> float:
    """Return the mean of ``excess`` over the chosen entries with weights 1 / noise^2, at least 1e-6."""
    chosen = chosen & np.isfinite(noise)
    excess, weight = np.where(chosen, excess, 0.0), np.where(chosen, noise, np.inf) ** -2.0
    whole = float(weight.sum())
    return max(float((weight * excess).sum()) / whole, _LEAST_VARIANCE) if whole else _LEAST_VARIANCE


def _distributions(visits: Floats | None, moves: Floats, cells: _Cells) -> _RowEstimates:
    """Estimate rows with steps 1 to 3 of the module docstring.

    - visits : (R,).
    - moves : (R, S).
    """
    states, live, state, several = moves.shape[1], cells.live, cells.state, cells.several
    of_moves, k = states * cells.of_moves**2, cells.episodes
    taken, deviation = combined_visits(visits, moves, cells.of_moves, cells.of_visits)
    moves = moves - ((moves.sum(axis=1) - taken) / states)[:, None]
    least = max(1.0, 2.0 * deviation)
    n = np.maximum(taken, least)
    count = np.diff(cells.ptr)
    n_state = np.maximum(cells.per_state(taken), np.maximum(1.0, 2.0 * deviation * np.sqrt(count)))
    seen = cells.per_state(moves) / n_state[:, None]
    arrivals = np.maximum((n_state[:, None] * seen)[cells.arrivals].sum(axis=0), 0.0)
    common = simplex_rows((arrivals / max(arrivals.sum(), 1.0))[None])[0]

    noise_state = (count * of_moves + k * n_state) / n_state**2
    between = _weighted(((seen - common) ** 2).sum(axis=1) - noise_state, noise_state, live)
    of_state = between / (between + noise_state)
    states_law = simplex_rows(common + of_state[:, None] * (seen - common))

    noise = (of_moves + k * n) / n**2
    own = moves / n[:, None]
    excess = ((own - seen[state]) ** 2).sum(axis=1) - noise * (1.0 - np.clip(n / n_state[state], 0.0, 1.0))
    among = _weighted(excess, noise, several)
    weight_row = np.where(several, among / (among + noise), 0.0)
    found = simplex_rows(states_law[state] + weight_row[:, None] * (own - states_law[state]))
    for s in np.flatnonzero(~live):
        at = slice(cells.ptr[s], cells.ptr[s + 1])
        found[at] = states_law[s] = np.arange(states) == s
    of_row = weight_row * noise + (1.0 - weight_row) ** 2 * (of_state * noise_state)[state]
    alpha = np.maximum((1.0 - (found**2).sum(axis=1)) / np.maximum(of_row, 1e-12) - 1.0, _LEAST_ALPHA)
    positive = np.maximum(taken, 0.0)
    together = cells.per_state(positive)[state]
    share = np.where(together > 0.0, positive / np.maximum(together, 1e-300), 1.0 / count[state])
    return _RowEstimates(taken, deviation, n, found, alpha, states_law, share)


def _moments(rows: Floats, value: Floats) -> tuple[Floats, Floats]:
    """Return the (R,) mean and variance of ``value`` (S,) under each row."""
    mean = rows @ value
    return mean, np.maximum(rows @ value**2 - mean**2, 1e-6)


class _Returns(NamedTuple):
    """Advantages estimated from returns of first visits, in units of the model."""

    advantage: Floats  # (R,)
    variance: Floats  # (R,) inf where visits do not exceed the noise
    mean: Floats  # (n,) mean centred return by state


def _by_returns(
    returns: Floats, of_returns: float, rows: _RowEstimates, cells: _Cells, unit: float
) -> _Returns:
    n, state, visits = rows.floor, cells.state, rows.visits
    n_state = np.maximum(cells.per_state(np.maximum(visits, 0.0)), 1.0)
    mean = np.clip(cells.per_state(returns) / n_state, -0.5, 0.5)
    q = np.clip(returns / n, -0.5, 0.5)
    of_visits = 0.0 if math.isinf(cells.of_visits) else cells.of_visits
    spread = np.clip(0.25 - mean**2, 0.01, 0.25)[state]
    variance = (of_returns**2 + (q * of_visits) ** 2) / n**2 + cells.episodes * spread / n
    seen = visits > 2.0 * rows.deviation
    return _Returns(unit * (q - mean[state]), np.where(seen, unit**2 * variance, np.inf), mean)


def _tilted(rows: Floats, value: Floats, target: Floats, chosen: Bools) -> Floats:
    """Tilt the chosen rows to P e^{theta V} / Z, with mean ``target`` of V. Other rows do not change."""
    target = np.clip(target, value.min() + 1e-6, value.max() - 1e-6)
    centre = rows @ value
    theta, found = np.zeros(len(rows)), rows
    for _ in range(20):
        mean, variance = _moments(found, value)
        theta = np.clip(theta + np.clip((target - mean) / variance, -3.0, 3.0) * chosen, -20.0, 20.0)
        found = rows * np.exp(theta[:, None] * (value - centre[:, None]))
        found /= found.sum(axis=1, keepdims=True)
    return np.where(chosen[:, None], found, rows)


# ---------------------------------------------------------------------------------------- model
class StatePlan(NamedTuple):
    """Policy that acts in the same way at every step.

    Means over steps are weighted by visits of the behaviour policy. An advantage is the effect of one
    decision.
    """

    row: Ints  # (S,) row of the new action in each state; -1 means the behaviour policy.
    advantage: Floats  # (R,) expected advantage of each row over the behaviour policy.
    visits: Floats  # (S,) expected number of visits in an episode.
    gain: float  # expected gain over the behaviour policy, without the penalty, in units of the model


@dataclass(frozen=True, eq=False)
class WorldModel:
    """MDP estimated from one release, with the uncertainty of the estimate. :func:`world_model` creates it.

    T is 1 if the environment is stationary, otherwise H. ``spec.layout`` has R admissible pairs.

    Attributes
    ----------
    spec : ProblemSpec
        Public facts about the environment.
    probability : (T, R, S)
        Expected next-state probabilities.
    alpha : (T, R)
        Total of the parameters of each row's Dirichlet distribution.
    reward : (T or H, R)
        Expected rewards, without the rewards that the rule of ``spec.returns`` pays on arrival.
    arrival : (S,)
        Rewards that the rule pays on arrival in a state.
    deviation : (T, R)
        Standard deviation sqrt(u) of an action's value. Pessimism is proportional to it.
    acts : (T, R) bool
        True for rows that count as actions; all other rows act as the behaviour policy.
    share : (T, R)
        Estimated probabilities of the behaviour policy.
    initial : (S,)
        Distribution of the first state.
    terminal_reward : float
        Reward of each step after the end of an episode.
    units : (float, float)
        (scale, offset). A value v of :attr:`mean` is the return offset + scale v in the user's units.
    shift : float
        Return in :attr:`mean` of an episode without outcome. It makes all rewards non-negative.
    users : int
        Number of users in the part of the release from which the model was estimated.
    guarantee : Guarantee
        Privacy guarantee of the release. It covers everything that is computed from the model.
    made_from : mapping
        Hash of the release, part and share.
    """

    __repr__ = brief

    spec: ProblemSpec
    probability: Floats
    alpha: Floats
    reward: Floats
    arrival: Floats
    deviation: Floats
    acts: Bools
    share: Floats
    initial: Floats
    terminal_reward: float
    units: tuple[float, float]
    shift: float
    users: int
    guarantee: Guarantee
    made_from: Mapping[str, Any]

    @property
    def layout(self) -> Layout:
        """Layout of the environment."""
        return self.spec.layout

    @property
    def terminal(self) -> tuple[int, ...]:
        """States in which episodes have ended."""
        return () if self.spec.returns is None else self.spec.returns.terminal

    def _slot(self, table: NDArray[Any], h: int) -> NDArray[Any]:
        return np.asarray(table[h if len(table) > 1 else 0])

    def _paid(self, probability: Floats) -> Floats:
        """Return the (T or H, R) expected rewards of a step, including rewards that the rule pays."""
        ended = np.isin(self.layout.row_state, self.terminal)
        return np.where(ended, self.terminal_reward, self.reward + probability @ self.arrival)

    def _behaviour_values(self) -> Floats:
        """Return the (H + 1, S) values of the behaviour policy."""
        layout, paid = self.layout, self._paid(self.probability)
        value = np.zeros((layout.horizon + 1, layout.states))
        for h in range(layout.horizon - 1, -1, -1):
            q = self._slot(paid, h) + self._slot(self.probability, h) @ value[h + 1]
            value[h] = np.add.reduceat(self._slot(self.share, h) * q, layout.state_ptr[:-1])
        return value

    @property
    def behaviour(self) -> Floats:
        """Estimated behaviour policy, (H, S, A); each row sums to 1."""
        table = self.layout.from_rows(self.share)
        return np.array(np.broadcast_to(table, (self.layout.horizon, *table.shape[1:])))

    @cached_property
    def mean(self) -> TabularMDP:
        """Expected MDP, with rewards in [0, 1]; see :attr:`units`."""
        return self._mdp(self.probability, "private world")

    def members(self, k: int, seed: int) -> Iterator[TabularMDP]:
        """Yield k MDPs whose rows are drawn from the Dirichlet distributions around :attr:`mean`.

        - k : number of MDPs, at least 1.
        - seed : seed of the draws, at least 0.

        Raises ``ValueError`` if a number is out of range.
        """
        k, seed = checks.integer("k", k, 1), checks.integer("seed", seed, 0)
        draw = np.random.default_rng(seed)
        return (self._mdp(self._drawn(draw), f"private world {i}") for i in range(k))

    def _drawn(self, draw: np.random.Generator) -> Floats:
        found = np.zeros_like(self.probability)
        at = np.nonzero(self.probability)
        found[at] = draw.standard_gamma(self.alpha[at[0], at[1]] * self.probability[at])
        whole = found.sum(axis=-1, keepdims=True)
        return np.where(whole > 0.0, found / np.maximum(whole, 1e-300), self.probability)

    def _mdp(self, probability: Floats, name: str) -> TabularMDP:
        layout, ends = self.layout, list(self.terminal)
        paid = self._paid(probability)
        rewards = layout.from_rows(paid)
        if self.shift:  # return of an episode without outcome, paid at its end or at the horizon
            live = ~np.isin(layout.row_state, ends)
            ended = np.broadcast_to(probability[..., ends].sum(axis=-1), (layout.horizon, layout.rows)).copy()
            ended[-1] = 1.0
            rewards = layout.from_rows(paid + self.shift * ended * live)
        elif self.arrival.any() and len(self.reward) == len(probability) == 1:
            by_arrival = np.where(np.isin(layout.row_state, ends)[:, None], 0.0, self.arrival)
            own = np.where(np.isin(layout.row_state, ends), self.terminal_reward, self.reward[0])
            rewards = layout.from_rows((own[:, None] + by_arrival)[None])
        return TabularMDP(
            layout.from_rows(probability), np.clip(rewards, 0.0, 1.0), self.initial, horizon=layout.horizon,
            mask=layout.mask, terminal=self.terminal, name=name,
        )  # fmt: skip

    def plan(self, penalty: float = PENALTY) -> Ints:
        """Compute a policy that is optimal in the expected MDP, with pessimism.

        Parameters
        ----------
        penalty : float
            Every action costs this multiple of the standard deviation of its value, at least 0. The behaviour
            policy costs nothing.

        Returns
        -------
        (H, S) integers
            Actions; -1 means the behaviour policy. The array has the attribute :attr:`made_from`, which an
            evaluation checks.

        Raises
        ------
        ValueError
            If ``penalty`` is negative.
        """
        penalty = checks.real("penalty", penalty, 0.0)
        layout, slot = self.layout, self._slot
        paid, ends = self._paid(self.probability), list(self.terminal)
        value = np.zeros(layout.states)
        policy = np.full((layout.horizon, layout.states), AS_BEFORE, np.int64)
        for h in range(layout.horizon - 1, -1, -1):
            q = slot(paid, h) + slot(self.probability, h) @ value
            before = np.add.reduceat(slot(self.share, h) * q, layout.state_ptr[:-1])
            priced = np.where(slot(self.acts, h), q - penalty * slot(self.deviation, h), -np.inf)
            table = layout.from_rows(priced[None], fill=-np.inf)[0]
            best = table.max(axis=1)
            better = best > before
            better[ends] = False
            policy[h, better] = table.argmax(axis=1)[better]
            value = np.where(better, best, before)
        return PolicyArray.of(policy, self.made_from)

    def plan_by_state(self, penalty: float = PENALTY, usable: Bools | None = None) -> StatePlan:
        """Compute the best policy that acts in the same way at every step, with pessimism.

        Actions are changed until no change in a single state is expected to help. The environment must be
        stationary.

        Parameters
        ----------
        penalty : float
            See :meth:`plan`.
        usable : (R,) bool, optional
            Rows of :attr:`layout` that can be used; all other rows act as the behaviour policy.

        Returns
        -------
        StatePlan

        Raises
        ------
        ValueError
            If ``penalty`` is negative, or the model differs between steps.
        """
        penalty = checks.real("penalty", penalty, 0.0)
        if len(self.probability) > 1 or len(self.reward) > 1:
            raise ValueError("plan_by_state: must be called on a model that is the same at every step")
        layout, moves, cost = self.layout, self.probability[0], penalty * self.deviation[0]
        state, begins, each = layout.row_state, layout.state_ptr[:-1], np.arange(layout.states)
        acts = self.acts[0] if usable is None else self.acts[0] & usable
        acts = acts & ~np.isin(state, self.terminal)
        paid = self._paid(self.probability)[0]
        usual, usually = (
            np.add.reduceat(w * x, begins)
            for w, x in ((self.share[0][:, None], moves), (self.share[0], paid))
        )

        def values(rows: Ints, pays: Floats) -> tuple[Floats, Floats]:
            changed = np.flatnonzero(rows >= 0)
            law, earned = usual.copy(), usually.copy()
            law[changed], earned[changed] = moves[rows[changed]], pays[rows[changed]]
            value = np.zeros((layout.horizon + 1, layout.states))
            for h in range(layout.horizon - 1, -1, -1):
                value[h] = earned + law @ value[h + 1]
            return law, value

        chosen = nothing = np.full(layout.states, -1)
        best, found, plain = -np.inf, chosen, np.zeros(layout.rows)
        for turn in range(_TURNS):
            ours, value = values(chosen, paid - cost)
            reached = np.zeros((layout.horizon, layout.states))
            reached[0] = self.initial
            for h in range(1, layout.horizon):
                reached[h] = reached[h - 1] @ ours
            total = float(self.initial @ value[0])
            if total <= best + 1e-12:
                break
            best, found = total, chosen
            visits = reached.sum(axis=0)
            later = (reached.T @ value[1:]) / np.maximum(visits, 1e-12)[:, None]
            q = paid + (moves * later[state]).sum(axis=1)
            advantage = q - (usually + (usual * later).sum(axis=1))[state]
            if not turn:
                plain, often = advantage, visits
            table = layout.from_rows(np.where(acts, advantage - cost, -np.inf)[None], fill=-np.inf)[0]
            chosen = np.where(table.max(axis=1) > 0.0, layout.row_index[each, table.argmax(axis=1)], -1)
        gain = self.initial @ (values(found, paid)[1][0] - values(nothing, paid)[1][0])
        return StatePlan(found, plain, often, float(gain))

    # ------------------------------------------------------------------------------ environments
    def _tables(
        self, members: int, seed: int, penalty: float, as_before: bool, unsupported: str
    ) -> WorldTables:
        """Return the tables of environments: R rows of actions, then S rows that act as the behaviour policy.

        With ``unsupported="end"``, one more row leads to the additional terminal state S.
        """
        from discreet.envs.world_env import world_tables

        layout = self.layout
        members, seed = checks.integer("members", members, 0), checks.integer("seed", seed, 0)
        penalty = checks.real("penalty", penalty, 0.0)
        as_before = checks.flag("as_before", as_before)
        checks.choice("unsupported", unsupported, ("before", "end"))
        more = int(unsupported == "end")

        def extended(rows: Floats, weight: Floats) -> Floats:
            mixed = np.add.reduceat(weight * rows, layout.state_ptr[:-1], axis=1)
            found = np.pad(np.concatenate([rows, mixed], axis=1), ((0, 0), (0, more), (0, more)))
            found[:, layout.rows + layout.states :, layout.states :] = 1.0
            return found

        draw = np.random.default_rng(seed)
        drawn = (self._drawn(draw) for _ in range(members)) if members else iter([self.probability])
        weight = self.share[..., None]
        possible = extended(self.probability, weight) > 0.0
        before = layout.rows + np.arange(layout.states)
        index = np.broadcast_to(layout.row_index, (len(self.acts), layout.states, layout.actions))
        acts = (index >= 0) & self.acts[:, layout.row_index]
        last = layout.rows + layout.states
        action_row = np.where(acts, index, last if more else before[:, None])
        if as_before:
            also = np.broadcast_to(before[:, None], (len(self.acts), layout.states, 1))
            action_row = np.concatenate([action_row, also], axis=2)
        origin = 0.0 if self.shift else self.units[1] / (layout.horizon * self.units[0])
        slots = max(len(self.reward), len(self.share))
        own, reward = (np.broadcast_to(x, (slots, layout.rows)) for x in (self.share, self.reward))
        mixed = np.add.reduceat(own * reward, layout.state_ptr[:-1], axis=1)
        pays = np.concatenate([reward - penalty * self.deviation, mixed], axis=1) + origin
        lowest = min(self.units[1] / self.units[0], 0.0)
        pays = np.pad(pays, ((0, 0), (0, more)), constant_values=lowest)
        action_row = np.pad(action_row, ((0, 0), (0, more), (0, 0)), constant_values=last)
        ended = np.zeros(layout.states + more, bool)
        ended[[*self.terminal, *range(layout.states, layout.states + more)]] = True
        arrival, initial = np.pad(self.arrival, (0, more)), np.pad(self.initial, (0, more))
        return world_tables(
            (extended(rows, weight) for rows in drawn), possible, action_row, (pays, arrival), ended,
            initial, layout.horizon,
        )  # fmt: skip

    def vector_env(
        self,
        n: int,
        *,
        members: int = 16,
        seed: int = 0,
        penalty: float = PENALTY,
        observation: str | ArrayLike = "index",
        time: bool = False,
        as_before: bool = True,
        unsupported: str = "before",
        sb3: bool = False,
    ) -> Any:
        """Return n environments that share one compiled step function.

        The sum of an episode's rewards times ``units[0]`` is its return in the user's units. Set the agent's
        discount to 1: with a smaller discount (0.99 by default in PPO), an agent prefers early outcomes.

        Parameters
        ----------
        n : int
            Number of environments, at least 1.
        members : int
            Number of MDPs that are drawn with :meth:`members`. Every episode uses one of them. If 0, all
            episodes use the expected MDP.
        seed : int
            Seed of these draws, at least 0. The seed of the episodes is an argument of ``reset``.
        penalty : float
            Every action costs this multiple of the standard deviation of its value, at least 0.
        observation : "index", "one-hot" or (S, d) readings
            Observation of each state. For prepared data, ``declaration.states.readings(S)`` has the centres
            of bins (:func:`~discreet.data.prepare_config.read_prepare_config`).
        time : bool
            If True, observations have one more entry, the elapsed share of the horizon, and the horizon
            terminates episodes. Not possible with ``observation="index"``. If False, the horizon truncates
            episodes.
        as_before : bool
            If True, there are A + 1 actions, and the last one acts as the behaviour policy.
        unsupported : "before" or "end"
            Effect of an action that does not count as an action in its state. "before": the behaviour policy
            acts. "end": the episode ends, with a return that is at most the lowest possible one (MOReL, arXiv
            2005.05951). The additional final state is S, and its readings are 0.
        sb3 : bool
            If True, return a vectorized environment of Stable-Baselines3; otherwise, one of Gymnasium.

        Returns
        -------
        VectorWorld or SB3World

        Raises
        ------
        ValueError
            If an argument is out of range.
        ImportError
            If Gymnasium, or with ``sb3`` Stable-Baselines3, is not installed.
        """
        optional("gymnasium", "gymnasium", "a Gymnasium environment")
        if sb3 := checks.flag("sb3", sb3):
            optional("stable_baselines3", "agents", "an environment of Stable-Baselines3")
        from discreet.envs.world_env import VectorWorld, observations

        table = observations(self.layout.states, observation)
        tables = self._tables(members, seed, penalty, as_before, unsupported)
        env = VectorWorld(tables, n, table, time, self.made_from)
        if not sb3:
            return env
        from discreet.envs.world_env_sb3 import SB3World

        return SB3World(env)

    def env(
        self,
        *,
        members: int = 16,
        seed: int = 0,
        penalty: float = PENALTY,
        observation: str | ArrayLike = "index",
        time: bool = False,
        as_before: bool = True,
        unsupported: str = "before",
    ) -> WorldEnv:
        """Return one Gymnasium environment; see :meth:`vector_env`.

        - members, seed, penalty : arguments of :meth:`vector_env`.
        - observation, time, as_before, unsupported : arguments of :meth:`vector_env`.

        Raises ``ValueError`` and ``ImportError`` in the same cases as :meth:`vector_env`.
        """
        optional("gymnasium", "gymnasium", "a Gymnasium environment")
        from discreet.envs.world_env import WorldEnv, observations

        table = observations(self.layout.states, observation)
        tables = self._tables(members, seed, penalty, as_before, unsupported)
        return WorldEnv(tables, table, time, self.made_from)

    def policy_table(
        self,
        act: Callable[[NDArray[Any]], ArrayLike | tuple[Any, ...]],
        observation: str | ArrayLike = "index",
        time: bool = False,
    ) -> Ints:
        """Return the policy of an agent that was trained in an environment of this model.

        Parameters
        ----------
        act : callable
            Function that maps the (S,) or (S, d) observations of all states to (S,) actions. It can also
            return a tuple that begins with the actions, like ``predict`` of Stable-Baselines3. It must be
            deterministic.
        observation, time
            Arguments with which the environment was made.

        Returns
        -------
        (H, S) integers
            Actions, with the attribute :attr:`made_from`. -1 means the behaviour policy, as in :meth:`plan`.

        Raises
        ------
        ValueError
            If ``act`` returns actions that the environment does not have.
        """
        from discreet.envs.world_env import observations

        layout = self.layout
        table = observations(layout.states, observation)
        policy = np.full((layout.horizon, layout.states), AS_BEFORE, np.int64)
        for h in range(layout.horizon):
            seen: NDArray[Any] = np.arange(layout.states) if table is None else table
            if time:
                passed = np.full((layout.states, 1), h / layout.horizon, np.float32)
                seen = np.concatenate([seen, passed], axis=1)
            found = act(seen)
            chosen = np.asarray(found[0] if isinstance(found, tuple) else found)
            if chosen.shape != (layout.states,) or chosen.dtype.kind not in "iu":
                raise ValueError(
                    f"act returns shape {chosen.shape} for observations of shape {seen.shape}: must return "
                    f"{layout.states} integers (is `observation` that of the agent's environment?)"
                )
            if not ((chosen >= 0) & (chosen <= layout.actions)).all():
                raise ValueError(f"act returns actions outside [0, {layout.actions}]")
            row = layout.row_index[np.arange(layout.states), np.minimum(chosen, layout.actions - 1)]
            own = (chosen < layout.actions) & (row >= 0) & self._slot(self.acts, h)[row]
            policy[h, own] = chosen[own]
        return PolicyArray.of(policy, self.made_from)


# --------------------------------------------------------------------------------------- reading
def _acting(rows: _RowEstimates, cells: _Cells) -> Bools:
    """Return an (R,) mask of the rows that count as actions."""
    taken = (rows.share > _TAKEN[0]) & (rows.share < _TAKEN[1])
    return np.asarray(cells.several & taken & (rows.visits > _STANDS_OUT * rows.deviation))


class _Scale(NamedTuple):
    """Units of rewards: the user's reward r of a step is (r - low) / width."""

    low: float
    width: float

    @classmethod
    def of(cls, spec: ProblemSpec) -> _Scale:
        if spec.returns is None:
            return cls(0.0, 1.0)
        return cls(spec.returns.low, spec.returns.high - spec.returns.low)

    @property
    def ended(self) -> float:
        """Reward of a step after the end of an episode; 0 in the user's units."""
        return min(max(-self.low / self.width, 0.0), 1.0)


def _from_first_visits(release: StepwiseRelease, spec: ProblemSpec, returns: bool) -> WorldModel:
    question = FirstVisits(spec, release_sizes(release)[1])
    sums, own = question.read(release), question.layout
    live = np.ones(own.states, bool)
    live[list(question.returns.terminal)] = False
    arrivals = np.arange(own.states) != question.start
    cells = _Cells(own.state_ptr, live, arrivals, sums.noise.visits, sums.noise.moves, question.episodes)
    rows = _distributions(sums.visits, sums.moves[:, :-1], cells)  # no record leads to the start state
    (least, most), ruled, scale = question.bounds, question.returns.outcomes is not None, _Scale.of(spec)
    if not ruled and spec.known_rewards is None:
        raise ValueError(
            "release: must be of counts per step, or spec must have outcomes or known rewards; returns of "
            "first visits do not determine the rewards of steps"
        )
    unit = 1.0 if ruled else (most - least) / scale.width
    by_returns = _by_returns(sums.returns, sums.noise.returns, rows, cells, unit)

    index = own.row_index[: spec.states, : spec.actions]
    first = own.state_ptr[: spec.states, None]
    pick = spec.layout.to_rows(np.where(index < 0, first, index)[None])[0]  # ended states have one row
    state = spec.layout.row_state
    ended = ~live[state]
    found, alpha, acts = rows.probability[pick], rows.alpha[pick], _acting(rows, cells)[pick] & ~ended
    share = np.where(ended, 1.0 / np.diff(spec.layout.state_ptr)[state], rows.share[pick])
    advantage, variance = by_returns.advantage[pick], by_returns.variance[pick]
    model = WorldModel(
        spec, found[None], alpha[None], np.zeros((1, spec.layout.rows)), question.arrival[:-1],
        np.zeros((1, spec.layout.rows)), acts[None], share[None], rows.of_state[-1],
        0.0 if ruled else scale.ended,
        (most - least, least) if ruled else (scale.width, spec.horizon * scale.low),
        (min(max(0.0, least), most) - least) / (most - least) if ruled else 0.0,
        release.users, release.guarantee, {},
    )  # fmt: skip
    if spec.known_rewards is not None and not ruled:
        model = replace(model, reward=spec.layout.to_rows(spec.known_rewards))
    value = model.arrival + model._behaviour_values()[1]
    mean, spread = _moments(found, value)
    of_moves = spread / (alpha + 1.0)
    if returns:
        pays = model.reward.mean(axis=0)
        usual = np.add.reduceat(share * (mean + pays), spec.layout.state_ptr[:-1])[state]
        precision = 1.0 / of_moves + 1.0 / variance
        combined = ((mean + pays - usual) / of_moves + advantage / variance) / precision
        found = _tilted(found, value, usual + combined - pays, ~ended)
        _, spread = _moments(found, value)
        of_moves = 1.0 / precision
        alpha = np.maximum(spread / of_moves - 1.0, _LEAST_ALPHA)
    deviation = np.where(ended, 0.0, np.sqrt(of_moves))
    return replace(model, probability=found[None], alpha=alpha[None], deviation=deviation[None])


def _from_steps(release: StepwiseRelease, spec: ProblemSpec) -> WorldModel:
    layout, laws, scale = spec.layout, release.laws, _Scale.of(spec)
    given = spec.returns
    pooled = spec.stationary and layout.horizon > 1
    std = {name: laws[name].std() for name in laws}
    live = np.ones(layout.states, bool)
    live[[] if given is None else list(given.terminal)] = False
    ended = ~live[layout.row_state]
    arrival = np.zeros(layout.states)
    outcomes = None if given is None or spec.known_rewards is not None else given.outcomes
    if outcomes is not None:
        arrival[list(outcomes)] = np.array(list(outcomes.values())) / scale.width
    elif spec.known_rewards is None and CENTERED_REWARDS not in laws:
        raise ValueError("release has no rewards: must have rewards, or spec.known_rewards must be given")

    one = _Cells(
        layout.state_ptr, live, live, std.get(VISITS, math.inf), std[TRANSITIONS], release_sizes(release)[1]
    )
    times = math.sqrt(layout.horizon) if pooled else 1.0
    cells = one._replace(of_visits=times * one.of_visits, of_moves=times * one.of_moves)
    begun = release.step(0)
    first = one.per_state(combined_visits(begun.visits, begun.transitions, one.of_moves, one.of_visits)[0])
    start = simplex_rows((first / max(first.sum(), 1.0))[None])[0]
    probability, alpha, share, acts, reward, of_rewards = [], [], [], [], [], []
    for sums in _slots(release, layout.horizon, pooled):
        rows = _distributions(sums.visits, sums.transitions, cells)
        paid, variance = np.full(layout.rows, scale.ended), np.zeros(layout.rows)
        if outcomes is None and spec.known_rewards is None:
            noise = times * std[CENTERED_REWARDS]
            seen = _by_returns(np.asarray(sums.rewards), noise, rows, cells, 1.0)
            prior = _weighted(seen.advantage**2 - seen.variance, seen.variance, cells.several)
            kept = np.where(np.isinf(seen.variance), 0.0, prior / (prior + seen.variance))
            paid = np.clip(0.5 + seen.mean[layout.row_state] + kept * seen.advantage, 0.0, 1.0)
            variance = np.where(cells.several, prior * (1.0 - kept), 0.0)
        probability.append(rows.probability)
        alpha.append(rows.alpha)
        share.append(np.where(ended, 1.0 / np.diff(layout.state_ptr)[layout.row_state], rows.share))
        acts.append(_acting(rows, cells) & ~ended)
        reward.append(paid)
        of_rewards.append(variance)
    paid = np.array(reward) if spec.known_rewards is None else layout.to_rows(spec.known_rewards)
    model = WorldModel(
        spec, np.array(probability), np.array(alpha), paid, arrival, np.zeros((len(alpha), layout.rows)),
        np.array(acts), np.array(share), start, scale.ended, (scale.width, layout.horizon * scale.low), 0.0,
        release.users, release.guarantee, {},
    )  # fmt: skip
    worth, deviation = model._behaviour_values(), []
    for t, (found, total) in enumerate(zip(model.probability, model.alpha, strict=True)):
        _, spread = _moments(found, arrival + worth[1 if pooled else t + 1])
        deviation.append(np.where(ended, 0.0, np.sqrt(spread / (total + 1.0) + of_rewards[t])))
    return replace(model, deviation=np.array(deviation))


def _slots(release: StepwiseRelease, horizon: int, pooled: bool) -> Iterator[StepSums]:
    """Yield the sums of each step, or the sum of all steps if they are pooled."""
    steps = (release.step(h) for h in range(horizon))
    return iter([reduce(_added, steps)]) if pooled else steps


def _added(one: StepSums, other: StepSums) -> StepSums:
    """Add the sums of two steps."""
    visits, rewards = (
        None if a is None or b is None else a + b
        for a, b in ((one.visits, other.visits), (one.rewards, other.rewards))
    )
    return StepSums(0, one.transitions + other.transitions, visits, rewards)


def _steps_of(release: StepwiseRelease, spec: ProblemSpec) -> ReturnSteps:
    return return_steps(FirstVisits(spec, release_sizes(release)[1]).read(release))


def world_model(
    release: StepwiseRelease | Release,
    spec: ProblemSpec,
    *,
    part: Part = "train",
    share: float = 0.5,
    returns: bool = True,
) -> WorldModel:
    """Estimate an MDP from one release of offline data, as in the module docstring.

    Parameters
    ----------
    release : StepwiseRelease or Release
        Release of first visits, or of counts per step. Counts per step are summed over steps if ``spec`` is
        stationary.
    spec : ProblemSpec
        Public facts about the environment.
    part : "train", "held_out" or "whole"
        Part of the release that is read (:func:`~discreet.learners.ope.release_split.split_release`). A
        policy from one part can be evaluated with the other part. If ``release`` is already a part, this is
        the name of the part.
    share : float
        Share of the users in the training part, in (0, 1).
    returns : bool
        If True, returns of first visits improve the advantages of actions.

    Returns
    -------
    WorldModel

    Raises
    ------
    ValueError
        If the release belongs to another query, if first visits do not determine the rewards of steps
        (neither ``outcomes`` nor known rewards), or if an argument is out of range.
    """
    checks.choice("part", part, ("train", "held_out", "whole"))
    check_spec(spec)
    returns = checks.flag("returns", returns)
    release = by_step(release, spec.layout)
    check_kind(release, spec)
    first = spec.stationary and release.layout == FirstVisits(spec).layout
    if isinstance(release, ReleasePart):
        if part != release.part:
            raise ValueError(f"part = {part!r}: must be {release.part!r}, which the release is")
        made_from: Mapping[str, Any] = release.made_from
        if first and returns and release.steps is None:  # or the other part cannot be used
            release = replace(release, steps=_steps_of(release.release, spec))
    elif part == "whole":
        made_from = {"release": content_hash(release), "part": part, "share": 1.0}
    else:
        steps = _steps_of(release, spec) if first and returns else None
        release = split_release(release, share, steps)[("train", "held_out").index(part)]
        made_from = release.made_from
    if first:
        model = _from_first_visits(release, spec, returns)
    elif release.layout == spec.layout:
        model = _from_steps(release, spec)
    else:
        raise ValueError("release.layout: must be spec.layout, or that of first visits, with spec.stationary")
    initial = model.initial if spec.initial is None else spec.initial
    return replace(model, initial=initial, made_from=made_from)
