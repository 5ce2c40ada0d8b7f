r"""Test whether the returns and the transitions in a release of first visits agree.

A gain is claimed under three assumptions. The environment is the same at every step. The recorded state
contains everything that affects the future of the episode. The behaviour of users depends only on the
recorded state. Under these assumptions, the part of an episode after the next state does not depend on the
earlier state and action. The return of an action can therefore be computed from a release of first visits in
two ways: from returns, or from one step of transitions plus the value of the next state. The two results must
agree. The results differ in three cases: an unobserved confounder lasts longer than one step, a variable of
the state is recorded after the action, or behaviour changes over time.

Two kinds of discrepancy are tested, in units of the range of returns:

    contrast  D(s, a) = [q(s, a) - v(s)] - sum_t [P(t | s, a) - P(t | s)] y_s(t)                           (1)
    level     L(s)    = v(s) - sum_t P(t | s) y_s(t)                                                       (2)

With public groups of users, the start state has one level for each group g instead of one for all users:

    L(g)      = q(start, g) - sum_t P(t | start, g) y_start(t).                                            (4)

The first states of the users in group g are drawn from P(. | start, g). If these states cannot explain the
outcome of the group, the recorded state omits a variable that differs between groups. All groups have the
same y_start, because all users begin at the first step.

In (1) and (2), q and v are the mean returns of first visits by action and by state. After a first visit to s,
y_s(t) is the expected return that begins with the arrival in t:

    y_s(t) = w(t)                                              where t is terminal
    y_s(t) = w(t) + v(t) + sum_h f_h(s) V_h+1(t) / x(s) - sum_h f_h(t) V_h(t) / x(t)     elsewhere.        (3)

Here w is the reward on arrival according to the rule for returns. The probability that the first visit to s
is at step h is f_h(s), and x is the sum of f_h over h. V_h is the value in the Markov chain of the released
transitions. The last two terms of (3) correct for the number of remaining steps. The correction is needed
because a first visit to t is usually not at the step after a first visit to s. The values of next states are
centred by c_s = sum_t P(t | s) y_s(t) before they are multiplied by noisy counts. To first order, the noise
of visits then does not bias (1) and (2).

**Covariance.** Let dG, dN and dM be the errors of returns, visits and transitions. To first order, (1) and
(2) are linear in one number a_r for each row r, and two numbers b_s and l_s for each state s:

    a_r = g_r (dG_r - (q_r - ybar_r) dN_r - sum_t y_s(t) dM_r(t)),   b_s the same for the sums over the rows
    of s, l_t = g_t (dG_t - v_t dN_t).

Here g_r, g_s and g_t are reciprocals of counts. The errors of the discrepancies are

    dD(s, a) = a_r - b_s - sum_t [P_r(t) - P_s(t)] l_t,   dL(s) = b_s - P_s l,
    dL(g) = a_r - P_r l   with r = (start, g).

Therefore the covariance of all discrepancies is A X A', where A is the matrix of this linear map and X is the
covariance of (a, b, l). X has two parts. *Noise*: different rows have independent noise, so this part is a
sum of one block per state. *Sampling*: users of the fitted chain are simulated, and (a, b, l) is computed
from their records. The covariance for one user is multiplied by the number of users and by the episodes per
user. This covariance includes the correlation between the records of one user, and between the two estimates
of a return.

Three terms are added to A X A'. The first is of second order: the product of the noise of transitions and the
error of v. The second is the error of the correction for the number of remaining steps. It is measured by
fitting the chain again to releases drawn from the fitted model. The third is for outcomes that no observed
user had.

If the visits of a state do not exceed the noise, the mean v of all other states is used as its v. Half of the
probability of moving to such states is allowed as a bias.

The test is applied separately to contrasts and to levels. It rejects if the largest |z| has Bonferroni p
below 5e-4, or if the sum of squares has p below 1e-5 by Satterthwaite's approximation. Related tests need
trajectories (Shi et al. 2020, arXiv 2002.01751); this test needs only the released sums. The test is
post-processing and costs no privacy budget.

**Censored ends.** An episode with unknown outcome (``ReturnBounds.censored``) has the middle of the range as
its return in the release, and in both estimates. The test then checks censored ends in the same way as all
other ends. The test cannot be repeated with other outcomes for these episodes, because the release does not
separate returns by the kind of end.

The test cannot detect three kinds of unobserved confounders. The first is a confounder that is drawn again at
every step: the data then have the same distribution as in an environment without unobserved confounders. The
second is any confounder of a decision that ends the episode, because the two estimates are then equal. The
third is a lasting confounder if there are too few users or too much noise. ``covered`` is the share of the
changed decisions whose new action was tested. This share includes decisions that end the episode.
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

from discreet.core.releases import Floats, Ints
from discreet.core.short_repr import brief
from discreet.learners.ope.count_estimates import reciprocal
from discreet.learners.ope.deviation_gains import first_visits
from discreet.learners.ope.first_visit_query import VisitSums
from discreet.utils.random_streams_kernels import ROLE_BOOTSTRAP, ROLE_SAMPLES, generator_at

Bools = NDArray[np.bool_]

STANDS_OUT, LEAST_USERS = 6.0, 100.0  # A count is used above this many std of its noise and this many users.
_CLEAR = 4.0  # A state's counts are not projected above this many norms of the noise in its cells.
_SHARES = 0.02, 0.98  # An action is tested if its share of the decisions in the state is in this range.
_SIMULATED = 20_000, 200_000  # Smallest and largest number of simulated users of the fitted chain.
_RECORDS = 150  # A row or state is tested only if the simulation has this many records of it.
_SHRINK = 30.0  # Each row is shrunk towards the mean distribution of its state, with this weight in users.
_REFITS = 10
_UNSEEN = 1.5  # Number of hypothetical unobserved users with a different outcome.
_LEAST_RANGE = 0.1  # Smallest assumed range of the values of next states for these users.
_AT_ONCE = 512
_NOBODY: Ints = np.zeros(0, np.int64)
LARGEST, SQUARES = 5e-4, 1e-5  # The test rejects if p of the largest |z|, or of the sum of squares, is lower.


class ProjectedModel(NamedTuple):
    """Next-state distributions, estimated from the projected counts of a release.

    Attributes
    ----------
    moves : (R, S + 1)
        Distribution of next states for each row.
    usual : (S + 1, S + 1)
        Distribution of next states for each state under the behaviour policy; 0 for terminal states.
    taken : (R,)
        Projected number of visits.
    share : (R,)
        Share of the decisions in the row's state that take the row's action.
    terminal : (S + 1,) bool
        Mask of the terminal states.
    """

    moves: Floats
    usual: Floats
    taken: Floats
    share: Floats
    terminal: Bools


class Discrepancies(NamedTuple):
    """K discrepancies of one kind (contrasts or levels), in units of the range of returns.

    Attributes
    ----------
    where : (K,)
        Positions of the discrepancies. For contrasts, they are rows of the layout. For levels, they are
        states, where S + 1 + g means group g.
    value, deviation, bias : (K,)
        Discrepancies, their standard deviations, and the allowed biases.
    z : (K,)
        z-scores of the parts of the discrepancies that exceed the allowed bias.
    largest, squares : float
        p-values of the two statistics, the largest |z| and the sum of squares. Both p-values are 1 if nothing
        was tested.
    size : float
        Sum over states of the visits per episode times the excess of the discrepancy. The excess is the part
        beyond the allowed bias and two standard deviations.
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
        """Return the smaller of the two p-values. The test rejects if the result is below ``LARGEST``.

        ``squares`` is multiplied by a constant, so that both p-values have the same threshold.
        """
        return min(1.0, self.largest, self.squares * (LARGEST / SQUARES))

    @property
    def hint(self) -> float:
        """Return twice the smaller of the two p-values. A small result is a hint of a contradiction."""
        return min(1.0, 2.0 * min(self.largest, self.squares))

    @property
    def largest_z(self) -> float:
        """Return the largest absolute value of z; 0 if nothing was tested."""
        return float(np.abs(self.z).max(initial=0.0))


