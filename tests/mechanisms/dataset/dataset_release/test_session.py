"""The one-shot session of stored people: order of calls, users and episodes, interrupts, noise, guarantee."""

import copy
import itertools
import math
import os
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from interrupts import interrupted
from scipy import stats

from discreet.accounting import pld as numerical
from discreet.core.count_query import CountQuery
from discreet.core.guarantee import Guarantee
from discreet.core.layout import Layout
from discreet.core.rng import Secure, Seeded
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.mechanisms.dataset import dataset_release as one_shot
from discreet.mechanisms.dataset.dataset_release import KeptRelease
from discreet.mechanisms.interfaces import Schedule
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy

LAYOUT = Layout(3, 2, 4, np.array([[1, 1], [0, 1], [1, 1]], bool))
QUERY = CountQuery(LAYOUT, center_rewards=True)
THREE = CountQuery(LAYOUT, center_rewards=True, episodes=3)
FIRST = CountQuery(LAYOUT, center_rewards=True, stationary=True, first=True)
FILES = (
    "mechanisms/dataset/dataset_release.py",
    "mechanisms/dataset/partial_aggregate.py",
    "core/lifecycle.py",
)


def people(n: int, seed: int = 0, rewards: Any = None) -> Trajectories:
    """n admissible episodes; rewards are multiples of 1/8 unless given."""
    rng = np.random.default_rng(seed)
    states = rng.integers(3, size=(n, 5))
    actions = np.where(states[:, :-1] == 1, 1, rng.integers(2, size=(n, 4)))
    return Trajectories(states, actions, rng.integers(9, size=(n, 4)) / 8 if rewards is None else rewards)


def part(data: Trajectories, begin: int, end: int) -> Trajectories:
    return Trajectories(data.states[begin:end], data.actions[begin:end], data.rewards[begin:end])


def exact(query: CountQuery, data: Trajectories) -> dict[str, np.ndarray]:
    """Sums of contributions by the query's own definition, over rows."""
    sums = {name: np.zeros(shape) for name, shape in query.families.items()}
    for one in data:
        for name, table in query.contribution(one).items():
            sums[name] += table
    return {name: query.layout.to_rows(table) for name, table in sums.items()}


def tables(kept: KeptRelease) -> dict[str, np.ndarray]:
    found = {"transition_counts": np.stack([s.transitions for s in kept])}
    if kept.step(0).visits is not None:
        found["visits"] = np.stack([s.visits for s in kept])  # type: ignore[misc]
    if kept.step(0).rewards is not None:
        found["centered_reward_sums"] = np.stack([s.rewards for s in kept])  # type: ignore[misc]
    return found


def kept(privatizer: Any, query: CountQuery, randomness: Any, data: Trajectories, user: Any) -> KeptRelease:
    with privatizer.stored(query, randomness) as session:
        session.submit_many(data, user)
        return session.release().keep()  # type: ignore[no-any-return]


# --------------------------------------------------------------------------------------------- sums


@pytest.mark.parametrize(
    "query",
    [
        QUERY,
        CountQuery(LAYOUT, known_rewards=True),
        CountQuery(LAYOUT, center_rewards=True, visits=False),
        FIRST,
    ],
    ids=["all", "known rewards", "no visits", "first visits"],
)
def test_without_noise_sums_are_those_of_the_query(query: CountQuery) -> None:
    data = people(700)  # in one call
    found = tables(kept(NoPrivacy(), query, Seeded(0), data, np.arange(700)))
    wanted = exact(query, data)
    assert set(found) == set(wanted)
    for name, table in wanted.items():
        assert np.array_equal(found[name], table)


def test_sums_depend_on_neither_order_nor_chunks() -> None:
    """Rewards of any value are summed exactly, on a grid of 2^-20."""
    rewards = np.random.default_rng(1).random((90, 4))
    data = people(90, rewards=rewards)
    one = tables(kept(Central(rho=0.5), QUERY, Seeded(4), data, np.arange(90)))
    turned = np.random.default_rng(2).permutation(90)
    session = Central(rho=0.5).stored(QUERY, Seeded(4))
    for begin in range(0, 90, 7):
        at = turned[begin : begin + 7]
        session.submit_many(
            Trajectories(data.states[at], data.actions[at], rewards[at]), begin + np.arange(at.size)
        )
    two = tables(session.release().keep())
    for name in one:
        assert np.array_equal(one[name], two[name])
    plain = tables(kept(NoPrivacy(), QUERY, Seeded(4), data, np.arange(90)))["centered_reward_sums"]
    assert np.abs(plain - exact(QUERY, data)["centered_reward_sums"]).max() < 90 * 2.0**-21


