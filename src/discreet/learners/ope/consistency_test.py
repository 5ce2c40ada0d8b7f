r"""Test whether a release of first visits agrees with itself.

A gain is claimed under three assumptions. The environment is the same at every step, the recorded state
contains everything that matters for the future, and the users' behaviour depends on the recorded state only.
Under these assumptions the rest of an episode after the next state does not depend on the state and action
before it. The return of an action can therefore be computed from a release of first visits in two ways: from
returns, and from one step of transitions plus the value of the next state. The two must agree. They differ
if an unrecorded cause lasts longer than one step, if a reading is taken after the action, or if behaviour
changes over time.

Two kinds of discrepancy are tested, in units of the range of returns:

    contrast  D(s, a) = [q(s, a) - v(s)] - sum_t [P(t | s, a) - P(t | s)] y_s(t)                           (1)
    level     L(s)    = v(s) - sum_t P(t | s) y_s(t)                                                       (2)

Where users belong to public groups, the start state has a level for each group g instead of one for all,

    L(g)      = q(start, g) - sum_t P(t | start, g) y_start(t).                                            (4)

A group's users begin in states drawn from P(. | start, g). If their outcome does not follow from these
states, the state omits something that the group reveals. All groups share y_start, because all users begin
at the first step.

In (1) and (2), q and v are the mean returns of first visits by action and by state. After a first visit to s,
y_s(t) is the expected return from an arrival in t:

    y_s(t) = w(t)                                              where t is terminal
    y_s(t) = w(t) + v(t) + sum_h f_h(s) V_h+1(t) / x(s) - sum_h f_h(t) V_h(t) / x(t)     elsewhere.        (3)

There w is the reward of an arrival by rule, and f_h(s) is the probability that the first visit to s is at
step h. Let x = sum_h f_h, and let V_h be the value in the chain of released transitions. The last two terms
of (3) correct for the remaining time: a first visit to t is usually not at the step after a first visit to s.
The next states' values are centred by c_s = sum_t P(t | s) y_s(t) before they are multiplied by noisy counts.
The noise of visits then does not bias (1) and (2) to first order.

Covariance. (1) and (2) are linear, to first order, in three numbers per row or state,

    a_r = g_r (dG_r - (q_r - ybar_r) dN_r - sum_t y_s(t) dM_r(t)),   b_s the same over the rows of s,
    l_t = g_t (dG_t - v_t dN_t).

Here g_r, g_s and g_t are reciprocals of counts. The discrepancies change by

    dD(s, a) = a_r - b_s - sum_t [P_r(t) - P_s(t)] l_t,   dL(s) = b_s - P_s l,
    dL(g) = a_r - P_r l   with r = (start, g).

Therefore the covariance of all discrepancies is A X A' with X the covariance of (a, b, l). *Noise*: rows have
independent noise, and X is a sum of blocks by state. *Sampling*: users of the fitted chain are simulated, and
their records are put through the same map; the result is multiplied by users and by episodes per user. This
keeps the correlation of one user's records and of the two estimates. Three terms are added. One is the
product of the noise of transitions and the error of v (second order). One is the error of the correction for
the remaining time, by refits to releases drawn from the fitted model. One is for outcomes that were not
observed.

A state whose visits do not exceed the noise has no separate v. The mean of other states replaces it, and
half of the probability that leads to such states is allowed as a bias.

The test rejects, separately for contrasts and for levels, if the largest |z| has Bonferroni p below 5e-4, or
the sum of squares has p below 1e-5 by Satterthwaite's approximation. Related tests need trajectories (Shi et
al. 2020, arXiv 2002.01751); this one needs the released sums only. It is post-processing and costs no
privacy.

Ends whose outcome is not known (``Returns.censored``) pay the middle of the range in both estimates, as in
the release. The test then checks that leaving fits the chain like any other end. It cannot be made at other
outcomes of the users who left, because returns are not released by how an episode ended.

The test cannot detect three kinds of cause. A cause that is drawn again at every step (such an environment
has the distribution of one without hidden causes). Any cause at a decision after which the episode ends,
because the two estimates are then equal. A lasting cause, if there are too few users or too much noise.
``covered`` is the share of the changed decisions whose action was compared, including those that end the
episode.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import chdtrc, ndtr

from discreet.core.noise.random_streams_kernels import ROLE_BOOTSTRAP, ROLE_SAMPLES, generator_at
from discreet.core.short_repr import brief
from discreet.learners.ope.count_estimates import reciprocal
from discreet.learners.ope.deviation_gains import first_visits
from discreet.learners.ope.first_visit_query import Told

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

__all__ = [
    "Consistency",
    "Discrepancies",
    "ProjectedModel",
    "consistency_of",
    "covered",
    "model_of",
    "testable",
]

STANDS_OUT, LEAST_USERS = 6.0, 100.0  # Noise standard deviations and users that a count must exceed.
_CLEAR = 4.0  # Norms of the noise in a state's cells above which its count enters the chain as released.
_SHARES = 0.02, 0.98  # Least and largest share of a state's users for a tested action.
_SIMULATED = 20_000, 200_000  # Least and largest number of simulated users of the fitted chain.
_RECORDS = 150  # Least number of simulated records of a tested row or state.
_SHRINK = 30.0  # Weight, in users, of a state's mean distribution towards which every row is shrunk.
_REFITS = 10
_UNSEEN = 1.5  # Unobserved users with a different outcome.
_LEAST_RANGE = 0.1  # Least range of next states' values, for those users.
_AT_ONCE = 512
_NOBODY: Ints = np.zeros(0, np.int64)
LARGEST, SQUARES = 5e-4, 1e-5  # p below which the largest and the sum of squares reject


class ProjectedModel(NamedTuple):
    """Next-state distributions in the projected counts of a release.

    Attributes
    ----------
    moves : (R, S + 1)
        Distributions of next states by row.
    usual : (S + 1, S + 1)
        Distributions by state, 0 in terminal states.
    taken : (R,)
        Projected visits.
    share : (R,)
        Share of the decisions in a state.
    terminal : (S + 1,) bool
    """

    moves: Floats
    usual: Floats
    taken: Floats
    share: Floats
    terminal: Bools


class Discrepancies(NamedTuple):
    """Discrepancies of one kind, K of them, in units of the range of returns.

    Attributes
    ----------
    where : (K,)
        Rows of the layout (contrasts) or states (levels). S + 1 + g is group g.
    value, deviation, bias : (K,)
        Discrepancies, their standard deviations, and their allowances.
    z : (K,)
        z of the part that exceeds the allowance.
    largest, squares : float
        p of the two statistics; 1 without a test.
    size : float
        Sum over states of visits per user times the discrepancy beyond the allowance and two standard
        deviations.
    """

    where: Ints
    value: Floats
    deviation: Floats
    bias: Floats
    z: Floats
    largest: float
    squares: float
    size: float

    @property
    def rejects(self) -> bool:
        """Return True if the release contradicts the assumptions."""
        return self.largest < LARGEST or self.squares < SQUARES

    @property
    def p(self) -> float:
        """Return the smaller of the two p, in units of the one that rejects at ``LARGEST``."""
        return min(1.0, self.largest, self.squares * (LARGEST / SQUARES))

    @property
    def hint(self) -> float:
        """Return the smaller of the two p, times two: p of a hint of a contradiction."""
        return min(1.0, 2.0 * min(self.largest, self.squares))

    @property
    def largest_z(self) -> float:
        """Return the largest absolute z, 0 if nothing is tested."""
        return float(np.abs(self.z).max(initial=0.0))


@dataclass(frozen=True, eq=False)
class Consistency:
    """Result of the test.

    Attributes
    ----------
    contrasts, levels : Discrepancies
        Discrepancies (1) and (2).
    rows : (R,) bool
        Rows whose contrast was tested.
    by_returns, by_transitions : (R,)
        Contrasts q - v, and by one step of transitions; NaN if not tested.
    step_deviation : (R,)
        Standard deviation of ``by_transitions``.
    model : Model
        Projected counts.
    tested : bool
        False if rewards are not paid by rule; one step of transitions then contains nothing about rewards.
    scale : float
        Range of returns, in the user's units.
    """

    __repr__ = brief

    contrasts: Discrepancies
    levels: Discrepancies
    rows: Bools
    by_returns: Floats
    by_transitions: Floats
    step_deviation: Floats
    model: ProjectedModel
    tested: bool
    scale: float

    @property
    def of_groups(self) -> Bools:
        """Return (K,) bool, the levels of groups."""
        return np.asarray(self.levels.where >= self.model.usual.shape[0])

    def covered(self, visits: Floats, rows: Ints) -> float:
        """Return the share of first visits to changed states whose asked-for row was tested.

        visits : (K,) first visits to changed states. rows : (K,) rows of the asked-for actions.
        """
        return covered(self.rows, visits, rows)


def covered(tested: Bools, visits: Floats, rows: Ints) -> float:
    """Return the share of visits (K,) whose row (K,) is among the tested ones (R,) bool."""
    whole = float(visits.sum())
    return float(visits[tested[rows]].sum()) / whole if whole > 0.0 else 0.0


def model_of(told: Told) -> ProjectedModel:
    """Return the distributions of next states in the projected counts of a release."""
    layout = told.layout
    counts = told.consistent()
    whole = told.per_state(counts)
    taken, seen = (np.maximum(table.sum(axis=1), 1e-9) for table in (counts, whole))
    terminal = np.zeros(layout.states, bool)
    terminal[list(told.question.returns.terminal)] = True
    usual = whole / seen[:, None]
    usual[terminal] = 0.0
    return ProjectedModel(counts / taken[:, None], usual, taken, taken / seen[layout.row_state], terminal)


def testable(told: Told, model: ProjectedModel) -> Bools:
    """Return (R,) the rows whose visits suffice for a contrast; none if rewards are not paid by rule."""
    if told.question.returns.outcomes is None:
        return np.zeros(told.layout.rows, bool)
    return _Test(told, model).testable


def consistency_of(told: Told) -> Consistency:
    """Test whether a release agrees with itself (module docstring).

    The simulations are seeded by the released numbers: the same release gives the same answer.
    """
    model = model_of(told)
    scale = told.question.bounds[1] - told.question.bounds[0]
    if told.question.returns.outcomes is None:
        none = np.zeros(0)
        nothing = _judged(np.zeros(0, np.int64), none, none, np.zeros((0, 0)), none)
        untold = np.full(told.layout.rows, np.nan)
        return Consistency(
            nothing, nothing, np.zeros(told.layout.rows, bool), untold, untold, untold, model, False, scale
        )
    return _Test(told, model).run()


def _judged(where: Ints, value: Floats, bias: Floats, covariance: Floats, weight: Floats) -> Discrepancies:
    """Return both statistics of some discrepancies, with their (K, K) covariance; weight : (K,) for the
    size.
    """
    sd = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    z = np.sign(value) * np.maximum(np.abs(value) - bias, 0.0) / sd
    excess = weight * np.maximum(np.abs(value) - bias - 2.0 * sd, 0.0)
    if not where.size:
        return Discrepancies(where, value, sd, bias, z, 1.0, 1.0, 0.0)
    largest = min(1.0, 2.0 * where.size * float(ndtr(-np.abs(z).max())))
    correlation = covariance / np.outer(sd, sd)
    trace, squared = float(np.trace(correlation)), float(np.square(correlation).sum())
    squares = float(chdtrc(trace * trace / squared, float(z @ z) * trace / squared))
    return Discrepancies(where, value, sd, bias, z, largest, squares, float(excess.sum()))


class _ReconciledCounts(NamedTuple):
    """Reconciled counts: visits (R,) are row sums of transitions (R, S + 1)."""

    visits: Floats
    moves: Floats


class _Test:
    def __init__(self, told: Told, model: ProjectedModel) -> None:
        self.told, self.model, layout = told, model, told.layout
        self.row_state, self.cells = layout.row_state, np.diff(layout.state_ptr).astype(np.float64)
        noise, states = told.noise, layout.states
        both = noise.visits**2 + states * noise.moves**2
        self.of_visits = noise.visits**2 / both if both else 0.0  # weights of the gap in the least squares
        self.of_moves = noise.moves**2 / both if both else 0.0
        self.sigma = math.sqrt(states) * noise.visits * noise.moves / math.sqrt(both) if both else 0.0
        content = hashlib.sha256(np.ascontiguousarray(told.moves, "<f8").tobytes())
        self.key = np.frombuffer(content.digest()[:16], "<u8").astype(np.uint64)
        self.counts = self._reconciled(told.moves, told.visits)
        self.visits, self.live = told.per_state(self.counts.visits), ~model.terminal
        # states and rows whose visits exceed the noise, and the rows among them with a choice
        self.sigmas = self.sigma * np.sqrt(self.cells)
        self.known = self.visits > np.maximum(STANDS_OUT * self.sigmas, LEAST_USERS)
        own = (self.known & self.live)[self.row_state]
        self.clear = (self.counts.visits > max(STANDS_OUT * self.sigma, LEAST_USERS)) & own
        share = (
            np.where(self.clear, self.counts.visits, 0.0)
            / np.where(self.known, self.visits, 1.0)[self.row_state]
        )
        chosen = told.decided & (share > _SHARES[0]) & (share < _SHARES[1])
        self.testable: Bools = self.clear & chosen
        # groups, whose levels replace that of the start state
        begins = told.begins if told.question.groups > 1 else _NOBODY
        self.groups: Ints = begins[self.clear[begins]]
        self.levels: Bools = self.known & self.live
        if told.question.groups > 1:
            self.levels[told.question.start] = False

    def run(self) -> Consistency:
        told, model, state, counts = self.told, self.model, self.row_state, self.counts
        arrivals, returns = told.per_state(counts.moves), told.per_state(told.returns)
        known, own = self.known, self.known & self.live
        g_row = np.where(self.clear, reciprocal(np.where(self.clear, counts.visits, 1.0), self.sigma), 0.0)
        g_state = np.where(known, reciprocal(np.where(known, self.visits, 1.0), self.sigmas), 0.0)
        q, v = told.returns * g_row, returns * g_state  # both minus a half
        worth, later = self._worth(v)
        centre = (model.usual * worth).sum(axis=1)
        centred = worth - centre[:, None]
        step_state = (arrivals * centred).sum(axis=1) * g_state
        step_row = (counts.moves * centred[state]).sum(axis=1) * g_row
        used, levels, groups = np.flatnonzero(self.testable), np.flatnonzero(self.levels), self.groups
        people, records = self._simulated(np.concatenate([used, groups]))
        often = np.bincount(records.row, minlength=told.layout.rows)
        used = used[often[used] >= _RECORDS]
        levels = levels[told.per_state(often.astype(np.float64))[levels] >= _RECORDS]
        groups = groups[often[groups] >= _RECORDS]

        slopes = _Slopes(
            g_row, g_state, q - step_row, v - step_state, np.where(own, g_state, 0.0), v, centred
        )
        away = model.moves[used] - model.usual[state[used]]  # of contrasts; then of levels
        onward = np.concatenate([away, model.usual[levels], model.moves[groups]])
        each = self._sampling(slopes, people, records)
        both = self._noise(slopes) + told.episodes * told.question.episodes * each
        covariance = self._covariance(used, levels, onward, both, groups)
        covariance += self._second_order(slopes, used, levels, worth, later, onward, groups)
        bias = 0.5 * np.abs(onward[:, ~known & self.live]).sum(axis=1)
        reached = np.maximum(self.visits, 0.0) / told.episodes
        contrast = q - v[state] - step_row + step_state[state]
        level = v + 0.5 - self._base() - centre - step_state
        own_level = q + 0.5 - self._base() - centre[state] - step_row
        group = told.layout.states + told.layout.row_action[groups]
        split = slice(None, used.size), slice(used.size, None)
        contrasts, tops = (
            _judged(where, value, bias[part], covariance[part, part], weight)
            for where, value, part, weight in (
                (used, contrast[used], split[0], reached[state[used]]),
                (
                    np.concatenate([levels, group]),
                    np.concatenate([level[levels], own_level[groups]]),
                    split[1],
                    np.concatenate([reached[levels], np.maximum(counts.visits[groups], 0.0) / told.episodes]),
                ),
            )
        )
        tested = np.zeros(state.size, bool)
        tested[used] = True
        spread = told.question.episodes * (
            np.maximum(counts.moves, 0.0) * (centred[state] - step_row[:, None]) ** 2
        ).sum(axis=1)
        spread += told.noise.moves**2 * np.square(centred[state]).sum(axis=1)
        deviation = g_row * np.sqrt(spread)
        least, most = told.question.bounds
        return Consistency(
            contrasts=self._by_state(contrasts, reached),
            levels=tops,
            rows=tested,
            by_returns=np.where(tested, q - v[state], np.nan),
            by_transitions=np.where(tested, step_row - step_state[state], np.nan),
            step_deviation=np.where(tested, deviation, np.nan),
            model=model,
            tested=True,
            scale=most - least,
        )

    def _by_state(self, found: Discrepancies, reached: Floats) -> Discrepancies:
        """Take the largest excess of a state's actions for the size, rather than their sum."""
        excess = np.maximum(np.abs(found.value) - found.bias - 2.0 * found.deviation, 0.0)
        largest = np.zeros(reached.size)
        np.maximum.at(largest, self.row_state[found.where], excess)
        return found._replace(size=float(largest @ reached))

    def _base(self) -> float:
        """Return a return of 0, as a share of the range of returns."""
        least, most = self.told.question.bounds
        return (min(max(0.0, least), most) - least) / (most - least)

    def _reconciled(self, moves: Floats, visits: Floats) -> _ReconciledCounts:
        gap = moves.sum(axis=1) - visits
        return _ReconciledCounts(visits + gap * self.of_visits, moves - (gap * self.of_moves)[:, None])

    # -------------------------------------------------------------------------- worth of next states
    def _worth(self, v: Floats) -> tuple[Floats, list[Floats]]:
        """Return (S + 1, S + 1) of (3), and how its time correction errs in each refit."""
        told, model, counts = self.told, self.model, self.counts
        own = self.known & self.live
        weight = np.where(own, self.visits, 0.0)
        mean = float(weight @ v) / max(float(weight.sum()), 1.0)
        level = np.where(own, v, mean) + 0.5 - self._base()
        later = self._later(counts, model.usual)
        draw = generator_at(self.key, ROLE_BOOTSTRAP, 2**34)
        whole = told.consistent()
        errors = []
        for _ in range(_REFITS):
            moves, seen = told.sampled(whole, draw)
            again = told.per_state(told.consistent(moves, seen))
            usual = again / np.maximum(again.sum(axis=1, keepdims=True), 1e-9)
            usual[model.terminal] = 0.0
            off = np.clip(self._later(self._reconciled(moves, seen), usual) - later, -1.0, 1.0)
            errors.append(np.where(model.terminal, 0.0, off))
        arrival = told.question.arrival
        return np.where(model.terminal, arrival, arrival + level + later), errors

    def _later(self, counts: _ReconciledCounts, projected: Floats) -> Floats:
        """Return (S + 1, S + 1) corrections for the remaining time, of (3), in the chain of these counts.

        States whose counts exceed the noise enter as released; the others enter projected.
        """
        told, steps = self.told, self.told.layout.horizon
        noise, states = told.noise, told.layout.states
        visits, arrivals = told.per_state(counts.visits), told.per_state(counts.moves)
        root = np.sqrt(self.cells)
        clear = visits > np.maximum(STANDS_OUT * self.sigma * root, LEAST_USERS)
        clear &= (visits > _CLEAR * noise.moves * math.sqrt(states) * root) & ~self.model.terminal
        seen = np.maximum(arrivals.sum(axis=1, keepdims=True), 1.0)
        chain = np.where(clear[:, None], arrivals / seen, projected)
        value = np.zeros((steps + 1, states))
        for h in range(steps - 1, -1, -1):
            value[h] = chain @ (told.question.arrival + value[h + 1])
        begin = np.eye(states)[told.question.start]
        # noise can make chances negative; a state's weights must stay those of a mean over steps
        first = np.maximum(first_visits(chain, begin, np.arange(states), steps), 0.0)
        weight = first / np.maximum(first.sum(axis=0), 1e-300)
        return np.asarray(weight.T @ value[1:] - (weight * value[:-1]).sum(axis=0))

    # -------------------------------------------------------------------------- covariance
    def _noise(self, slopes: _Slopes) -> sparse.csr_array:
        """Return the covariance of (a, b, l) that noise makes: blocks by state.

        Per row, independent of other rows: dG, and after reconciliation dN and y dM, with the covariance of
        the least squares.
        """
        told, state, states = self.told, self.row_state, self.told.layout.states
        rows = state.size
        of_n, of_m = self.of_visits, self.of_moves
        var_n, var_m, var_g = (x * x for x in told.noise)
        y = slopes.centred[state]
        whole, square = y.sum(axis=1), np.square(y).sum(axis=1)
        n_n = np.full(rows, (1.0 - of_n) ** 2 * var_n + of_n**2 * states * var_m)
        m_m = var_m * (square + whole**2 * (states * of_m**2 - 2.0 * of_m)) + (of_m * whole) ** 2 * var_n
        n_m = (1.0 - of_n) * of_m * whole * var_n + of_n * var_m * whole * (1.0 - of_m * states)
        # loadings of (a_r, b_s, l_s) on (dG_r, dN_r, y dM_r)
        loads = np.zeros((rows, 3, 3))
        loads[:, 0] = slopes.g_row[:, None] * np.stack([np.ones(rows), -slopes.row, -np.ones(rows)], axis=1)
        of_state = np.stack([np.ones(states), -slopes.state, -np.ones(states)], axis=1)
        loads[:, 1] = (slopes.g_state[:, None] * of_state)[state]
        loads[:, 2, 0], loads[:, 2, 1] = slopes.g_level[state], -(slopes.g_level * slopes.level)[state]
        law = np.zeros((rows, 3, 3))
        law[:, 0, 0], law[:, 1, 1], law[:, 2, 2] = var_g, n_n, m_m
        law[:, 1, 2] = law[:, 2, 1] = n_m
        block = loads @ law @ loads.transpose(0, 2, 1)
        at = np.stack([np.arange(rows), rows + state, rows + states + state], axis=1)
        i, j = np.repeat(at[:, :, None], 3, axis=2), np.repeat(at[:, None, :], 3, axis=1)
        size = rows + 2 * states
        return sparse.csr_array((block.ravel(), (i.ravel(), j.ravel())), shape=(size, size))

    def _sampling(self, slopes: _Slopes, people: int, records: _Records) -> Floats:
        """Return the covariance of one user's (a, b, l), by simulated users."""
        state, states, rows = self.row_state, self.told.layout.states, self.row_state.size
        user, row, following, left = records
        own = state[row]
        g, y = left - 0.5, slopes.centred[own, following]
        a = slopes.g_row[row] * (g - slopes.row[row] - y)
        b = slopes.g_state[own] * (g - slopes.state[own] - y)
        level = slopes.g_level[own] * (g - slopes.level[own])
        at = np.concatenate([row, rows + own, rows + states + own])
        table = sparse.csr_array(
            (np.concatenate([a, b, level]), (np.tile(user, 3), at)), shape=(people, rows + 2 * states)
        )
        mean = np.asarray(table.sum(axis=0)).ravel() / people
        return np.asarray((table.T @ table).toarray() / people - np.outer(mean, mean))

    def _covariance(
        self, used: Ints, levels: Ints, onward: Floats, spread: Floats, groups: Ints = _NOBODY
    ) -> Floats:
        """Return A X A' of the module docstring, in blocks of discrepancies."""
        rows, states = self.row_state.size, self.told.layout.states
        many, last = len(onward), used.size + levels.size

        def through(table: Floats) -> Floats:
            """A times a (rows + 2 states, n) table."""
            a, b, level = table[:rows], table[rows : rows + states], table[rows + states :]
            found = -onward @ level
            found[: used.size] += a[used] - b[self.row_state[used]]
            found[used.size : last] += b[levels]
            found[last:] += a[groups]
            return np.asarray(found)

        found = np.zeros((many, many))
        half = through(np.asarray(spread))  # (K, rows + 2 states)
        for start in range(0, many, _AT_ONCE):
            found[start : start + _AT_ONCE] = through(half[start : start + _AT_ONCE].T).T
        return 0.5 * (found + found.T)

    def _second_order(
        self, slopes: _Slopes, used: Ints, levels: Ints, worth: Floats, later: list[Floats], onward: Floats,
        groups: Ints,
    ) -> Floats:  # fmt: skip
        """Return what is added to the covariance: products of errors, the time correction, outcomes not
        met.
        """
        told, state = self.told, self.row_state
        of_level = slopes.g_level > 0.0
        squared = (told.noise.returns * slopes.g_level) ** 2 * self.cells + 0.25 * slopes.g_level
        missed = told.noise.moves**2 * float(squared[of_level].sum())
        g = np.concatenate([slopes.g_row[used], slopes.g_state[levels], slopes.g_row[groups]])
        cells = np.concatenate([np.ones(used.size), self.cells[levels], np.ones(groups.size)])
        owner = np.concatenate([state[used], levels, state[groups]])
        ranges = np.maximum(np.ptp(worth, axis=1), _LEAST_RANGE)[owner]
        found = np.diag(missed * cells * g**2 + (_UNSEEN * told.question.episodes * ranges * g) ** 2)
        off = np.stack([(onward * error[owner]).sum(axis=1) for error in later])
        return found + off.T @ off / len(later)

    # -------------------------------------------------------------------------- simulated users
    def _simulated(self, used: Ints) -> tuple[int, _Records]:
        """Simulate as many users as give the rarest tested row its records, within bounds."""
        told, layout, model = self.told, self.told.layout, self.model
        states, ends = layout.states, model.terminal
        rarest = np.quantile(self.counts.visits[used], 0.02) if used.size else told.episodes
        least, most = _SIMULATED
        people = int(np.clip(2.0 * _RECORDS * told.episodes / max(rarest, 1.0), least, most))
        pulled = model.moves * model.taken[:, None] + _SHRINK * model.usual[self.row_state]
        laws = np.where(ends[self.row_state][:, None], model.moves, pulled)
        whole = laws.sum(axis=1, keepdims=True)
        stay = np.eye(states)[self.row_state]
        onward = _cumulative(np.where(whole > 1e-9, laws / np.maximum(whole, 1e-9), stay))
        choice = _cumulative(_by_state_table(told, model.share))
        outcome = np.zeros(states)
        for s, reward in (told.question.returns.outcomes or {}).items():
            outcome[s] = reward
        draw = generator_at(self.key, ROLE_SAMPLES, 2**34)
        at, seen = np.full(people, told.question.start), np.zeros((people, states), bool)
        every = np.arange(people)
        paid = np.zeros((people, layout.horizon))
        found = []
        for h in range(layout.horizon):
            row = layout.state_ptr[at] + _drawn(choice, at, draw.random(people))
            following = np.where(ends[at], at, _drawn(onward, row, draw.random(people)))
            paid[:, h] = np.where(ends[at], 0.0, outcome[following])
            new = np.flatnonzero(~seen[every, at])
            seen[new, at[new]] = True
            found.append((new, row[new], following[new], np.full(new.size, h)))
            at = following
        low, high = told.question.bounds
        left = np.clip((np.cumsum(paid[:, ::-1], axis=1)[:, ::-1] - low) / (high - low), 0.0, 1.0)
        user, row, following, step = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return people, _Records(user, row, following, left[user, step])


