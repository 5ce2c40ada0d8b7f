"""First visits: how episodes are told, what is counted, what one person can change."""

import itertools
from typing import Any

import numpy as np
import pytest

import discreet as dr
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.core.trajectories import Trajectories
from discreet.learners.ope.first_visit_query import FirstVisits
from discreet.mechanisms.interfaces import ProblemSpec, ReturnBounds
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy

LAYOUT = Layout(3, 2, 4, np.array([[1, 1], [0, 1], [1, 1]], bool))
OUTCOMES = ReturnBounds(terminal=(2,), outcomes={2: 4.0}, least=-1.0)


def question(returns: ReturnBounds | None = None, layout: Layout = LAYOUT, **more: Any) -> FirstVisits:
    return FirstVisits(ProblemSpec(layout, stationary=True, returns=returns, **more))


def episodes(n: int, seed: int = 0) -> Trajectories:
    """Admissible; state 2 is never left."""
    draw = np.random.default_rng(seed)
    states = draw.integers(3, size=(n, 5))
    for h in range(1, 5):
        states[:, h] = np.where(states[:, h - 1] == 2, 2, states[:, h])
    actions = np.where(states[:, :-1] == 1, 1, draw.integers(2, size=(n, 4)))
    return Trajectories(states, actions, draw.integers(9, size=(n, 4)) / 8)


def by_hand(
    asked: FirstVisits, people: Trajectories, reward: Any, least: float, most: float
) -> dict[str, Any]:
    """Sums over people by loops, from the definition."""
    size = asked.layout.states
    shape = (size, asked.layout.actions)
    visits, returns, moves = np.zeros(shape), np.zeros(shape), np.zeros((*shape, size))
    for one in people:
        s, a = one.states.tolist(), one.actions.tolist()
        left = [sum(reward(one, t) for t in range(h, len(a))) for h in range(len(a))]
        scaled = [(min(max(x, least), most) - least) / (most - least) - 0.5 for x in left]
        begin = size - 1
        visits[begin, 0] += 1
        moves[begin, 0, s[0]] += 1
        returns[begin, 0] += scaled[0]
        for h in range(len(a)):
            if s[h] in s[:h]:
                continue
            action = 0 if s[h] in asked.returns.terminal else a[h]
            visits[s[h], action] += 1
            moves[s[h], action, s[h + 1]] += 1
            returns[s[h], action] += scaled[h]
    rows = asked.layout.to_rows
    return {"visits": rows(visits[None])[0], "moves": rows(moves[None])[0], "returns": rows(returns[None])[0]}


def released(asked: FirstVisits, people: Trajectories, privatizer: Any = None) -> Any:
    with (privatizer or NoPrivacy()).stored(asked.query(), Seeded(3)) as session:
        session.submit_many(asked.to_records(people), np.arange(len(people)))
        return session.release().keep()


def plain_reward(one: Any, h: int) -> float:
    return float(one.rewards[h])


def in_units(one: Any, h: int) -> float:
    return 0.0 if one.states[h] == 2 else -2.0 + 3.0 * float(one.rewards[h])


def on_arrival(one: Any, h: int) -> float:
    return 4.0 if one.states[h] != 2 and one.states[h + 1] == 2 else 0.0


@pytest.mark.parametrize(
    ("returns", "reward", "least", "most"),
    [
        (None, plain_reward, 0.0, 4.0),
        (ReturnBounds(-2.0, 1.0, terminal=(2,), most=2.5), in_units, -8.0, 2.5),
        (OUTCOMES, on_arrival, -1.0, 4.0),
    ],
    ids=["rewards", "units", "outcomes"],
)
def test_sums_are_those_of_the_definition(returns: Any, reward: Any, least: float, most: float) -> None:
    asked, people = question(returns), episodes(300)
    found = asked.read(released(asked, people))
    wanted = by_hand(asked, people, reward, least, most)
    assert found.episodes == found.people == 300
    assert np.array_equal(found.visits, wanted["visits"])
    assert np.array_equal(found.moves, wanted["moves"])
    np.testing.assert_allclose(found.returns, wanted["returns"], atol=300 / 2**20)
    assert found.noise == (0.0, 0.0, 0.0)


def test_known_rewards_take_the_place_of_those_in_the_records() -> None:
    known = np.random.default_rng(2).random((4, 3, 2))
    asked = question(None, known_rewards=known)
    people = episodes(50)
    told = asked.to_records(people)
    h = np.arange(4)
    wanted = known[h, people.states[:, :-1], people.actions][:, ::-1].cumsum(axis=1)[:, ::-1] / 4
    np.testing.assert_allclose(told.rewards[:, 1:], wanted)