@dataclass(frozen=True, eq=False)
class Consistency:
    """Result of the consistency test.

    Attributes
    ----------
    contrasts, levels : Discrepancies
        Discrepancies (1) and (2).
    rows : (R,) bool
        True for rows whose contrast was tested.
    by_returns, by_transitions : (R,)
        The two terms of each contrast (1): q - v from returns, and the sum over next states from transitions.
        NaN for rows that were not tested.
    step_deviation : (R,)
        Standard deviation of ``by_transitions``.
    model : ProjectedModel
        Next-state distributions, estimated from the projected counts.
    tested : bool
        False if no rule determines the rewards. Transitions then contain no information about rewards, and
        nothing is tested.
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
        """Return a (K,) mask of the levels that belong to groups instead of states."""
        return np.asarray(self.levels.where >= self.model.usual.shape[0])

    def covered(self, visits: Floats, rows: Ints) -> float:
        """Return the share of first visits to changed states for which the row of the new action was tested.

        visits : (K,) first visits to the changed states. rows : (K,) rows of their new actions.
        """
        return covered(self.rows, visits, rows)


def covered(tested: Bools, visits: Floats, rows: Ints) -> float:
    """Return the share of ``visits`` (K,) for which the row in ``rows`` (K,) was tested.

    tested : (R,) mask of the tested rows.
    """
    whole = float(visits.sum())
    return float(visits[tested[rows]].sum()) / whole if whole > 0.0 else 0.0


def model_of(sums: VisitSums) -> ProjectedModel:
    """Return the next-state distributions estimated from the projected counts of a release."""
    layout = sums.layout
    counts = sums.consistent()
    whole = sums.per_state(counts)
    taken, seen = (np.maximum(table.sum(axis=1), 1e-9) for table in (counts, whole))
    terminal = np.zeros(layout.states, bool)
    terminal[list(sums.question.returns.terminal)] = True
    usual = whole / seen[:, None]
    usual[terminal] = 0.0
    return ProjectedModel(counts / taken[:, None], usual, taken, taken / seen[layout.row_state], terminal)


def testable(sums: VisitSums, model: ProjectedModel) -> Bools:
    """Return an (R,) mask of the rows that have enough visits for a test of their contrasts.

    If no rule determines the rewards, all entries are False.
    """
    if sums.question.returns.outcomes is None:
        return np.zeros(sums.layout.rows, bool)
    return _Test(sums, model).testable


def consistency_of(sums: VisitSums) -> Consistency:
    """Test whether the returns and the transitions in a release agree. See the module for the method.

    The released numbers seed the simulations, so the same release always gives the same result.
    """
    model = model_of(sums)
    scale = sums.question.bounds[1] - sums.question.bounds[0]
    if sums.question.returns.outcomes is None:
        none = np.zeros(0)
        nothing = _judged(np.zeros(0, np.int64), none, none, np.zeros((0, 0)), none)
        unknown = np.full(sums.layout.rows, np.nan)
        return Consistency(
            nothing, nothing, np.zeros(sums.layout.rows, bool), unknown, unknown, unknown, model, False, scale
        )
    return _Test(sums, model).run()


def _judged(where: Ints, value: Floats, bias: Floats, covariance: Floats, weight: Floats) -> Discrepancies:
    """Return K discrepancies with the p-values of both test statistics.

    - where, value, bias : (K,) fields of :class:`Discrepancies`.
    - covariance : (K, K) covariance of the discrepancies.
    - weight : (K,) weights of the discrepancies in ``size``.
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
    """Counts after least squares, where visits (R,) equal the row sums of transitions (R, S + 1)."""

    visits: Floats
    moves: Floats


