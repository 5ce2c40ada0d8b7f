"""Exact sums of disjoint people: equal however they were counted, of nobody twice, checked when read."""

import hashlib
import itertools
import json
import os
import pickle
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interrupts import interrupted

import discreet as dr
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.trajectories import Trajectories
from discreet.mechanisms.dataset import partial_aggregate as tally
from discreet.mechanisms.dataset.dataset_release import OneShotSession
from discreet.mechanisms.dataset.partial_aggregate import PartialAggregate
from discreet.mechanisms.saved_state import state_file as saved_state

LAYOUT = Layout(3, 2, 4, np.array([[True, True], [False, True], [True, True]]))
QUERY = CountQuery(LAYOUT, center_rewards=True)
THREE = replace(QUERY, episodes=3)
QUERIES = {
    "centred": QUERY,
    "raw": CountQuery(LAYOUT),
    "lean": CountQuery(LAYOUT, visits=False, center_rewards=True, reward_share=0.3),
    "known": CountQuery(LAYOUT, known_rewards=True),
    "stationary": CountQuery(LAYOUT, stationary=True),
    "step": CountQuery(LAYOUT, step=2, center_rewards=True),
    "pooled": CountQuery(LAYOUT, pooled="all", center_rewards=True),
}
ALL = pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)


def people(n: int, seed: int = 0, rewards: Any = None) -> Trajectories:
    rng = np.random.default_rng(seed)
    states = rng.integers(0, 3, (n, 5))
    actions = np.where(states[:, :-1] == 1, 1, rng.integers(0, 2, (n, 4)))
    return Trajectories(states, actions, rng.integers(0, 5, (n, 4)) / 4 if rewards is None else rewards)


def part(data: Trajectories, *at: int) -> Trajectories:
    who = list(at)
    return Trajectories(data.states[who], data.actions[who], data.rewards[who])


def counted(query: CountQuery = QUERY, n: int = 9, seed: int = 0, **how: Any) -> PartialAggregate:
    made = PartialAggregate(query, **how)
    made.add(people(n, seed), np.arange(n))
    return made


# ------------------------------------------------------------------------------------------ sums
@ALL
def test_sums_are_those_of_the_query_and_of_a_session(query: CountQuery) -> None:
    data = people(30)
    made = PartialAggregate(query)
    made.add(data)
    wanted = query.to_cells(
        {name: sum(query.contribution(one)[name] for one in data) for name in query.families}
    )
    np.testing.assert_array_equal(made.cells(), wanted)
    session = dr.NoPrivacy().start(query, dr.Schedule(31, times=np.array([0, 30])), dr.Seeded(0))
    session.begin(dr.Plan(np.zeros((4, 3), np.int64), 30))
    session.submit_many(data, 1)
    np.testing.assert_array_equal(made.cells(), session.state["cells"])
    made.check()


@ALL
def test_however_people_are_counted_the_sums_are_equal(query: CountQuery, monkeypatch: Any) -> None:
    """In one call, one by one, in blocks, in another order, on other machines: bit for bit."""
    rewards = np.random.default_rng(1).random((40, 4))
    data = people(40, rewards=rewards)
    whole = PartialAggregate(query, None)
    whole.add(data)
    monkeypatch.setattr(tally, "_BLOCK", 7)
    turned = np.random.default_rng(2).permutation(40)
    parts = [PartialAggregate(query, None) for _ in range(3)]
    for i, who in enumerate(turned.tolist()):
        parts[i % 3].add(part(data, who))
    blocks = PartialAggregate(query, None)
    blocks.add(data)
    for made in (blocks, parts[0] + parts[1] + parts[2], parts[2] + (parts[1] + parts[0])):
        assert made == whole
        assert made.people == 40
        assert made.cells().tobytes() == whole.cells().tobytes()
        assert PartialAggregate.from_bytes(made.to_bytes()) == whole
    assert parts[0].people == 14  # sums leave their parts as they are
    assert parts[0] != whole
    whole.absent()
    assert blocks != whole