def test_nobody_can_change_more_than_the_query_says() -> None:
    """All pairs of people of a small world: the distance of their sums, told, in units of the noise."""
    layout = Layout(2, 2, 2)
    asked = question(ReturnBounds(terminal=(1,)), layout)
    rho = 0.5  # mu = 1
    mechanism = Central(rho=rho, noise="gaussian").stored_mechanism(asked.query(), Seeded(0))
    scales = dict(zip(asked.query().row_families, mechanism.scales.tolist(), strict=True))
    people = [
        Trajectories(np.array([s]), np.array([a]), np.array([r], float))
        for s in itertools.product(range(2), repeat=3)
        for a in itertools.product(range(2), repeat=2)
        for r in itertools.product((0.0, 0.5, 1.0), repeat=2)
        if not (s[0] == 1 and s[1] == 0) and not (s[1] == 1 and s[2] == 0)
    ]
    rows = []
    for one in people:
        sums = asked.query().contribution(next(iter(asked.to_records(one))))
        rows.append(np.concatenate([(sums[name] / scale).ravel() for name, scale in scales.items()]))
    table = np.unique(np.array(rows), axis=0)
    worst = max(float(np.linalg.norm(table - row, axis=1).max()) for row in table)
    assert 0.5 < worst <= 1.0 + 1e-9


def test_the_guarantee_is_that_of_the_noise() -> None:
    """From scales alone: mu^2 = m (2 / s_v^2 + 2 / s_t^2 + 1 / (2 s_r^2)), or the other case of a step."""
    asked = question(OUTCOMES)
    mechanism = Central(rho=0.02, noise="gaussian").stored_mechanism(asked.query(), Seeded(0))
    v, t, r = (1.0 / scale**2 for scale in mechanism.scales.tolist())
    m = min(4, 5)  # S + 1 states, H + 1 steps
    worst = m * max(2 * v + 2 * t + 0.5 * r, 2 * t + r)
    assert mechanism.guarantee.mu == pytest.approx(np.sqrt(worst), rel=1e-9)
    assert mechanism.guarantee.mu <= np.sqrt(2 * 0.02) * (1 + 1e-9)
    assert mechanism.guarantee.mu > 0.99 * np.sqrt(2 * 0.02)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"states": 3}, "states must be in"),
        ({"rewards": 1.5}, "rewards must be"),
        ({"rewards": np.nan}, "rewards must be"),
    ],
    ids=str,
)
def test_a_broken_record_is_refused(change: Any, message: str) -> None:
    people = episodes(5)
    arrays = {name: getattr(people, name).copy() for name in ("states", "actions", "rewards")}
    for name, value in change.items():
        arrays[name] = arrays[name].astype(float) if name == "rewards" else arrays[name]
        arrays[name][2, 1] = value
    with pytest.raises(ValueError, match=message):
        question().to_records(Trajectories(**arrays))


def test_an_inadmissible_action_is_refused_when_it_is_counted() -> None:
    asked, people = question(), episodes(5)
    actions = people.actions.copy()
    people.states[0, 0], actions[0, 0] = 1, 0
    broken = asked.to_records(Trajectories(people.states, actions, people.rewards))
    with (
        NoPrivacy().stored(asked.query(), Seeded(0)) as session,
        pytest.raises(ValueError, match="not admissible in state 1"),
    ):
        session.submit_many(broken, np.arange(5))


def test_worlds_and_rules_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="stationary = False"):
        FirstVisits(ProblemSpec(LAYOUT))
    with pytest.raises(ValueError, match=r"outcomes = .*must be of terminal states"):
        ReturnBounds(terminal=(1,), outcomes={2: 1.0})
    with pytest.raises(ValueError, match="must have one that is not 0"):
        ReturnBounds(terminal=(2,), outcomes={2: 0.0})
    with pytest.raises(ValueError, match="most = 1.0: must be above least = 1.0"):
        question(ReturnBounds(least=1.0, most=1.0))
    with pytest.raises(ValueError, match="high = 0.0: must be above"):
        ReturnBounds(0.0, 0.0)
    with NoPrivacy().stored(dr.mechanisms.CountQuery(LAYOUT, center_rewards=True), Seeded(0)) as session:
        session.submit_many(episodes(3), np.arange(3))
        other = session.release().keep()
    with pytest.raises(ValueError, match=r"release.layout: must be that of first visits"):
        question().read(other)


def test_consistent_transitions_add_up_and_are_not_negative() -> None:
    asked, people = question(OUTCOMES), episodes(400)
    told = asked.read(released(asked, people, Central(rho=0.05, noise="gaussian")))
    moves = told.consistent()
    assert (moves >= 0.0).all()
    exact = asked.read(released(asked, people))
    assert np.array_equal(exact.consistent(), exact.moves)
    error = np.abs(moves.sum(axis=1) - exact.visits).max()
    assert error < 6.0 * told.noise.visits


@pytest.mark.parametrize(
    ("group", "text"),
    [
        (None, "group: must be given, there are 3 groups"),
        (np.array([0, 3]), "group: must be in"),
        (np.array([0, -1]), "group: must be in"),
        (np.array([0]), "group: must be 2 integers"),
        (np.array([0.0, 1.0]), "group: must be 2 integers"),
    ],
)
def test_groups_that_are_none_are_refused(group: Any, text: str) -> None:
    asked = FirstVisits(ProblemSpec(Layout(2, 1, 2), stationary=True, groups=3))
    people = Trajectories(np.zeros((2, 3), int), np.zeros((2, 2), int), np.zeros((2, 2)))
    with pytest.raises(ValueError, match=text):
        asked.to_records(people, group)