def test_secure_rewards_are_rounded_without_bias_and_kept_where_on_the_grid() -> None:
    """A reward of 0.3 is 1.2 units of 1/4: one in five goes up. False alarm 2e-9 (6 sigma)."""
    n = 4000
    for value, units in ((0.3, 1.2), (0.75, 3.0)):
        session = Central(rho=1e7).stored(QUERY, Secure(reward_grid=4))
        session.submit_many(people(n, rewards=np.full((n, 4), value)), np.arange(n))
        sums = session._tally._sums.sum() * 4 + 2 * 4 * n
        assert abs(sums - 4 * n * units) <= 6 * math.sqrt(4 * n * 0.16) * (value == 0.3)


# ------------------------------------------------------------------------------------- users, episodes


def test_users_and_their_episodes_are_counted() -> None:
    session = NoPrivacy().stored(THREE, Seeded(0))
    data = people(9)
    session.submit_many(part(data, 0, 4), np.array([-5, -5, 2, 7]))
    assert session.users == 3
    session.submit_many(part(data, 4, 6), [7, 7])
    assert session.users == 3
    session.absent(2)
    session.submit_many(part(data, 6, 9), np.array([8, 9, 9], np.uint8))
    release = session.release()
    assert release.users == 7
    found = tables(release.keep())
    assert np.array_equal(found["transition_counts"], exact(THREE, data)["transition_counts"])


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ([3, 3, 3, 3], r"user\[2\] = 3: must have at most 3 episodes"),
        ([3, 3, 4, 3], r"user\[3\] = 3: must not be below the user before it, 4"),
        ([2, 3, 4, 5], r"user\[0\] = 2: must not be below the user before it, 3"),
        ([4, 4, 4, 4], r"user\[3\] = 4: must have at most 3 episodes"),
        ([4.0, 5.0, 6.0, 7.0], "must be 4 integers"),
        ([4, 5, 6], "must be 4 integers"),
        ([[4, 5, 6, 7]], "must be 4 integers"),
        ([True, True, True, True], "must be 4 integers"),
    ],
)
def test_what_is_wrong_with_users_adds_nothing(user: Any, message: str) -> None:
    session = NoPrivacy().stored(THREE, Seeded(0))
    data = people(5)
    session.submit_many(part(data, 0, 1), [3])
    with pytest.raises(ValueError, match=message):
        session.submit_many(part(data, 1, 5), np.array(user))
    assert session.users == 1
    found = tables(session.release().keep())
    assert np.array_equal(found["visits"], exact(THREE, part(data, 0, 1))["visits"])


def test_one_episode_is_the_default() -> None:
    session = Central(rho=1.0).stored(QUERY, Seeded(0))
    session.submit_many(people(1), [0])
    with pytest.raises(ValueError, match="at most 1 episode "):
        session.submit_many(people(1), [0])


def broken(change: dict[str, np.ndarray]) -> Trajectories:
    data = people(4)
    return Trajectories(**{name: change.get(name, getattr(data, name)) for name in vars(data)})