def test_rewards_come_onto_the_grid() -> None:
    """At random and without bias: 0.3 is 1.2 units of 1/4; false alarm 2e-9 (6 sigma)."""
    n = 4000
    made = PartialAggregate(QUERY, 4)
    made.add(people(n, rewards=np.full((n, 4), 0.3)))
    units = made._sums.sum() * 4 + 2 * 4 * n
    assert units == int(units)
    assert abs(units - 4 * n * 1.2) <= 6 * np.sqrt(4 * n * 0.16)
    near = PartialAggregate(QUERY, None)
    near.add(people(5, rewards=np.full((5, 4), 0.3)))
    assert near.grid == 2**20
    assert near._sums.sum() + 0.5 * 20 == 20 * np.rint(0.3 * 2**20) / 2**20


# ---------------------------------------------------------------------------------------- people
def test_people_and_their_episodes_are_counted() -> None:
    made, data = PartialAggregate(THREE), people(9)
    made.add(part(data, 0, 1, 2, 3), [-5, -5, 2, 7])
    assert made.people == 3
    made.add(part(data, 4, 5), [7, 7])
    with pytest.raises(ValueError, match=r"user\[0\] = 7: must have at most 3 episodes"):
        made.add(part(data, 6), [7])
    with pytest.raises(ValueError, match=r"user\[0\] = 2: must not be below the user before it, 7"):
        made.add(part(data, 6), [2])
    with pytest.raises(ValueError, match="user = None: must be given where a user may have 3 episodes"):
        made.add(part(data, 6))
    made.absent(2)
    assert made.people == 5
    again = PartialAggregate.from_bytes(made.to_bytes())  # who came last is known there too
    with pytest.raises(ValueError, match=r"user\[0\] = 7: must have at most 3 episodes"):
        again.add(part(data, 6), [7])
    with pytest.raises(ValueError, match=r"user\[0\] = 7: must have at most 3 episodes"):
        (made + PartialAggregate(THREE)).add(part(data, 6), [7])
    made.check()


def test_somebody_new_in_between_does_not_hide_who_came_last() -> None:
    made, data = PartialAggregate(QUERY), people(9)
    made.add(part(data, 0), [3])
    made.add(part(data, 1))
    with pytest.raises(ValueError, match="must have at most 1 episode "):
        made.add(part(data, 2), [3])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"states": np.full((4, 5), 3)}, r"trajectories\[0\].states\[0\] = 3"),
        ({"rewards": np.full((4, 4), 1.5)}, r"rewards\[0\] = 1.5"),
        ({"rewards": np.full((4, 4), np.nan)}, r"rewards\[0\] = nan"),
        ({"actions": np.zeros((4, 4))}, "actions has dtype float64"),
        ({"states": np.ones((4, 5), int), "actions": np.zeros((4, 4), int)}, "not admissible in state 1"),
    ],
)
def test_a_broken_record_adds_nothing(change: Any, message: str) -> None:
    made = PartialAggregate(QUERY)
    with pytest.raises(ValueError, match=message):
        made.add(replace(people(4), **change))
    assert made == PartialAggregate(QUERY)


@pytest.mark.parametrize("user", [[0, 1], np.zeros(4), [0, 1, 1, 2], [3, 2, 1, 0], "abcd"])
def test_wrong_users_add_nothing(user: Any) -> None:
    made = PartialAggregate(QUERY)
    with pytest.raises(ValueError, match="user"):
        made.add(people(4), user)
    assert made == PartialAggregate(QUERY)


def test_what_is_no_query_of_a_tally_is_refused() -> None:
    wrong = (
        CountQuery(LAYOUT, groups=2, clip=1.0),
        CountQuery(LAYOUT, visits=False, center_rewards=True, cut=1.0),
        CountQuery(LAYOUT, pooled="first"),
    )
    for query in wrong:
        with pytest.raises(ValueError, match="a tally contains neither plans"):
            PartialAggregate(query)
    with pytest.raises(ValueError, match="query = .*: must be a CountQuery"):
        PartialAggregate(LAYOUT)  # type: ignore[arg-type]
    for grid in (0, 3, 2**21, True, 1.5):
        with pytest.raises(ValueError, match="grid = "):
            PartialAggregate(QUERY, grid)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be Trajectories"):
        PartialAggregate(QUERY).add(np.zeros((3, 5)))  # type: ignore[arg-type]