class _Test:
    def __init__(self, sums: VisitSums, model: ProjectedModel) -> None:
        self.sums, self.model, layout = sums, model, sums.layout
        self.row_state, self.cells = layout.row_state, np.diff(layout.state_ptr).astype(np.float64)
        noise, states = sums.noise, layout.states
        both = noise.visits**2 + states * noise.moves**2
        # shares of the difference (row sum of transitions - visits) with which visits and transitions are
        # corrected
        self.of_visits = noise.visits**2 / both if both else 0.0
        self.of_moves = noise.moves**2 / both if both else 0.0
        self.sigma = math.sqrt(states) * noise.visits * noise.moves / math.sqrt(both) if both else 0.0
        content = hashlib.sha256(np.ascontiguousarray(sums.moves, "<f8").tobytes())
        self.key = np.frombuffer(content.digest()[:16], "<u8").astype(np.uint64)
        self.counts = self._reconciled(sums.moves, sums.visits)
        self.visits, self.live = sums.per_state(self.counts.visits), ~model.terminal
        # states (known) and rows (clear) whose visits exceed the noise, and the rows that can be tested
        self.sigmas = self.sigma * np.sqrt(self.cells)
        self.known = self.visits > np.maximum(STANDS_OUT * self.sigmas, LEAST_USERS)
        own = (self.known & self.live)[self.row_state]
        self.clear = (self.counts.visits > max(STANDS_OUT * self.sigma, LEAST_USERS)) & own
        share = (
            np.where(self.clear, self.counts.visits, 0.0)
            / np.where(self.known, self.visits, 1.0)[self.row_state]
        )
        chosen = sums.decided & (share > _SHARES[0]) & (share < _SHARES[1])
        self.testable: Bools = self.clear & chosen
        # rows of groups, whose levels replace the level of the start state
        begins = sums.begins if sums.question.groups > 1 else _NOBODY
        self.groups: Ints = begins[self.clear[begins]]
        self.levels: Bools = self.known & self.live
        if sums.question.groups > 1:
            self.levels[sums.question.start] = False

    def run(self) -> Consistency:
        sums, model, state, counts = self.sums, self.model, self.row_state, self.counts
        arrivals, returns = sums.per_state(counts.moves), sums.per_state(sums.returns)
        known, own = self.known, self.known & self.live
        g_row = np.where(self.clear, reciprocal(np.where(self.clear, counts.visits, 1.0), self.sigma), 0.0)
        g_state = np.where(known, reciprocal(np.where(known, self.visits, 1.0), self.sigmas), 0.0)
        q, v = sums.returns * g_row, returns * g_state  # these are q - 1/2 and v - 1/2
        worth, later = self._worth(v)
        centre = (model.usual * worth).sum(axis=1)
        centred = worth - centre[:, None]
        step_state = (arrivals * centred).sum(axis=1) * g_state
        step_row = (counts.moves * centred[state]).sum(axis=1) * g_row
        used, levels, groups = np.flatnonzero(self.testable), np.flatnonzero(self.levels), self.groups
        people, records = self._simulated(np.concatenate([used, groups]))
        used, levels, groups = self._recorded(records.row, used, levels, groups)

        slopes = _Slopes(
            g_row, g_state, q - step_row, v - step_state, np.where(own, g_state, 0.0), v, centred
        )
        away = model.moves[used] - model.usual[state[used]]  # the rows of `onward` that belong to contrasts
        onward = np.concatenate([away, model.usual[levels], model.moves[groups]])
        each = self._sampling(slopes, people, records)
        both = self._noise(slopes) + sums.episodes * sums.question.episodes * each
        covariance = self._covariance(used, levels, onward, both, groups)
        covariance += self._second_order(slopes, used, levels, worth, later, onward, groups)
        bias = 0.5 * np.abs(onward[:, ~known & self.live]).sum(axis=1)
        reached = np.maximum(self.visits, 0.0) / sums.episodes
        contrast = q - v[state] - step_row + step_state[state]
        level = v + 0.5 - self._base() - centre - step_state
        own_level = q + 0.5 - self._base() - centre[state] - step_row
        group = sums.layout.states + sums.layout.row_action[groups]
        split = slice(None, used.size), slice(used.size, None)
        contrasts, tops = (
            _judged(where, value, bias[part], covariance[part, part], weight)
            for where, value, part, weight in (
                (used, contrast[used], split[0], reached[state[used]]),
                (
                    np.concatenate([levels, group]),
                    np.concatenate([level[levels], own_level[groups]]),
                    split[1],
                    np.concatenate([reached[levels], np.maximum(counts.visits[groups], 0.0) / sums.episodes]),
                ),
            )
        )
        tested = np.zeros(state.size, bool)
        tested[used] = True
        deviation = g_row * self._spread(centred, step_row)
        least, most = sums.question.bounds
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

    def _recorded(self, rows: Ints, used: Ints, levels: Ints, groups: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the rows, states and groups that have enough records in the simulation.

        rows : row of each simulated record. used, levels, groups : candidates.
        """
        often = np.bincount(rows, minlength=self.sums.layout.rows)
        of_state = self.sums.per_state(often.astype(np.float64))
        return (
            used[often[used] >= _RECORDS],
            levels[of_state[levels] >= _RECORDS],
            groups[often[groups] >= _RECORDS],
        )

    def _spread(self, centred: Floats, step_row: Floats) -> Floats:
        """Return the (R,) standard deviations of the sums of M_r(t) y(t) over next states t.

        centred : (S + 1, S + 1) centred values y of next states. step_row : (R,) means of these values.
        """
        sums, values = self.sums, centred[self.row_state]
        spread = sums.question.episodes * (
            np.maximum(self.counts.moves, 0.0) * (values - step_row[:, None]) ** 2
        ).sum(axis=1)
        spread += sums.noise.moves**2 * np.square(values).sum(axis=1)
        return np.asarray(np.sqrt(spread))

    def _by_state(self, found: Discrepancies, reached: Floats) -> Discrepancies:
        """Return the contrasts ``found`` with another ``size`` in which each state is counted once.

        The contribution of a state is the largest excess among its actions.
        """
        excess = np.maximum(np.abs(found.value) - found.bias - 2.0 * found.deviation, 0.0)
        largest = np.zeros(reached.size)
        np.maximum.at(largest, self.row_state[found.where], excess)
        return found._replace(size=float(largest @ reached))

    def _base(self) -> float:
        """Return the position of return 0 in the range of returns.

        The ends of the range have positions 0 and 1.
        """
        least, most = self.sums.question.bounds
        return (min(max(0.0, least), most) - least) / (most - least)

    def _reconciled(self, moves: Floats, visits: Floats) -> _ReconciledCounts:
        gap = moves.sum(axis=1) - visits
        return _ReconciledCounts(visits + gap * self.of_visits, moves - (gap * self.of_moves)[:, None])

    # -------------------------------------------------------------------------- worth of next states
    def _worth(self, v: Floats) -> tuple[Floats, list[Floats]]:
        """Return the (S + 1, S + 1) table y of (3), and the errors of the correction for remaining steps.

        The errors are one table for each release that is drawn from the fitted model.

        v : (S + 1,) mean returns of first visits minus 1/2.
        """
        sums, model, counts = self.sums, self.model, self.counts
        own = self.known & self.live
        weight = np.where(own, self.visits, 0.0)
        mean = float(weight @ v) / max(float(weight.sum()), 1.0)
        level = np.where(own, v, mean) + 0.5 - self._base()
        later = self._later(counts, model.usual)
        draw = generator_at(self.key, ROLE_BOOTSTRAP, 2**34)
        whole = sums.consistent()
        errors = []
        for _ in range(_REFITS):
            moves, seen = sums.sampled(whole, draw)
            again = sums.per_state(sums.consistent(moves, seen))
            usual = again / np.maximum(again.sum(axis=1, keepdims=True), 1e-9)
            usual[model.terminal] = 0.0
            off = np.clip(self._later(self._reconciled(moves, seen), usual) - later, -1.0, 1.0)
            errors.append(np.where(model.terminal, 0.0, off))
        arrival = sums.question.arrival
        return np.where(model.terminal, arrival, arrival + level + later), errors

    def _later(self, counts: _ReconciledCounts, projected: Floats) -> Floats:
        """Return the (S + 1, S + 1) corrections for the number of remaining steps in (3).

        The corrections are computed in a Markov chain. States whose counts exceed the noise use ``counts``.
        All other states use the next-state distributions ``projected``.
        """
        sums, steps = self.sums, self.sums.layout.horizon
        noise, states = sums.noise, sums.layout.states
        visits, arrivals = sums.per_state(counts.visits), sums.per_state(counts.moves)
        root = np.sqrt(self.cells)
        clear = visits > np.maximum(STANDS_OUT * self.sigma * root, LEAST_USERS)
        clear &= (visits > _CLEAR * noise.moves * math.sqrt(states) * root) & ~self.model.terminal
        seen = np.maximum(arrivals.sum(axis=1, keepdims=True), 1.0)
        chain = np.where(clear[:, None], arrivals / seen, projected)
        value = np.zeros((steps + 1, states))
        for h in range(steps - 1, -1, -1):
            value[h] = chain @ (sums.question.arrival + value[h + 1])
        begin = np.eye(states)[sums.question.start]
        # noise can make probabilities negative; the weights of a state must be non-negative and sum to 1
        first = np.maximum(first_visits(chain, begin, np.arange(states), steps), 0.0)
        weight = first / np.maximum(first.sum(axis=0), 1e-300)
        return np.asarray(weight.T @ value[1:] - (weight * value[:-1]).sum(axis=0))

    # -------------------------------------------------------------------------- covariance
    def _noise(self, slopes: _Slopes) -> sparse.csr_array:
        """Return the covariance of (a, b, l) that is due to noise, as a sparse matrix.

        The noise of different rows is independent. The noise of a row consists of dG, dN and sum_t y(t)
        dM(t). After least squares, the last two have the covariance of the least-squares estimate.
        """
        sums, state, states = self.sums, self.row_state, self.sums.layout.states
        rows = state.size
        of_n, of_m = self.of_visits, self.of_moves
        var_n, var_m, var_g = (x * x for x in sums.noise)
        y = slopes.centred[state]
        whole, square = y.sum(axis=1), np.square(y).sum(axis=1)
        n_n = np.full(rows, (1.0 - of_n) ** 2 * var_n + of_n**2 * states * var_m)
        m_m = var_m * (square + whole**2 * (states * of_m**2 - 2.0 * of_m)) + (of_m * whole) ** 2 * var_n
        n_m = (1.0 - of_n) * of_m * whole * var_n + of_n * var_m * whole * (1.0 - of_m * states)
        # coefficients of (dG_r, dN_r, sum_t y(t) dM_r(t)) in (a_r, b_s, l_s)
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
        """Return the covariance of one user's contribution to (a, b, l), computed from simulated users.

        people : number of simulated users. records : their records.
        """
        state, states, rows = self.row_state, self.sums.layout.states, self.row_state.size
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
        """Return the (K, K) covariance A X A' (see the module).

        - used, levels, groups : rows of contrasts, states of levels, and rows of groups.
        - onward : (K, S + 1) coefficients of -l in the discrepancies.
        - spread : the covariance X of (a, b, l).
        """
        rows, states = self.row_state.size, self.sums.layout.states
        many, last = len(onward), used.size + levels.size

        def through(table: Floats) -> Floats:
            """Return A times a (rows + 2 states, n) table."""
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
        """Return the (K, K) sum of the three terms that are added to A X A' (see the module).

        The first is the term of second order. The second is the error of the correction for remaining steps.
        The third is for outcomes that no observed user had.
        """
        sums, state = self.sums, self.row_state
        of_level = slopes.g_level > 0.0
        squared = (sums.noise.returns * slopes.g_level) ** 2 * self.cells + 0.25 * slopes.g_level
        missed = sums.noise.moves**2 * float(squared[of_level].sum())
        g = np.concatenate([slopes.g_row[used], slopes.g_state[levels], slopes.g_row[groups]])
        cells = np.concatenate([np.ones(used.size), self.cells[levels], np.ones(groups.size)])
        owner = np.concatenate([state[used], levels, state[groups]])
        ranges = np.maximum(np.ptp(worth, axis=1), _LEAST_RANGE)[owner]
        found = np.diag(missed * cells * g**2 + (_UNSEEN * sums.question.episodes * ranges * g) ** 2)
        off = np.stack([(onward * error[owner]).sum(axis=1) for error in later])
        return found + off.T @ off / len(later)

    # -------------------------------------------------------------------------- simulated users
    def _simulated(self, used: Ints) -> tuple[int, _Records]:
        """Simulate users of the fitted chain. Returns their number and their records.

        The number of users is chosen so that rare tested rows have about ``_RECORDS`` records. This number is
        in the range ``_SIMULATED``.

        used : tested rows.
        """
        sums, layout, model = self.sums, self.sums.layout, self.model
        states, ends = layout.states, model.terminal
        rarest = np.quantile(self.counts.visits[used], 0.02) if used.size else sums.episodes
        least, most = _SIMULATED
        people = int(np.clip(2.0 * _RECORDS * sums.episodes / max(rarest, 1.0), least, most))
        pulled = model.moves * model.taken[:, None] + _SHRINK * model.usual[self.row_state]
        laws = np.where(ends[self.row_state][:, None], model.moves, pulled)
        whole = laws.sum(axis=1, keepdims=True)
        stay = np.eye(states)[self.row_state]
        onward = _cumulative(np.where(whole > 1e-9, laws / np.maximum(whole, 1e-9), stay))
        choice = _cumulative(_by_state_table(sums, model.share))
        outcome = np.zeros(states)
        for s, reward in (sums.question.returns.outcomes or {}).items():
            outcome[s] = reward
        draw = generator_at(self.key, ROLE_SAMPLES, 2**34)
        at, seen = np.full(people, sums.question.start), np.zeros((people, states), bool)
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
        low, high = sums.question.bounds
        left = np.clip((np.cumsum(paid[:, ::-1], axis=1)[:, ::-1] - low) / (high - low), 0.0, 1.0)
        user, row, following, step = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return people, _Records(user, row, following, left[user, step])


class _Records(NamedTuple):
    """First visits of simulated users, as parallel arrays with one entry per visit."""

    user: Ints
    row: Ints
    following: Ints  # next state
    left: Floats  # return of the remaining episode, in [0, 1]


class _Slopes(NamedTuple):
    """Coefficients of the errors in (a, b, l) (see the module).

    Attributes
    ----------
    g_row, g_state, g_level : (R,), (S + 1,) and (S + 1,)
        Reciprocals of counts in a, b and l; 0 for rows and states that are not used.
    row : (R,)
        q - ybar for each row.
    state : (S + 1,)
        v - ybar for each state.
    level : (S + 1,)
        v for each state.
    centred : (S + 1, S + 1)
        Values y_s(t) of next states t minus their mean over t.
    """

    g_row: Floats
    g_state: Floats
    row: Floats
    state: Floats
    g_level: Floats
    level: Floats
    centred: Floats


def _by_state_table(sums: VisitSums, share: Floats) -> Floats:
    """Return the (S + 1, A) action probabilities of the behaviour policy, in the order of each state's rows.

    share : (R,) shares of the actions. If a state has no counts, its probabilities are uniform.
    """
    sizes = np.diff(sums.layout.state_ptr)
    table = np.zeros((sizes.size, int(sizes.max())))
    for s, (begin, size) in enumerate(zip(sums.layout.state_ptr[:-1], sizes, strict=True)):
        own = np.maximum(share[begin : begin + size], 0.0)
        table[s, :size] = own / own.sum() if own.sum() > 0.0 else 1.0 / size
    return table


def _cumulative(table: Floats) -> Floats:
    """Return the cumulative probabilities of each row of ``table``, plus the index of the row.

    The flattened result is sorted, so one call of ``np.searchsorted`` can draw from many rows.
    """
    sums = np.cumsum(np.maximum(table, 0.0), axis=1)
    sums /= sums[:, -1:]
    return np.asarray(sums + np.arange(len(table))[:, None])


def _drawn(cumulative: Floats, row: Ints, uniform: Floats) -> Ints:
    """Draw one index from each of the given rows of a table.

    cumulative : result of :func:`_cumulative`. uniform : one random number in [0, 1) for each draw.
    """
    width = cumulative.shape[1]
    found = np.searchsorted(cumulative.ravel(), row + uniform, side="right") - row * width
    # Entries of probability 0 at the end of a row must not be drawn. The last possible entry is drawn
    # instead.
    possible = np.diff(cumulative, axis=1, prepend=np.arange(len(cumulative))[:, None]) > 0.0
    last = width - 1 - possible[:, ::-1].argmax(axis=1)
    return np.minimum(found, last[row])