def with_entry(name: str, at: tuple[int, int], value: Any) -> dict[str, np.ndarray]:
    array = np.array(getattr(people(4), name))
    array[at] = value
    return {name: array}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_entry("states", (2, 4), 3), r"trajectories\[2\].states\[4\] = 3"),
        (with_entry("states", (1, 0), -1), r"trajectories\[1\].states\[0\] = -1"),
        (with_entry("actions", (3, 1), 2), r"trajectories\[3\].actions\[1\] = 2"),
        (with_entry("rewards", (0, 3), 1.0001), r"trajectories\[0\].rewards\[3\] = 1.0001"),
        (with_entry("rewards", (3, 0), np.nan), r"trajectories\[3\].rewards\[0\] = nan"),
        ({"rewards": np.zeros((4, 5))}, "rewards has shape"),
        ({"actions": np.zeros((4, 4))}, "actions has dtype float64"),
        ({"states": np.full((4, 5), 2**63, np.uint64)}, r"trajectories\[0\].states\[0\]"),
    ],
)
@pytest.mark.parametrize("randomness", [Seeded(0), Secure()], ids=["seeded", "secure"])
def test_a_broken_record_adds_nothing(change: Any, message: str, randomness: Any) -> None:
    session = Central(rho=1.0).stored(QUERY, randomness)
    with pytest.raises(ValueError, match=message):
        session.submit_many(broken(change), np.arange(4))
    assert session.users == 0
    assert not any(counts.any() for counts in session._tally._counts)
    session.submit_many(people(1), [0])  # user 0 has not come yet
    assert session.users == 1


def test_an_inadmissible_action_is_refused() -> None:
    data = Trajectories(np.ones((2, 5), int), np.zeros((2, 4), int), np.zeros((2, 4)))
    with pytest.raises(ValueError, match=r"trajectories\[0\].actions\[0\] = 0: not admissible in state 1"):
        NoPrivacy().stored(QUERY, Seeded(0)).submit_many(data, [0, 1])


# ---------------------------------------------------------------------------------- order and hostility


def test_calls_out_of_order_raise() -> None:
    session = Central(rho=1.0).stored(QUERY, Seeded(0))
    with pytest.raises(RuntimeError, match="no user has been added"):
        session.release()
    with pytest.raises(ValueError, match="trajectories is a list"):
        session.submit_many([], [])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="len"):
        session.submit_many(people(0), [])
    with pytest.raises(ValueError, match="users = 0"):
        session.absent(0)
    session.submit_many(people(2), [0, 1])
    release = session.release()
    for call in (session.release, session.absent, lambda: session.submit_many(people(1), [5])):
        with pytest.raises(RuntimeError, match="closed"):
            call()
    assert [s.step for s in release] == [0, 1, 2, 3]
    assert list(release) == []
    with pytest.raises(RuntimeError, match="4 steps have been read"):
        release.keep()


def test_a_release_cannot_be_read_after_its_end() -> None:
    session = Central(rho=1.0).stored(QUERY, Seeded(0))
    session.submit_many(people(2), [0, 1])
    with session.release() as release:
        next(release)
    with pytest.raises(RuntimeError, match="closed"):
        next(release)


def test_copies_pickles_and_forks_of_a_release_are_refused() -> None:
    session = Central(rho=1.0).stored(QUERY, Seeded(0))
    session.submit_many(people(2), [0, 1])
    release = session.release()
    for attack in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="same noise again"):
            attack(release)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            list(release)
            os.write(writer, b"released")
        except RuntimeError:
            os.write(writer, b"refused")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 20) == b"refused"