# ---------------------------------------------------------------------------- nobody counted twice
def test_people_who_are_here_already_are_refused() -> None:
    one, two, three = (counted(seed=seed) for seed in range(3))
    file = one.to_bytes()
    both = one + two
    other = PartialAggregate.from_bytes(file)
    other.add(people(2, 7), [20, 21])  # two continuations of one file
    unchanged = both + PartialAggregate(QUERY)
    for again in (
        one,
        two,
        both,
        PartialAggregate.from_bytes(file),
        other,
        pickle.loads(pickle.dumps(one)),
        two + three,
    ):
        with pytest.raises(ValueError, match="other: holds users who are in this tally already"):
            both.merge(again)
        assert both == unchanged
    with pytest.raises(ValueError, match="already"):
        one.merge(one)
    both.merge(three)
    assert both.people == 27
    both.check()


def test_in_whatever_order_tallies_are_merged_nobody_has_more_episodes_than_she_may() -> None:
    """She who was counted in one of them does not go on as somebody new after the other."""
    data = people(6)
    early, late = PartialAggregate(THREE), PartialAggregate(THREE)
    early.add(part(data, 0), [5])
    late.add(part(data, 1, 2), [7, 7])
    session = dr.NoPrivacy().stored(THREE, dr.Seeded(0))
    session.submit_tally(late)
    grown = PartialAggregate(THREE)
    grown.absent()
    grown.merge(late)
    for made in (early + late, late + early, grown):
        with pytest.raises(ValueError, match=r"user\[1\] = 7: must have at most 3 episodes"):
            (made + PartialAggregate(THREE)).add(part(data, 3, 4, 5), [7, 7, 8])
        with pytest.raises(ValueError, match=r"user\[0\] = 5: must not be below the user before it, 7"):
            made.add(part(data, 3), [5])
        made.add(part(data, 3, 4), [7, 8])
    with pytest.raises(ValueError, match=r"user\[1\] = 7: must have at most 3 episodes"):
        session.submit_many(part(data, 3, 4), [7, 7])
    with pytest.raises(ValueError, match=r"user\[0\] = 6: must not be below"):
        session.submit_many(part(data, 3), [6])
    # both end with number 7: whether that is one person is not known here, so the rest of both is hers
    both = late + counted(THREE, 1)
    twin = PartialAggregate(THREE)
    twin.add(part(data, 0), [7])
    for made in (late + twin, twin + late, both + twin):
        with pytest.raises(ValueError, match=r"user\[0\] = 7: must have at most 3 episodes"):
            made.add(part(data, 3), [7])
        made.check()