class _Records(NamedTuple):
    """First visits of simulated users: user, row, next state, and return of the rest in [0, 1]."""

    user: Ints
    row: Ints
    following: Ints
    left: Floats


class _Slopes(NamedTuple):
    """Coefficients of (a, b, l) of the module docstring.

    Attributes
    ----------
    g_row, g_state, g_level : (R,), (S + 1,) and (S + 1,)
        Reciprocals of counts, 0 if not used.
    row : (R,)
        q - ybar.
    state : (S + 1,)
        v - ybar.
    level : (S + 1,)
        v.
    centred : (S + 1, S + 1)
        Values of next states, minus their mean.
    """

    g_row: Floats
    g_state: Floats
    row: Floats
    state: Floats
    g_level: Floats
    level: Floats
    centred: Floats


def _by_state_table(told: Told, share: Floats) -> Floats:
    """Return (S + 1, A) probabilities of a state's rows in their order; uniform where nothing was counted."""
    sizes = np.diff(told.layout.state_ptr)
    table = np.zeros((sizes.size, int(sizes.max())))
    for s, (begin, size) in enumerate(zip(told.layout.state_ptr[:-1], sizes, strict=True)):
        own = np.maximum(share[begin : begin + size], 0.0)
        table[s, :size] = own / own.sum() if own.sum() > 0.0 else 1.0 / size
    return table


def _cumulative(table: Floats) -> Floats:
    """Return cumulative sums of rows, row i shifted by i, so that one sorted array serves all draws."""
    sums = np.cumsum(np.maximum(table, 0.0), axis=1)
    sums /= sums[:, -1:]
    return np.asarray(sums + np.arange(len(table))[:, None])


def _drawn(cumulative: Floats, row: Ints, uniform: Floats) -> Ints:
    """Draw an index from each of these rows."""
    width = cumulative.shape[1]
    found = np.searchsorted(cumulative.ravel(), row + uniform, side="right") - row * width
    # impossible entries at the end repeat the last sum: keep to the last possible one
    possible = np.diff(cumulative, axis=1, prepend=np.arange(len(cumulative))[:, None]) > 0.0
    last = width - 1 - possible[:, ::-1].argmax(axis=1)
    return np.minimum(found, last[row])