def test_what_is_added_is_what_was_checked() -> None:
    """Arrays that say something else at a second look, or call back into the session, are read once."""

    class Changing:
        looks = 0

        def __array__(self, *_: Any, **__: Any) -> np.ndarray:
            self.looks += 1
            with pytest.raises(RuntimeError, match="running in this thread"):
                session.release()
            return np.full((1, 4), 0.5 if self.looks == 1 else 1e6)

    class Repeated:
        def __array__(self, *_: Any, **__: Any) -> np.ndarray:
            return np.zeros(3, int)

    session = NoPrivacy().stored(QUERY, Seeded(0))
    data = people(1)
    session.submit_many(Trajectories(data.states, data.actions, Changing()), [0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at most 1 episode "):
        session.submit_many(people(3), Repeated())  # type: ignore[arg-type]
    sums = tables(session.release().keep())["centered_reward_sums"]
    assert not sums.any()


def test_hostile_queries_and_randomness_are_refused() -> None:
    class Loud(CountQuery):
        def sensitivity(self, *_: Any) -> float:
            return 1e-9

    for privatizer in (NoPrivacy(), Central(rho=1.0)):
        with pytest.raises(ValueError, match="no subclass"):
            privatizer.stored(Loud(LAYOUT, center_rewards=True), Seeded(0))
        with pytest.raises(ValueError, match="randomness"):
            privatizer.stored(QUERY, 5)  # type: ignore[arg-type]
        for options in ({}, {"stationary": True}, {"center_rewards": True, "pooled": "all"}):
            with pytest.raises(ValueError, match="query"):
                privatizer.stored(CountQuery(LAYOUT, **options), Seeded(0))  # type: ignore[arg-type]


def test_scales_query_and_key_cannot_be_changed_from_outside() -> None:
    query, seed, data = CountQuery(LAYOUT, center_rewards=True), Seeded(5), people(3)
    twin = tables(kept(Central(rho=1.0), QUERY, Seeded(5), data, range(3)))
    session = Central(rho=1.0).stored(query, seed)
    session.submit_many(data, range(3))
    seed.keys.noise[:] = 0
    release = session.release()
    for seen in (query, session.query, release.query):
        families = seen.row_families
        families["visits"] = families.pop("visits")  # type: ignore[attr-defined, index]
        seen.layout.row_index[:] = 0
        seen.layout.state_ptr[:] = 0
        seen.offsets[:] = 0
    with pytest.raises(ValueError, match="read-only"):
        session.mechanism.scales[:] = 1e-9
    found = tables(release.keep())
    for name, table in twin.items():
        assert np.array_equal(found[name], table)


def test_a_release_shares_no_memory_with_exact_sums_and_is_read_only() -> None:
    session = NoPrivacy().stored(QUERY, Seeded(0))
    session.submit_many(people(3), range(3))
    counts, sums = list(session._tally._counts), session._tally._sums
    for step in session.release():
        for table in (step.transitions, step.visits, step.rewards):
            assert table is not None
            assert not any(np.shares_memory(table, one) for one in (*counts, sums))
            with pytest.raises(ValueError, match="read-only"):
                table[:] = 0


def test_an_interrupted_step_is_lost_and_no_noise_is_drawn_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C at any line of a release or a step: no noise is asked for twice, no exact sum is shown."""
    from discreet.mechanisms import seeded_noise_kernels as kernels

    drawn: list[int] = []
    fill = kernels.fill_noise

    def counted(family: int, key: Any, i: int, step: int, *rest: Any) -> None:
        drawn.append(step)
        fill(family, key, i, step, *rest)

    monkeypatch.setattr(kernels, "fill_noise", counted)
    data = people(3)
    truth = tables(kept(Central(rho=1.0), QUERY, Seeded(0), data, range(3)))["transition_counts"]
    lost = 0
    for at in itertools.count():
        session = Central(rho=1.0).stored(QUERY, Seeded(0))
        session.submit_many(data, range(3))
        drawn.clear()
        shown: list[Any] = []

        def read() -> None:
            for step in session.release():  # noqa: B023
                shown.append(step)  # noqa: B023

        stopped = interrupted(read, at, files=FILES)
        assert len(drawn) == len(set(drawn)) <= len(shown) + 1
        for step in shown:
            assert np.array_equal(step.transitions, truth[step.step])
        if stopped:
            lost += 1
            if len(drawn) > len(shown):  # a step was lost: there is no other release of it
                with pytest.raises(RuntimeError, match="closed"):
                    session.release()
        else:
            break
    assert lost > 60


def test_after_an_interrupt_inside_a_step_the_release_is_over() -> None:
    drawing = (
        "_call",
        "_calling_here",
        "_check_open",
        "__next__",
    )  # before anything is spent, or after all is
    for at in itertools.count():
        session = Central(rho=1.0).stored(QUERY, Secure())
        session.submit_many(people(3), range(3))
        release = session.release()
        next(release)
        if not interrupted(lambda: next(release), at, files=FILES, besides=drawing):  # noqa: B023
            break
        with pytest.raises(RuntimeError, match="step 1 was interrupted: its noise is spent"):
            next(release)
        assert not release._tally._counts
        with pytest.raises(RuntimeError, match="closed"):
            next(release)
    assert at > 20


# ---------------------------------------------------------------------------------------- calibration

BUDGETS: list[dict[str, Any]] = [
    {"rho": 0.5},
    {"mu": 0.7},
    {"epsilon": 1.0},
    {"epsilon": 1.0, "delta": 1e-6},
    {"epsilon": 1.0, "delta": 1e-6, "noise": "laplace"},
    {"epsilon": 1.0, "delta": 1e-6, "noise": "gaussian", "weights": (0.2, 0.5, 0.3)},
]


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("randomness", [Seeded(0), Secure(), Secure(2**14)], ids=["seeded", "secure", "fine"])
def test_noise_and_guarantee_are_those_of_a_scheduled_release(budget: Any, randomness: Any) -> None:
    """Whatever the number of users."""
    session = Central(**budget).stored(QUERY, randomness)
    for n in (1, 1000):
        other = Central(**budget).start(QUERY, Schedule.one_shot(n), randomness)
        numbers = [(g.epsilon, g.delta, g.rho, g.mu) for g in (session.guarantee, other.guarantee)]
        assert numbers[0] == numbers[1]
        assert (session.guarantee.trust, other.guarantee.trust) == ("central", "joint")
        assert np.array_equal(session.mechanism.scales, other.mechanism.scales)
        assert session.mechanism.family == other.mechanism.family
        assert session.laws == other.laws_at(n)
    assert numerical.verify(session.guarantee, session.records) <= session.guarantee.epsilon * 1.01  # type: ignore[operator]


@pytest.mark.parametrize(
    "options",
    [{"release": "tree"}, {"leaf": "user"}, {"calibration": "published", "epsilon": 1.0, "rho": None}],
)
def test_options_of_many_releases_are_refused(options: Any) -> None:
    with pytest.raises(ValueError, match="released once"):
        Central(**{"rho": 1.0, **options}).stored(QUERY, Seeded(0))


def test_several_episodes_are_refused_where_a_user_is_one_episode() -> None:
    for privatizer in (NoPrivacy(), Central(rho=1.0), Local(epsilon=1.0)):
        with pytest.raises(ValueError, match=r"query.episodes = 3: must be 1 .* privatizer.stored"):
            privatizer.start(THREE, Schedule.one_shot(5), Seeded(0))


def test_sessions_of_many_releases_keep_their_limit_of_cells() -> None:
    query = CountQuery(Layout(716, 25, 20), center_rewards=True, visits=False)
    with pytest.raises(ValueError, match=r"at most 2e\+08"):
        NoPrivacy().start(query, Schedule.one_shot(5), Seeded(0))
    assert Central(rho=1.0).stored(query, Seeded(0)).laws["transition_counts"].cells == 716 * 716 * 25 * 20  # type: ignore[attr-defined]


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("randomness", [Seeded(0), Secure()], ids=["seeded", "secure"])
def test_noise_for_m_episodes_is_m_times_as_large_by_closed_forms(budget: Any, randomness: Any) -> None:
    """Shifts of several units in a cell are on no list of exchanges: never less than m times the noise."""
    one, three = (Central(**budget).stored(q, randomness) for q in (QUERY, THREE))
    if one.mechanism.family == three.mechanism.family:
        ratio = three.mechanism.scales / one.mechanism.scales
        assert (ratio >= 3 * (1 - 1e-9)).all()
        if not one.records[0].exchanges:
            assert ratio == pytest.approx(3.0, rel=1e-9)
    assert not three.records[0].exchanges
    said = three.guarantee
    assert said.unit == "one user: up to 3 episodes, the whole trajectories of states, actions and rewards"
    assert "up to 3, are replaced" in said.neighbours
    assert "exchanging any one user's episodes (up to 3) for any others" in said.statement
    assert "g users together are protected at g" in said.statement
    assert numerical.verify(said, three.records) <= said.epsilon * 1.01  # type: ignore[operator]
    assert Guarantee.from_dict(said.to_dict()) == said


@pytest.mark.parametrize(
    "change",
    [
        {"unit": "one user: up to 2 episodes, the whole trajectories of states, actions and rewards"},
        {"unit": "one user: up to 0 episodes, the whole trajectories of states, actions and rewards"},
        {"unit": "one user: up to three episodes, the whole trajectories of states, actions and rewards"},
        {"unit": "one user: one episode, the whole trajectory of states, actions and rewards"},
        {"neighbours": "one user's whole trajectory is replaced by any other one"},
    ],
)
def test_a_guarantee_for_m_episodes_cannot_be_changed_in_one_place(change: Any) -> None:
    table = Central(rho=0.5).stored(THREE, Seeded(0)).guarantee.to_dict()
    with pytest.raises(ValueError, match="unit|neighbours|statement"):
        Guarantee.from_dict({**table, **change})


# ------------------------------------------------------------------------------- sensitivity, neighbours


def episodes_of(layout: Layout) -> Iterator[Trajectory]:
    for states in itertools.product(range(layout.states), repeat=layout.horizon + 1):
        for actions in itertools.product(range(layout.actions), repeat=layout.horizon):
            for rewards in itertools.product((0.0, 1.0), repeat=layout.horizon):
                yield Trajectory(np.array(states), np.array(actions), np.array(rewards))


@pytest.mark.parametrize("m", [2, 3])
@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"center_rewards": True},
        {"known_rewards": True, "visits": False},
        {"stationary": True},
        {"stationary": True, "first": True},
        {"pooled": "first"},
        {"groups": 2, "clip": 0.5},
    ],
    ids=str,
)
def test_people_with_up_to_m_episodes_move_no_more_than_m_times_one(m: int, norm: Any, options: Any) -> None:
    """All pairs of people with 0 .. m episodes each, H = 1; attained by raw families."""
    query = CountQuery(Layout(2, 2, 1), episodes=m, **options)
    rng = np.random.default_rng(3)
    for weight in (dict.fromkeys(query.families, 1.0), {n: rng.uniform(0.1, 2) for n in query.families}):
        one = np.unique(
            [
                np.concatenate([weight[n] * x.ravel() for n, x in query.contribution(t).items()])
                for t in episodes_of(query.layout)
            ],
            axis=0,
        )
        people = [np.zeros(one.shape[1])]
        for k in range(1, m + 1):
            people += [sum(pick) for pick in itertools.combinations_with_replacement(one, k)]  # type: ignore[misc]
        table = np.unique(np.array(people), axis=0)
        worst = 0.0
        for row in table:
            change = np.abs(table - row)
            size = change.sum(axis=1) if norm == "l1" else np.sqrt((change**2).sum(axis=1))
            worst = max(worst, float(size.max()))
        claimed = query.sensitivity(norm, weight)
        assert worst <= claimed * (1 + 1e-12)
        if not (query.center_rewards or query.groups or query.pooled != "none"):
            assert worst == pytest.approx(claimed, rel=1e-12)


def test_a_person_with_other_episodes_moves_the_sums_within_the_declared_sensitivity() -> None:
    """End to end, before noise: from none to m episodes, and from the worst m to the opposite m."""
    rng = np.random.default_rng(4)
    session = Central(rho=0.5).stored(THREE, Seeded(0))
    scales = dict(zip(THREE.row_families, session.mechanism.scales.tolist(), strict=True))
    most = THREE.sensitivity("l2", {name: 1 / scale for name, scale in scales.items()})
    assert most == pytest.approx(1.0)  # mu of rho = 1/2
    others = people(6, seed=5)
    extremes = [
        Trajectories(np.full((3, 5), s), np.full((3, 4), 1), np.full((3, 4), float(r)))
        for s, r in ((0, 1), (2, 0))
    ]
    versions = [*extremes, *(people(k, seed=int(rng.integers(1000))) for k in (1, 2, 3, 3))]
    found = []
    for own in (None, *versions):
        one = NoPrivacy().stored(THREE, Seeded(0))
        one.submit_many(others, [0, 0, 1, 2, 2, 2])
        one.absent() if own is None else one.submit_many(own, np.full(len(own), 3))
        release = one.release()
        assert release.users == 4
        found.append(tables(release.keep()))
    shifts = [
        math.sqrt(sum((((a[n] - b[n]) / scales[n]) ** 2).sum() for n in scales))
        for a, b in itertools.combinations(found, 2)
    ]
    assert max(shifts) <= most * (1 + 1e-9)
    assert max(shifts) > 0.9 * most


# ------------------------------------------------------------------------------------------------ noise


def noises(privatizer: Any, query: CountQuery, randomness: Any, runs: int) -> np.ndarray:
    """(runs, H, cells of a step) noise in units of its scale, from sessions of the same people."""
    data = people(2)
    truth = tables(kept(NoPrivacy(), query, Seeded(0), data, [0, 1]))
    out = []
    for run in range(runs):
        source = Seeded(7, run) if randomness is None else randomness
        release = kept(privatizer, query, source, data, [0, 1])
        parts = []
        for name, table in tables(release).items():
            parts.append(((table - truth[name]) / release.laws[name].std()).reshape(len(table), -1))
        out.append(np.concatenate(parts, axis=1))
    return np.array(out)


@pytest.mark.parametrize("query", [QUERY, FIRST], ids=["per step", "first visits"])
@pytest.mark.parametrize("budget", [{"rho": 0.5}, {"epsilon": 1.0}], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("randomness", [None, Secure()], ids=["seeded", "secure"])
def test_noise_is_independent_with_the_stated_variance(
    query: CountQuery, budget: Any, randomness: Any
) -> None:
    """Per cell, over cells and over steps. False alarm 1e-7 each by normal tails of means over 300 runs."""
    runs = 300
    found = noises(Central(**budget), query, randomness, runs)
    flat = found.reshape(runs, -1)
    z = 6.5  # 1e-10 each; about 3e3 looks at pairs, 2e2 at cells
    kurtosis = 6.0 if "epsilon" in budget else 3.0
    assert np.abs(flat.mean(axis=0)).max() < z / math.sqrt(runs)
    assert abs(flat.var() - 1) < z * math.sqrt((kurtosis - 1) / flat.size)
    assert np.abs((flat**2).mean(axis=0) - 1).max() < 2 * z * math.sqrt((kurtosis - 1) / runs)
    products = flat.T @ flat / runs
    np.fill_diagonal(products, 0.0)
    assert np.abs(products).max() < 1.5 * z / math.sqrt(runs)
    law = stats.laplace(scale=math.sqrt(0.5)) if "epsilon" in budget else stats.norm()
    if randomness is None:
        assert stats.kstest(flat.ravel(), law.cdf).pvalue > 1e-7


@pytest.mark.parametrize("block", [2**18, 100], ids=["one block", "threads"])
def test_secure_noise_is_discrete_gaussian_by_chi_square(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """False alarm 1e-9, or 1e-7 at most as cells are small: threads draw in any order (tests/chance.toml)."""
    monkeypatch.setattr(one_shot, "_BLOCK", block)
    layout = Layout(40, 1, 4)
    query = CountQuery(layout, known_rewards=True, visits=False)
    session = Central(epsilon=3.0, delta=1e-6, noise="gaussian").stored(query, Secure())
    sigma = float(session.mechanism.scales[0])
    session.absent()
    drawn = np.concatenate([step.transitions.ravel() for step in session.release()])
    assert np.array_equal(drawn, np.round(drawn))
    edges = np.arange(-math.ceil(2.5 * sigma), math.ceil(2.5 * sigma) + 1)
    support = np.arange(-math.ceil(14 * sigma), math.ceil(14 * sigma) + 1)
    mass = np.exp(-0.5 * (support / sigma) ** 2)
    mass /= mass.sum()
    inside = np.array([(drawn == k).sum() for k in edges])
    chance = np.array([mass[support == k][0] for k in edges])
    seen = np.append(inside, drawn.size - inside.sum())
    wanted = np.append(chance, 1 - chance.sum()) * drawn.size
    assert wanted.min() > 5
    assert stats.chisquare(seen, wanted).pvalue > 1e-9


def test_steps_of_a_seeded_release_have_streams_of_their_own() -> None:
    """The noise of a step depends on the run and the step, not on who came or what was read before."""
    release = Central(rho=1.0).stored(QUERY, Seeded(3))
    release.absent(5)
    one = release.release().keep()
    other = kept(Central(rho=1.0), QUERY, Seeded(3), people(7), range(7))
    counts = tables(kept(NoPrivacy(), QUERY, Seeded(3), people(7), range(7)))
    for name, table in tables(other).items():
        assert table - counts[name] == pytest.approx(tables(one)[name], abs=1e-9)
    steps = [one.step(h).transitions.ravel() for h in range(4)]
    for a, b in itertools.combinations(steps, 2):
        assert not np.intersect1d(a, b).size
    with pytest.raises(ValueError, match="h = 4"):
        one.step(4)