def test_unequal_tallies_are_refused() -> None:
    made = counted()
    others = [
        PartialAggregate(query)
        for query in (*list(QUERIES.values())[1:], THREE, replace(QUERY, layout=Layout(3, 2, 4)))
        if query.visits or query is not QUERIES["lean"]
    ]  # fmt: skip
    for other in (
        *others,
        PartialAggregate(QUERIES["lean"]),
        PartialAggregate(CountQuery(Layout(4, 2, 4), center_rewards=True)),
    ):
        with pytest.raises(ValueError, match="other.query: must sum the same"):
            made.merge(other)
    with pytest.raises(ValueError, match=r"other.grid = 1048576: must be 1024 or a coarser one"):
        made.merge(PartialAggregate(QUERY, None))
    with pytest.raises(ValueError, match="other = .*: must be a PartialAggregate"):
        made.merge(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        made + 3  # type: ignore[operator]
    assert made == counted()
    shares = CountQuery(LAYOUT, center_rewards=True, reward_share=0.3)  # of a budget: the same sums
    made.merge(counted(shares, grid=64))
    assert made.people == 18


def test_what_would_overflow_is_refused_and_nothing_is_added() -> None:
    made, other = counted(n=3), counted(n=2, seed=1)
    made._episodes = made._most - 4  # as if so many had come
    for call in (lambda: made.add(people(5)), lambda: made.merge(counted(n=5, seed=2))):
        with pytest.raises(ValueError, match=r"sums of more than \d+ episodes are not exact"):
            call()
    assert made.people == 3
    made.merge(other)
    made.add(people(2))
    with pytest.raises(ValueError, match="not exact"):
        made.add(people(1))
    made._people = 2**62 - 1
    with pytest.raises(ValueError, match="people = 2"):
        made.absent(2)
    with pytest.raises(ValueError, match="other.people"):
        (made + PartialAggregate(QUERY)).merge(_absent(5))
    # all in one cell: H records of an episode where steps are pooled
    assert PartialAggregate(QUERIES["stationary"])._most == PartialAggregate(QUERY)._most // 4
    assert PartialAggregate(QUERY, 2)._most == 2**32 - 1
    assert PartialAggregate(QUERY, None)._most == 2**31


def _absent(people: int) -> PartialAggregate:
    made = PartialAggregate(QUERY)
    made.absent(people)
    return made


def test_the_largest_sums_are_exact() -> None:
    """At the limit a cell of 32 bits is full and not over."""
    made, other = (
        PartialAggregate(CountQuery(Layout(1, 1, 1), known_rewards=True), 2),
        PartialAggregate(QUERY, 2),
    )
    one = PartialAggregate(CountQuery(Layout(1, 1, 1), known_rewards=True), 2)
    for tallied, episodes in ((made, 2**32 - 2), (one, 1)):
        tallied._counts[0][:], tallied._people, tallied._episodes = episodes, episodes, episodes
    made.merge(one)
    assert made.cells().tolist() == [2**32 - 1] * 2
    made.check()
    with pytest.raises(ValueError, match="not exact"):
        made.merge(PartialAggregate.from_bytes(_with_one(made)))
    assert other.people == 0


def _with_one(like: PartialAggregate) -> bytes:
    new = PartialAggregate(like.query, 2)
    new.add(Trajectories(np.zeros((1, 2), int), np.zeros((1, 1), int), np.zeros((1, 1))))
    return new.to_bytes()


def test_an_interrupt_loses_records_and_adds_none_that_is_not_counted() -> None:
    files = ("mechanisms/dataset/partial_aggregate.py", "mechanisms/dataset/partial_aggregate_kernels.py")
    for call in ("add", "merge"):
        for at in itertools.count():
            made, other = counted(n=3), counted(n=4, seed=1)
            doing = {"add": lambda: made.add(people(4, 1), range(3, 7)), "merge": lambda: made.merge(other)}  # noqa: B023
            more = interrupted(doing[call], at, files=files)
            assert made.people in (3, 7)
            assert all(counts.sum() in (3, 7) for counts in made._counts)
            if made.people == 3:
                assert made == counted(n=3)
            else:
                with pytest.raises(ValueError, match="already|user"):
                    doing[call]()
            if not more:
                made.check()
                break
        assert at > 10


# ------------------------------------------------------------------------------------------ files
def test_it_says_that_it_is_raw() -> None:
    made = counted()
    assert repr(made) == "<PartialAggregate of 9 people: raw data, not private>"
    assert b"raw, private to them, and protected by nothing" in made.to_bytes()
    assert "**These are raw data without any protection.**" in (PartialAggregate.__doc__ or "")
    assert not hasattr(made, "guarantee")
    with pytest.raises(TypeError):
        hash(made)


@ALL
def test_a_file_comes_back(query: CountQuery, tmp_path: Path) -> None:
    made = counted(query)
    made.absent(2)
    before = os.umask(0)
    try:
        made.save(tmp_path / "a")
    finally:
        os.umask(before)
    assert os.name != "posix" or stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    for again in (PartialAggregate.load(tmp_path / "a"), pickle.loads(pickle.dumps(made))):
        assert again == made
        assert again.query.families == query.families
        again.add(people(2, 3), [20, 21])  # it can be added to
        assert again.people == 13
    with pytest.raises(ValueError, match="exists already, a tally overwrites nothing"):
        made.save(tmp_path / "a")
    with pytest.raises(ValueError, match="folder does not exist"):
        made.save(tmp_path / "none" / "a")
    with pytest.raises(ValueError, match="is not a saved state"):
        dr.mechanisms.restore(tmp_path / "a", tmp_path / "table")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a"]


# a file may be left to the garbage collector between the end of its `with` and the call that closes it
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_in_save_leaves_a_whole_file_or_none(tmp_path: Path) -> None:
    made = counted()
    for at in itertools.count():
        place = tmp_path / f"{at}"
        place.mkdir()
        more = interrupted(
            lambda p=place: made.save(p / "a"), at, files=("mechanisms/dataset/partial_aggregate.py",
            "mechanisms/saved_state/state_file.py"),
            besides=("_encode", "__init__", "<genexpr>", "<listcomp>", "<dictcomp>"),
        )  # fmt: skip
        found = list(place.iterdir())
        assert [one.name for one in found] in ([], ["a"])
        assert not found or PartialAggregate.load(found[0]) == made
        if not more:
            break
    assert at > 30
    assert found


def _rewritten(content: bytes, change: Any) -> bytes:
    """With another header and a checksum that fits."""
    prelude = saved_state._PRELUDE
    magic, version, length = prelude.unpack(content[: prelude.size])
    header = json.loads(content[prelude.size : prelude.size + length])
    body = bytearray(content[prelude.size + length : -32])
    change(header, body)
    text = json.dumps(header).encode()
    whole = prelude.pack(magic, version, len(text)) + text + bytes(body)
    return whole + hashlib.sha256(whole).digest()


def _value(name: str, value: Any) -> Any:
    return lambda header, body: header["values"].update({name: value})


def _byte(at: int, value: int) -> Any:
    return lambda header, body: body.__setitem__(at, value)


@pytest.mark.parametrize(
    "change",
    [
        _value("_people", 8),
        _value("_people", -1),
        _value("_people", 9.0),
        _value("_people", 2**63),
        _value("_episodes", 8),
        _value("_episodes", -9),
        _value("_episodes", True),
        _value("_last", {"tuple": [3, 2]}),
        _value("_last", {"tuple": [3]}),
        _value("_last", 3),
        _value("_marks", []),
        _value("_marks", ["00"]),
        _value("_marks", "0" * 32),
        _value("_grid", 3),
        _value("_grid", 2),
        _value("_counts", []),
        _value("_counts", [{"array": 4}] * 4),
        _value("_counts", [{"array": 0}] * 4),
        _value("_sums", {"array": 0}),
        _value("_query", None),
        _value("_query", {"Layout": {"states": 3, "actions": 2, "horizon": 4}}),
        _value("news", 1),
        lambda header, body: header["values"].pop("_marks"),
        lambda header, body: header["values"]["_query"]["CountQuery"].update(stationary=True),
        lambda header, body: header["values"]["_query"]["CountQuery"].update(known_rewards=True),
        lambda header, body: header["arrays"][1].__setitem__(0, "<i4"),
        lambda header, body: header["arrays"][1].__setitem__(0, "<f4"),
        lambda header, body: header["arrays"][1].__setitem__(1, [5, 3]),
        lambda header, body: header["arrays"].pop(),
        _byte(6, 200),  # a count
        _byte(6 + 3, 255),
        _byte(-1, 0x7F),  # a sum of rewards
        _byte(-8, 1),
    ],
)
def test_a_forged_file_that_nobody_can_have_counted_is_refused(change: Any) -> None:
    content = counted().to_bytes()
    with pytest.raises(ValueError, match="content: "):
        PartialAggregate.from_bytes(_rewritten(content, change))


WIDE = CountQuery(Layout(40, 2, 4), center_rewards=True)


def wide(n: int) -> PartialAggregate:
    rng, made = np.random.default_rng(n), PartialAggregate(WIDE)
    states, actions = rng.integers(0, 40, (n, 5)), rng.integers(0, 2, (n, 4))
    made.add(Trajectories(states, actions, rng.integers(0, 5, (n, 4)) / 4), np.arange(n))
    return made


@pytest.mark.parametrize("n", [1, 3, 30, 700, 1200, 5000])
def test_tables_that_are_mostly_empty_are_small_in_bytes_and_the_same(n: int) -> None:
    made = wide(n)
    content = made.to_bytes()
    whole = sum(counts.nbytes for counts in made._counts)
    filled = sum(8 * np.count_nonzero(counts) for counts in made._counts)
    assert len(content) < min(whole, filled) + 8_000  # the header, and the sums of rewards
    again = PartialAggregate.from_bytes(content)
    assert again == made
    assert [counts.tobytes() for counts in again._counts] == [counts.tobytes() for counts in made._counts]
    other = wide(7)
    again.merge(other)  # into tables of its own
    np.testing.assert_array_equal(again.cells(), (made + other).cells())


def _array(at: int, **changed: Any) -> Any:
    """A change of a named array in the file: its type, or numbers of it."""

    def change(header: Any, body: Any) -> None:
        shape = header["arrays"][at][1]
        start = sum(4 * int(np.prod(one[1])) for one in header["arrays"][:at])
        if "kind" in changed:
            header["arrays"][at][0] = changed["kind"]
        for i, number in changed.get("numbers", {}).items():
            i %= shape[0]
            body[start + 4 * i : start + 4 * i + 4] = int(number).to_bytes(4, "little")

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_array(0, numbers={-1: 80 * 40}), "below 3200"),
        (_array(0, numbers={-1: 2**32 - 1}), "below 3200"),
        (_array(0, numbers={0: 3199}), "ascending order"),
        (_array(0, numbers={0: 7, 1: 7}), "ascending order"),
        (_array(1, numbers={0: 0}), "positive count"),
        (_array(1, numbers={0: 2}), "as many records"),
        (_array(0, kind="<i4"), "32-bit"),
        (_array(1, kind="<f4"), "32-bit"),
        (_value("_counts", [{"tuple": [{"array": 0}]}] * 4), "not a tally"),
        (_value("_counts", [{"tuple": [{"array": 0}, 3]}] * 4), "32-bit"),
        (_value("_counts", [{"tuple": [{"array": 8}, {"array": 8}]}] * 4), "32-bit"),
        (_value("_counts", {"array": 0}), "not a tally"),
    ],
)
def test_a_forged_file_of_few_cells_is_refused(change: Any, said: str) -> None:
    content = wide(30).to_bytes()
    np.testing.assert_array_equal(
        PartialAggregate.from_bytes(_rewritten(content, lambda header, body: None)).cells(), wide(30).cells()
    )
    with pytest.raises(ValueError, match=said) as caught:
        PartialAggregate.from_bytes(_rewritten(content, change))
    assert str(caught.value).startswith("content: ")


