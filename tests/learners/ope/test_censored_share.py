"""Ends whose outcome is not known: gains with the worst and the best outcomes, and what rests on them."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from discreet.core.families import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.core.layout import Layout
from discreet.core.trajectories import Trajectories
from discreet.learners.ope import transition_gains as transitions
from discreet.learners.ope.censored_share import censored_share, ends_censored
from discreet.learners.ope.consistency_test import consistency_of, model_of
from discreet.learners.ope.deviation_gains import Path
from discreet.learners.ope.first_visit_query import FirstVisits, VisitSums
from discreet.learners.ope.hidden_cause import hidden_cause, loss_each_step, loss_one_decision
from discreet.learners.ope.transition_gains import TransitionPath, path_of
from discreet.learners.ope.verdict import verdict_of, would_show
from discreet.mechanisms.interfaces import ProblemSpec, ReturnBounds

Floats = np.ndarray[Any, np.dtype[np.float64]]

# ill, better, home, dead, left; the actions are wait and treat
MASK = np.array([[1, 1], [1, 1], [1, 0], [1, 0], [1, 0]], bool)
RETURNS = ReturnBounds(terminal=(2, 3, 4), outcomes={2: 1.0, 3: 0.0}, censored=4)
HOME, DEAD, LEFT = 2, 3, 4


def question(horizon: int = 4, returns: ReturnBounds = RETURNS) -> FirstVisits:
    return FirstVisits(ProblemSpec(Layout(5, 2, horizon, MASK), stationary=True, returns=returns))


def released(
    table: Floats, behaviour: Floats, outcome: Floats, people: float, asked: FirstVisits, noise: float = 0.0,
    seed: int = 0,
) -> VisitSums:  # fmt: skip
    """A release of so many people in its expectation, or played.

    table : (2, A, 5) laws of living states. behaviour : (2, A). outcome : (5,) what ends are recorded as.
    """
    layout, draw = asked.layout, np.random.default_rng(seed)
    horizon, n = layout.horizon - 1, int(people)
    states = np.zeros((n, horizon + 1), np.int64)
    actions = np.zeros((n, horizon), np.int64)
    states[:, 0] = draw.random(n) < 0.5
    for h in range(horizon):
        here = states[:, h]
        live = here < 2
        actions[live, h] = draw.random(live.sum()) < behaviour[here[live], 1]
        law = np.cumsum(table[np.where(live, here, 0), actions[:, h]], axis=1)
        following = (draw.random((n, 1)) > law[:, :-1]).sum(axis=1)
        states[:, h + 1] = np.where(live, following, here)
    people_of = Trajectories(states, actions, np.zeros((n, horizon)))
    return counted(asked, people_of, noise, draw)


def counted(asked: FirstVisits, people: Trajectories, noise: float, draw: np.random.Generator) -> VisitSums:
    """The sums of these people, by the plain definition, with noise."""
    layout, told = asked.layout, asked.to_records(people)
    visits, moves = np.zeros(layout.rows), np.zeros((layout.rows, layout.states))
    returns = np.zeros(layout.rows)
    seen = np.zeros((len(people), layout.states), bool)
    every = np.arange(len(people))
    for h in range(layout.horizon):
        s, a, t = told.states[:, h], told.actions[:, h], told.states[:, h + 1]
        new = ~seen[every, s]
        seen[every, s] = True
        rows = layout.row_index[s[new], a[new]]
        np.add.at(visits, rows, 1.0)
        np.add.at(moves, (rows, t[new]), 1.0)
        np.add.at(returns, rows, told.rewards[new, h] - 0.5)
    if noise:
        visits, moves, returns = (x + noise * draw.standard_normal(x.shape) for x in (visits, moves, returns))
    return asked.sums_of(visits, moves, returns, noise, noise, noise, people=len(people))


TABLE = np.array(
    [  # ill: treated people get better more often, and leave more often
        [[0.40, 0.20, 0.05, 0.30, 0.05], [0.25, 0.45, 0.10, 0.10, 0.10]],
        [[0.15, 0.25, 0.45, 0.05, 0.10], [0.10, 0.25, 0.50, 0.05, 0.10]],
    ]
)
BEHAVIOUR = np.array([[0.6, 0.4], [0.5, 0.5]])


def plain_gain(laws: Floats, usual: Floats, new: dict[int, Floats], worth: Any, asked: FirstVisits) -> float:
    """J(pi) - J(b) step by step. worth(s, new) : what a censored end is worth from there, in [0, 1].

    laws : unused rows are none. usual : (S + 1, 2, S + 1) joint chances of action and next state.
    """
    start, horizon, states = asked.start, asked.layout.horizon, asked.layout.states

    def value(changed: bool) -> float:
        after = np.zeros(states)
        for _ in range(horizon):
            here = np.zeros(states)
            for s in (0, 1, start):
                rows = [(1.0, new[s], True)] if changed and s in new else [
                    (1.0, usual[s, a], s in new and a == laws[s]) for a in range(2)
                ]  # fmt: skip
                for weight, law, asked_for in rows:
                    paid = law[HOME] + law[LEFT] * worth(s, asked_for)
                    here[s] += weight * (paid + law @ after)
            after = here
        return float(after[start])

    return value(True) - value(False)


@pytest.mark.parametrize("seed", range(4))
def test_the_ends_of_a_gain_against_all_outcomes_of_each_row(seed: int) -> None:
    """Slow and plain: every corner of the outcomes that rows can have, and the gain of each."""
    draw = np.random.default_rng(seed)
    asked = question()
    table = draw.dirichlet(np.full(5, 0.8), (2, 2))
    told = released(table, BEHAVIOUR, np.zeros(5), 4e4, asked, seed=seed)
    chain = transitions.Chain(told, transitions.TransitionCounts(told.moves, told.visits))
    action = np.array([1, int(draw.integers(2)), 0, 0, 0, 0])
    for order in (np.array([0]), np.array([1, 0])):
        counts = np.full(2, order.size)
        found = chain.gains(order, action, counts, sides=np.array([-1, 1]))[0]
        layout = asked.layout
        usual = np.zeros((6, 2, 6))
        whole = told.per_state(told.visits)
        for row in range(layout.rows):
            s = layout.row_state[row]
            usual[s, layout.row_action[row]] = told.moves[row] / whole[s]
        rows = {int(s): layout.row_index[s, action[s]] for s in order}
        new = {s: told.moves[row] / told.visits[row] for s, row in rows.items()}
        corners = [
            plain_gain(
                action, usual, new,
                lambda s, own, c=corner: c[2 * min(s, 2) + own] if s < 2 else 0.5, asked,
            )
            for corner in itertools.product((0.0, 1.0), repeat=4)
        ]  # fmt: skip
        assert found[0] == pytest.approx(min(corners), abs=1e-12)
        assert found[1] == pytest.approx(max(corners), abs=1e-12)
        middle = chain.gains(order, action, counts[:1])[0][0]
        assert middle == pytest.approx(found.mean(), abs=1e-12)
        for same in (0.0, 1.0):  # one outcome for all who left is between both
            one = plain_gain(action, usual, new, lambda s, own, w=same: w, asked)
            assert found[0] - 1e-12 <= one <= found[1] + 1e-12


def test_deviations_are_the_slopes_of_both_ends() -> None:
    """The covariance of both ends of two points of a path by finite differences in every cell."""
    asked = question()
    told = released(TABLE, BEHAVIOUR, np.zeros(5), 3e4, asked, noise=4.0, seed=3)
    chain = transitions.Chain(told, transitions.halves(told, np.array([3, 4], np.uint64))[1])
    order, action = np.array([1, 0]), np.array([1, 0, 0, 0, 0, 0])
    points, sides = np.array([1, 2, 1, 2]), np.array([-1, -1, 1, 1])
    _, covariance, of_noise = chain.gains(order, action, points, sides=sides)
    moves = chain.moves.copy()

    def gains(cells: Floats) -> Floats:
        pooled = told.per_state(cells)
        chain.moves, chain.taken, chain.seen = cells, cells.sum(axis=1), pooled.sum(axis=1)
        chain.usual = pooled / chain.seen[:, None]
        chain.usual[chain.ends] = 0.0
        chain.worth, chain.reached = chain.followed(chain.usual)
        return chain.gains(order, action, points, sides=sides)[0]

    slopes = np.zeros((4, *moves.shape))
    for cell in np.ndindex(*moves.shape):
        step = np.zeros_like(moves)
        step[cell] = 0.01
        slopes[(slice(None), *cell)] = (gains(moves + step) - gains(moves - step)) / 0.02
    gains(moves)
    rows = told.layout.row_index[order, action[order]]
    own = np.zeros((4, 2, 6))
    for i, count in enumerate(points):
        for j in range(count):
            other = told.layout.row_index[order[j], 1 - action[order[j]]]
            own[i, j] = slopes[i, rows[j]] - slopes[i, other]
    luck = chain.luck.copy()
    luck[rows] = chain.luck_of(order, rows, own[-1])
    covariance = covariance - chain.unseen(rows, own)
    for found, cells in ((covariance, chain.noise + luck), (of_noise, chain.noise)):
        expected = np.einsum("irt,jrt,rt->ij", slopes, slopes, cells)
        np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_nobodys_record_weighs_more_where_ends_are_censored() -> None:
    """The attained sensitivity of each family, by all pairs of people in a small world, is that of the query;
    and a censored return counts as the middle, whatever the record says.
    """
    mask = np.array([[1, 1], [1, 0], [1, 0]], bool)
    ends = {"terminal": (1, 2), "outcomes": {1: 1.0}}
    stated = []
    for censored in (None, 2):
        spec = ProblemSpec(
            Layout(3, 2, 2, mask), stationary=True, returns=ReturnBounds(**ends, censored=censored)
        )
        asked = FirstVisits(spec)
        query = asked.query()
        sums = []
        for path, acts in itertools.product(
            itertools.product(range(3), repeat=3), itertools.product(range(2), repeat=2)
        ):
            if any((a in (1, 2) and b != a) or (a and act) for (a, b), act in zip(
                itertools.pairwise(path), acts, strict=True)):  # fmt: skip
                continue
            for paid in itertools.product((0.0, 1.0), repeat=2):  # what a record says is not read
                record = Trajectories(np.array([path]), np.array([acts]), np.array([paid]))
                one = counted(asked, record, 0.0, np.random.default_rng(0))
                sums.append((one.visits, one.moves.ravel(), one.returns))
                if censored == 2 and path[0] == 0 and path[-1] == 2:
                    assert not one.returns[[0, 1, 4]].any()
        families = {VISITS: 0, TRANSITIONS: 1, CENTERED_REWARDS: 2}
        bounds = []
        for norm, power in (("l1", 1), ("l2", 2)):
            for weights in (
                ({n: 1.0} for n in families),
                ({VISITS: 1.0, TRANSITIONS: 1.0, CENTERED_REWARDS: 2.0},),
            ):
                for weight in weights:
                    vectors = np.unique([
                        np.concatenate([w * one[families[n]] for n, w in weight.items()]) for one in sums
                    ], axis=0)  # fmt: skip
                    apart = np.abs(vectors[:, None] - vectors[None]) ** power
                    attained = float(apart.sum(axis=2).max()) ** (1.0 / power)
                    every = dict.fromkeys(families, 0.0) | weight
                    bound = query.sensitivity(norm, every)
                    assert attained <= bound + 1e-12
                    bounds.append(bound)
        stated.append(bounds)
    assert stated[0] == stated[1]


def open_world(treated: float, waiting: float) -> tuple[Floats, Floats]:
    """One decision. Everybody would fare as the outcome says; of those who leave all, or none, would come
    home, as it is for their action. Returns the laws of ill people, and the true value of each action.
    """
    wait, treat = np.array([0.0, 0.0, 0.6, 0.2, 0.2]), np.array([0.0, 0.0, 0.8, 0.0, 0.2])
    return np.stack([wait, treat]), np.array([0.6 + 0.2 * waiting, 0.8 + 0.2 * treated])


def played(laws: Floats, people: int, noise: float, seed: int) -> VisitSums:
    table = np.stack([laws, laws])
    return released(table, np.full((2, 2), 0.5), np.zeros(5), people, question(2), noise, seed)


@pytest.mark.parametrize(("treated", "waiting"), [(0.0, 1.0), (0.0, 0.0), (1.0, 1.0), (1.0, 0.0), (0.3, 0.3)])
def test_the_true_gain_lies_between_both_ends_where_leaving_depends_on_the_action(
    treated: float, waiting: float
) -> None:
    """People who leave fare otherwise by action: the interval holds the true gain whatever the truth is, and
    a gain that people who left could undo is not shown. 40 000 people, fixed seeds, of an interval that
    misses with 1e-9 or less (20 deviations of sampling to the nearer end).
    """
    laws, value = open_world(treated, waiting)
    told = played(laws, 40_000, 3.0, 5)
    path = path_of(told)
    assert isinstance(path, TransitionPath)
    assert path.censored is not None
    gain = path.gain(path.default)
    truth = 0.5 * float(value[1] - value[0])  # half of the people took it already
    assert gain.low <= truth <= gain.high
    assert gain.low < 0.0  # it may be that nothing helps: those treated and gone died, all others came home
    assert verdict_of(path, path.default).kind == "not shown"
    assert not would_show(path, path.default)
    same = replace(
        told, question=question(2, replace(RETURNS, censored=None, outcomes={HOME: 1.0, DEAD: 0.0}))
    )
    assert path_of(same).gain(1).low > 0.0  # as if all who left had died


def test_a_gain_is_shown_that_people_who_left_cannot_undo() -> None:
    """Sick people are transferred, and many of them die: informative, and still the gain is large enough."""
    laws = np.array([[0.0, 0.0, 0.3, 0.65, 0.05], [0.0, 0.0, 0.7, 0.25, 0.05]])
    told = played(laws, 60_000, 3.0, 7)
    path = path_of(told)
    found = verdict_of(path, path.default)
    assert found.kind == "shown"
    assert would_show(path, path.default)
    for worth in itertools.product((0.0, 0.3, 1.0), repeat=2):
        value = laws[:, HOME] + laws[:, LEFT] * np.array(worth)
        truth = 0.5 * float(value[1] - value[0])
        assert found.gain.low <= truth <= found.gain.high
    assert found.gain.estimate == pytest.approx(0.5 * 0.4, abs=0.02)
    assert path.worst(path.default).low == found.gain.low
    alone = hidden_cause(path, path.default, path.gain(path.default), found.consistency)
    assert alone.each_step == found.cause.each_step
    assert not found.consistency.contrasts.rejects
    left = censored_share(told)
    assert left is not None
    assert left.share == pytest.approx(0.05, abs=0.01)
    assert path.behaviour().high - path.behaviour().low > left.share
    plain, _ = path.plain(np.tile([0.0, 1.0], 4))
    assert plain is None or plain.high - plain.low > 0.0


def robust(
    usual: Floats,
    rest: dict[int, tuple[Floats, float]],
    worth: Any,
    strength: float,
    asked: FirstVisits,
) -> tuple[float, float]:
    """J of the policy by induction, and its least under a cause; worth(s, new) of censored ends."""
    start, horizon, states = asked.start, asked.layout.horizon, asked.layout.states
    found = []
    for tilted in (False, True):
        after = np.zeros(states)
        for _ in range(horizon):
            here = np.zeros(states)
            for s in (0, 1, start):

                def pay(w: float, after: Floats = after) -> Floats:
                    y = after.copy()
                    y[HOME] += 1.0
                    y[LEFT] += w
                    return y

                if s not in rest:
                    here[s] = usual[s] @ pay(worth(s, False))
                    continue
                law, share = rest[s]
                y = pay(worth(s, True))
                if not tilted:
                    here[s] = law @ y
                    continue
                lowest = pay(0.0)
                order = np.argsort(lowest, kind="stable")
                left, least = 1.0 / (1.0 + strength), 0.0
                for t in order:
                    most = min(law[t], left)
                    left -= most
                    least += lowest[t] * (strength * most + (law[t] - most) / strength)
                here[s] = share * float(law @ y) + (1.0 - share) * least
            after = here
        found.append(float(after[start]))
    return found[0], found[1]


@pytest.mark.parametrize("seed", range(6))
def test_the_loss_holds_at_all_outcomes_of_each_row(seed: int) -> None:
    """Slow and plain: under every corner of the outcomes, the least value of the policy under a cause; the
    worst of all is not below the gain less the loss.
    """
    draw = np.random.default_rng(seed)
    asked = question()
    told = released(draw.dirichlet(np.full(5, 0.8), (2, 2)), BEHAVIOUR, np.zeros(5), 4e4, asked, seed=seed)
    path = path_of(told)
    assert isinstance(path, TransitionPath)
    model = model_of(told)
    count = int(path.points[-1])
    own = path.order[:count]
    rows = {int(s): int(told.layout.row_index[s, path.action[s]]) for s in own}
    rest = {s: (model.moves[row], float(model.share[row])) for s, row in rows.items()}
    usual = np.zeros((6, 2, 6))
    for row in range(told.layout.rows):
        s = told.layout.row_state[row]
        usual[s, told.layout.row_action[row]] = model.moves[row] * model.share[row]
    new = {s: law for s, (law, _) in rest.items()}
    for strength in (1.05, 1.5, 4.0):
        gains, worst = [], []
        for corner in itertools.product((0.0, 1.0), repeat=2 + len(rows)):
            by_state = dict(enumerate(corner[:2]))
            by_new = dict(zip(rows, corner[2:], strict=True))

            def worth(s: int, asked_for: bool, a: Any = by_state, b: Any = by_new) -> float:
                return (b[s] if asked_for else a[s]) if s < 2 else 0.5

            gain = plain_gain(path.action, usual, new, worth, asked)
            plain, low = robust(usual.sum(axis=1), rest, worth, strength, asked)
            gains.append(gain)
            worst.append(gain - (plain - low))
        lost = loss_each_step(path, count, strength, model)
        assert lost.deviation > 0.0
        assert min(gains) - lost.value == pytest.approx(min(worst), abs=1e-9)


def test_the_loss_of_one_decision_is_the_largest_over_open_outcomes() -> None:
    """q may be off by half the chance that an episode ends censored; against a fine grid."""
    told = released(TABLE, BEHAVIOUR, np.zeros(5), 4e4, question(), seed=2)
    path = path_of(told)
    model = model_of(told)
    count = int(path.points[-1])
    rows = told.layout.row_index[path.order[:count], path.action[path.order[:count]]]
    chance = ends_censored(told, model.moves, model.usual)
    later = np.zeros(6)
    for _ in range(told.layout.horizon):
        later = np.where(np.arange(6) == LEFT, 1.0, model.usual @ later)
    np.testing.assert_allclose(chance, model.moves @ later, atol=1e-12)
    for strength in (1.1, 2.0):
        most = 0.0
        for row in rows:
            q = path.whole.q[row] + np.linspace(-0.5, 0.5, 1_000_001) * chance[row]
            lost = q - np.maximum(q / strength, 1.0 - strength * (1.0 - q))
            state = told.layout.row_state[row]
            most += path.visits[state] * (1.0 - path.share[row]) * float(lost.max())
        found = loss_one_decision(path, count, strength, 1.0, model)
        assert found.value == pytest.approx(most, rel=1e-5)
        assert loss_one_decision(path, count, strength, 1.0).value == found.value


def test_where_transitions_drown_a_gain_may_be_anything() -> None:
    """Returns do not say how many censored ends an action led to: nothing is shown by them."""
    told = released(TABLE, BEHAVIOUR, np.zeros(5), 3e3, question(), noise=150.0, seed=1)
    path = path_of(told)
    if not path.order.size:
        pytest.skip("nothing is offered at this noise")
    assert type(path) is Path
    gain = path.gain(path.default)
    assert (gain.low, gain.high) == (-1.0, 1.0)
    assert not path.clear(path.default)
    assert verdict_of(path, path.default).kind == "not shown"


def test_a_release_with_censored_ends_agrees_with_itself() -> None:
    """In a valid world; fixed seeds, false alarms of 1e-3 each at most as the test of consistency has."""
    for seed in range(3):
        found = consistency_of(released(TABLE, BEHAVIOUR, np.zeros(5), 3e4, question(), noise=5.0, seed=seed))
        assert found.tested
        assert not found.contrasts.rejects
        assert not found.levels.rejects


def test_ends_at_the_last_step_may_be_censored_too() -> None:
    """A release counts visits before the end of the last step: who leaves in that step is in no visit."""
    draw, people = np.random.default_rng(3), 4_000
    states = np.zeros((people, 4), np.int64)
    left = draw.random(people) < 0.3
    states[:, 3] = np.where(left, LEFT, HOME)
    asked = question(4)
    assert asked.spec.horizon == 4
    states = np.concatenate([np.zeros((people, 1), np.int64), states], axis=1)  # nobody leaves sooner
    told = counted(
        asked, Trajectories(states, np.zeros((people, 4), np.int64), np.zeros((people, 4))), 0.0, draw
    )
    found = censored_share(told)
    assert found is not None
    assert found.share >= left.mean()
    usual = path_of(told).behaviour()
    assert usual.low <= 1.0 - left.mean()  # all who left may have died
    assert usual.high >= 1.0  # and all may have come home


def test_no_censored_end_no_share() -> None:
    plain = replace(RETURNS, censored=None, outcomes={HOME: 1.0})
    told = released(TABLE, BEHAVIOUR, np.zeros(5), 1e3, question(returns=plain))
    assert censored_share(told) is None
    model = model_of(told)
    assert not ends_censored(told, model.moves, model.usual).any()
    assert math.isfinite(path_of(told).gain(0).low)


def test_slopes_of_the_loss_are_finite_differences() -> None:
    """With censored ends, without noise: the deviation by derivatives in every cell of the counts."""
    told = released(np.roll(TABLE, 1, axis=1), BEHAVIOUR, np.zeros(5), 4e4, question(), seed=4)
    path = path_of(told)
    count = int(path.points[-1])

    def loss(moves: Floats) -> float:
        again = replace(told, moves=moves, visits=moves.sum(axis=1))
        return loss_each_step(replace(path, sums=again), count, 1.6, model_of(again)).value

    slopes = np.zeros_like(told.moves)
    for cell in zip(*np.nonzero(told.moves), strict=True):
        step = np.zeros_like(told.moves)
        step[cell] = 1e-3 * told.moves[cell]
        slopes[cell] = (loss(told.moves + step) - loss(told.moves - step)) / (2.0 * step[cell])
    expected = math.sqrt(float((told.moves * slopes**2).sum()))
    found = loss_each_step(path, count, 1.6, model_of(told)).deviation
    assert found == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(("people", "noise"), [(2_000, 0.0), (5_000, 12.0)], ids=["none", "gaussian"])
def test_intervals_hold_the_gain_whatever_the_outcomes_are(people: int, noise: float) -> None:
    """Random worlds, fixed seeds: how often an end lies within the gains that some outcomes would give. Of
    200 worlds each, 5 and 1 low ends and 3 and 0 high ones did; here of 50.
    """
    asked, low, high, many = question(), 0, 0, 0
    for seed in range(50):
        table = np.random.default_rng(1_000 + seed).dirichlet(np.full(5, 0.8), (2, 2))
        path = path_of(released(table, BEHAVIOUR, np.zeros(5), people, asked, noise, 1_000 + seed))
        if not isinstance(path, TransitionPath):
            continue
        many += 1
        usual = np.zeros((6, 2, 6))
        usual[:2, :, :5] = table * BEHAVIOUR[:, :, None]
        usual[5, 0, :2] = 0.5
        new = {int(s): np.append(table[s, path.action[s]], 0.0) for s in path.order[: path.default]}
        gains = [
            plain_gain(
                path.action, usual, new,
                lambda s, own, c=corner: c[2 * min(s, 2) + own] if s < 2 else 0.5, asked,
            )
            for corner in itertools.product((0.0, 1.0), repeat=4)
        ]  # fmt: skip
        gain = path.gain(path.default)
        low += min(gains) < gain.low
        high += max(gains) > gain.high
    assert many >= 45
    assert low <= 3
    assert high <= 3