def test_people_who_vanish_between_steps_are_seen() -> None:
    """As many records at each step, but others leave a state than came into it."""
    made = counted()
    counts = made._counts[2].reshape(LAYOUT.rows, 3)
    row = int(np.flatnonzero(counts.any(axis=1))[0])
    other = next(r for r in range(LAYOUT.rows) if LAYOUT.row_state[r] != LAYOUT.row_state[row])
    after = int(np.flatnonzero(counts[row])[0])
    counts[row, after] -= 1
    counts[other, after] += 1
    with pytest.raises(ValueError, match=r"counts\[2\]: must leave the states"):
        PartialAggregate.from_bytes(made.to_bytes())


def test_damaged_bytes_are_refused() -> None:
    content = counted().to_bytes()
    for size in (0, 5, 20, 40, len(content) // 2, len(content) - 1):
        with pytest.raises(ValueError, match="content: "):
            PartialAggregate.from_bytes(content[:size])
    rng = np.random.default_rng(0)
    for at in rng.integers(0, len(content), 60).tolist():
        changed = bytearray(content)
        changed[at] ^= 1 << int(rng.integers(8))
        with pytest.raises(ValueError, match="content: "):
            PartialAggregate.from_bytes(bytes(changed))
    with pytest.raises(ValueError, match="damaged"):
        PartialAggregate.from_bytes(content + b"\0")


# ---------------------------------------------------------------------------------------- releases
def steps(session: Any) -> list[np.ndarray]:
    return [
        table
        for step in session.release()
        for table in (step.transitions, step.visits, step.rewards)
        if table is not None
    ]


@pytest.mark.parametrize("name", ["centred", "lean", "known"])
def test_a_release_of_tallies_is_the_release_of_their_people(name: str) -> None:
    query, data = replace(QUERIES[name], episodes=2), people(12)
    user = [0, 0, 1, 2, 3, 3, 4, 5, 6, 7, 7, 8]
    released = []
    for way in ("people", "tallies", "both", "restored"):
        session = dr.Central(rho=0.5).stored(query, dr.Seeded(4))
        here, there = PartialAggregate(query), PartialAggregate(query, 64)
        here.add(part(data, *range(6)), user[:6])
        there.add(part(data, *range(6, 12)), user[6:])
        if way == "people":
            session.submit_many(data, user)
        elif way == "tallies":
            session.submit_tally(there)
            session.submit_tally(PartialAggregate.from_bytes(here.to_bytes()))
        else:
            session.submit_tally(here)
            session.submit_many(part(data, *range(6, 12)), user[6:])
        session.absent()
        assert session.users == 10
        with pytest.raises(ValueError, match="already"):
            session.submit_tally(here if way != "people" else session._tally)
        released.append(steps(session))
        if way == "tallies":
            assert here.people == 4  # it is its keeper's
            here.check()
    for other in released[1:]:
        for a, b in zip(released[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_secure_release_takes_tallies_of_its_grid_or_a_coarser_one() -> None:
    session = dr.Central(rho=0.5).stored(QUERY, dr.Secure(64))
    for grid in (64, 4):
        session.submit_tally(counted(grid=grid))
    for grid in (128, None):
        with pytest.raises(ValueError, match="other.grid"):
            session.submit_tally(counted(grid=grid))
    assert session.users == 18
    for table in steps(session):
        assert (table * 64 == np.rint(table * 64)).all()


@pytest.mark.parametrize("randomness", [dr.Seeded(4), dr.Secure()], ids=["seeded", "secure"])
def test_stored_people_are_saved_and_restored_once(
    randomness: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(saved_state.FOLDER_VARIABLE, str(tmp_path / "table"))
    data, given = people(9), PartialAggregate(THREE)
    given.add(people(5, 3), range(-5, 0))  # all of them before those who come here
    whole = None
    if isinstance(randomness, dr.Seeded):
        session = dr.Central(rho=0.5).stored(THREE, randomness)
        session.submit_many(data, [0, 0, 1, 1, 1, 2, 3, 3, 4])
        session.submit_tally(given)
        whole = steps(session)
    session = dr.Central(rho=0.5).stored(THREE, randomness)
    session.submit_many(part(data, *range(4)), [0, 0, 1, 1])
    session.submit_tally(given)
    exact = session._tally + PartialAggregate(THREE)
    session.save(tmp_path / "a")
    content = (tmp_path / "a").read_bytes()
    with pytest.raises(RuntimeError, match="closed"):
        session.release()
    assert not session._tally._counts
    session = dr.mechanisms.restore(tmp_path / "a")
    assert isinstance(session, OneShotSession)
    assert session._tally == PartialAggregate(THREE, session._tally._grid) + exact
    with pytest.raises(ValueError, match="already"):
        session.submit_tally(given)
    with pytest.raises(ValueError, match="at most 3 episodes"):
        session.submit_many(part(data, 4, 5), [1, 1])
    session.submit_many(part(data, *range(4, 9)), [1, 2, 3, 3, 4])
    assert session.users == 10
    found = steps(session)
    if whole is not None:
        for a, b in zip(whole, found, strict=True):
            np.testing.assert_array_equal(a, b)
    (tmp_path / "b").write_bytes(content)
    with pytest.raises(RuntimeError, match="or a copy of it, was restored"):
        dr.mechanisms.restore(tmp_path / "b")


def test_every_attribute_of_a_session_of_stored_people_is_saved_or_derived() -> None:
    session = dr.Central(rho=0.5).stored(QUERY, dr.Seeded(0))
    named = [*session._BOUND, *session._STATE, *session._DERIVED]
    assert len(named) == len(set(named))
    assert set(vars(session)) == set(named) - {"_counted"}
    made = PartialAggregate(QUERY)
    assert set(vars(made)) == {*made._BOUND, *made._STATE, "_most", "_steps"}


@ALL
def test_any_number_of_threads_adds_alike(query: CountQuery, monkeypatch: pytest.MonkeyPatch) -> None:
    """More people than are added at once, so that steps are shared among threads."""
    data, found = people(2 * tally._BLOCK + 7, seed=5), []
    for threads in (1, 2, 3, 16):
        monkeypatch.setattr("discreet.utils.system.processors", lambda threads=threads: threads)
        one = PartialAggregate(query)
        one.add(data)
        one.check()
        found.append(one)
    assert all(one == found[0] for one in found[1:])
    assert all(np.array_equal(one.cells(), found[0].cells()) for one in found[1:])
