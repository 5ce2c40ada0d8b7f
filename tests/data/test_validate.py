"""Rows of people become episodes, or one error that names the first offence and counts all."""

import hashlib
import itertools
import os
import threading
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from covering import pairwise

from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.data import validate
from discreet.data.row_batches import open_source
from discreet.data.sources import ParquetFile
from discreet.data.validate import KINDS, DataError, DatasetSize, check, episodes
from discreet.mechanisms.dataset.partial_aggregate import PartialAggregate

SMALL = {"batch_rows": 7, "memory": 2000}  # of some hundred rows: many batches, many partitions


def everyone(source, **how):
    """All episodes as tuples, and how many episodes each user has."""
    found, users = Counter(), Counter()
    for part in episodes(source, **how):
        users.update(part.user.tolist())
        kept = part.trajectories
        for trajectory in kept:
            found[
                (*trajectory.states.tolist(), *trajectory.actions.tolist(), *trajectory.rewards.tolist())
            ] += 1
    return found, users


def reference(rows, schema):
    """Slowly, from dictionaries."""
    found = Counter()
    by_episode = {}
    for row in rows:
        by_episode.setdefault((row["user"], row["episode"]), []).append(row)
    for steps in by_episode.values():
        steps.sort(key=lambda row: row["step"])
        states = [row["state"] for row in steps] + [steps[-1]["next_state"]]
        actions = [row["action"] for row in steps]
        rewards = [(row["reward"] - schema.low) / (schema.high - schema.low) for row in steps]
        while len(actions) < schema.horizon:
            assert states[-1] == 4
            states.append(4)
            actions.append(0)
            rewards.append((0 - schema.low) / (schema.high - schema.low))
        found[(*states, *actions, *rewards)] += 1
    return found


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("name", [int, str, lambda u: f"p{u:03}", lambda u: f"{(u * 7919) % 104729:x}"])
@pytest.mark.parametrize("mixed", [False, True])
def test_one_or_many_files_in_any_order_and_kind(schema, make, tmp_path, suffix, name, mixed) -> None:
    rows = make.people(60, name=name)
    given = make.shuffled(rows) if mixed else rows
    expected = reference(rows, schema)
    one = make.save(given, tmp_path / f"one{suffix}")
    folder = tmp_path / "many"
    folder.mkdir()
    for i in range(3):
        make.save(given[i * 50 : (i + 1) * 50 if i < 2 else None], folder / f"{i}{suffix}")
    for where in (one, folder, [str(path) for path in sorted(folder.iterdir())]):
        for how in ({}, SMALL):
            found, users = everyone(open_source(where, schema), **how)
            assert found == expected
            assert users == Counter(range(60))


def test_files_of_two_kinds_name_the_same_people(schema, make, tmp_path) -> None:
    rows = make.people(20)
    files = [make.save(rows[::2], tmp_path / "a.parquet"), make.save(rows[1::2], tmp_path / "b.csv")]
    assert everyone(open_source(files, schema), **SMALL)[0] == reference(rows, schema)


BREAKS = {
    "empty cell": lambda row: row.update(action=None),
    "state": lambda row: row.update(state=5),
    "action": lambda row: row.update(action=3),
    "reward": lambda row: row.update(reward=3.001),
    "inadmissible action": lambda row: row.update(action=2),
    "step": lambda row: row.update(step=4),
    "repeated step": None,
    "missing step": None,
    "broken chain": lambda row: row.update(state=3),
    "short episode": None,
    "left terminal": lambda row: row.update(next_state=1),
    "too many episodes": None,
}


def whole(user):
    """An episode of four steps through states 0, 1, 2, 0."""
    return [
        {"user": user, "episode": 0, "step": h, "state": s, "action": 0, "reward": 0.5, "next_state": z}
        for h, (s, z) in enumerate([(0, 1), (1, 2), (2, 0), (0, 3)])
    ]


def broken(kind):
    """Forty users; users 11 and 30 offend once each; the rows and the first offending row's number."""
    rows, first = [], None
    for user in range(40):
        mine, where = whole(user), None
        if user in (11, 30):
            if kind == "repeated step":
                mine.insert(2, dict(mine[1]))
                where = 2
            elif kind == "missing step":
                del mine[2]
                where = 2
            elif kind == "short episode":
                del mine[3]
                where = 2
            elif kind == "too many episodes":
                mine += [{**row, "episode": 1} for row in whole(user)]
                where = 4
            elif kind == "left terminal":
                mine[2]["next_state"] = mine[3]["state"] = 4
                mine[3]["next_state"] = 1
                where = 3
            else:
                where = 3 if kind in ("step", "broken chain") else 1
                BREAKS[kind](mine[where])
        if where is not None and first is None:
            first = len(rows) + where
        rows += mine
    return rows, first


@pytest.mark.parametrize("kind", BREAKS)
@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("how", [{}, SMALL])
def test_the_first_offence_is_named_and_all_are_counted(schema, make, tmp_path, kind, suffix, how) -> None:
    rows, first = broken(kind)
    path = make.save(rows, tmp_path / f"broken{suffix}")
    with pytest.raises(DataError) as error:
        check(open_source(path, schema), **how)
    assert error.value.counts[kind] == 2
    assert set(error.value.counts) <= {kind, *({"short episode"} if kind == "step" else ())}
    assert error.value.first[1] <= first
    if kind != "step":
        assert error.value.first == (kind, first)
    assert f"row {error.value.first[1]} (user" in str(error.value)
    assert f"{kind}: 2" in str(error.value)


@pytest.mark.parametrize("kind", sorted(set(BREAKS) - {"repeated step", "missing step"}))
def test_shuffled_rows_offend_alike(schema, make, tmp_path, kind) -> None:
    rows, first = broken(kind)
    offender = rows[first]
    mixed = make.shuffled(rows)
    path = make.save(mixed, tmp_path / "broken.parquet")
    with pytest.raises(DataError) as error:
        check(open_source(path, schema), **SMALL)
    assert error.value.counts[kind] == 2
    if kind not in ("step", "too many episodes"):
        assert mixed[error.value.first[1]]["user"] in (11, 30)
        assert error.value.first[1] <= mixed.index(offender)


def test_several_kinds_at_once(schema, make, tmp_path) -> None:
    rows = make.people(30)
    rows[40]["reward"] = float("nan")
    rows[20]["state"] = None
    rows[50]["action"] = -1
    with pytest.raises(DataError, match=r"x\.csv row 20 .*a cell is empty") as error:
        check(open_source(make.save(rows, tmp_path / "x.csv"), schema))
    assert error.value.counts == {"empty cell": 1, "action": 1, "reward": 1}


def test_words_where_numbers_should_be(schema, make, tmp_path) -> None:
    rows = make.people(30)
    rows[9]["state"], rows[33]["reward"], rows[34]["step"] = "ill", "much", "1.5"
    with pytest.raises(DataError) as error:
        check(open_source(make.save(rows, tmp_path / "x.csv"), schema), batch_rows=5)
    assert error.value.first == ("state", 9)
    assert "'ill'" in str(error.value)
    assert {"state", "reward", "step"} <= set(error.value.counts)


def test_a_line_with_too_few_fields(schema, make, tmp_path) -> None:
    path = make.save(make.people(10), tmp_path / "x.csv")
    path.write_text(path.read_text() + "3,1\n")
    with pytest.raises(DataError, match="must have as many fields") as error:
        check(open_source(path, schema))
    assert error.value.counts == {"malformed line": 1}
    assert error.value.first[0] == KINDS[-1]


def test_a_cut_episode(schema, make, tmp_path) -> None:
    path = make.save(whole(0)[:3], tmp_path / "x.parquet")
    with pytest.raises(DataError, match="must end in a terminal state"):
        check(open_source(path, schema))
    with pytest.raises(DataError, match="no terminal state is declared"):
        check(open_source(path, replace(schema, terminal=())))
    (part,) = episodes(open_source(path, replace(schema, unfinished="terminal")))
    assert part.trajectories.states.tolist() == [[0, 1, 2, 4, 4]]
    assert part.trajectories.rewards[0].tolist() == [0.375, 0.375, 0.375, 0.25]


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_an_empty_last_next_state_is_the_terminal_one(schema, make, tmp_path, suffix) -> None:
    rows = whole(0)[:2] + whole(1)
    rows[1]["next_state"] = None
    parts = episodes(open_source(make.save(rows, tmp_path / f"x{suffix}"), schema))
    states = np.concatenate([part.trajectories.states for part in parts])
    assert states.tolist() == [[0, 1, 4, 4, 4], [0, 1, 2, 0, 3]]
    rows[0]["next_state"] = None
    with pytest.raises(DataError) as error:
        check(open_source(make.save(rows, tmp_path / f"y{suffix}"), schema))
    assert error.value.first == ("empty cell", 0)


def test_m_episodes_of_each_user(schema, make, tmp_path) -> None:
    rows = make.people(25, each=5)
    path = make.save(rows, tmp_path / "x.parquet")
    assert check(open_source(path, replace(schema, episodes_per_user=5))) == DatasetSize(25, 125, len(rows))
    with pytest.raises(DataError) as error:
        check(open_source(path, replace(schema, episodes_per_user=3)))
    assert error.value.counts == {"too many episodes": 50}
    some = replace(schema, episodes_per_user=3, contribute="random")
    found, users = everyone(open_source(path, some), key=b"k")
    assert set(users.values()) == {3}
    assert not found - reference(rows, schema)
    other = make.save(make.shuffled(rows), tmp_path / "y.csv")
    assert everyone(open_source(other, some), key=b"k", **SMALL)[0] == found
    assert everyone(open_source(path, some), key=b"l")[0] != found
    assert everyone(open_source(path, some))[0] != everyone(open_source(path, some))[0]


def test_the_random_choice_is_uniform(schema, make, tmp_path) -> None:
    """Episode 0 is kept with probability 1/2: of 3000 users within 6 standard deviations (2e-9)."""
    rows = [
        {**row, "episode": e, "reward": float(e)} for u in range(3000) for e in (0, 1) for row in whole(u)
    ]
    path = make.save(rows, tmp_path / "x.parquet")
    some = replace(schema, contribute="random")
    kept = sum(
        int((part.trajectories.rewards[:, 0] == 0.25).sum())
        for part in episodes(open_source(path, some), key=b"fixed")
    )
    assert abs(kept - 1500) < 6 * (3000 / 4) ** 0.5


def test_no_raw_data_stay_in_the_scratch_folder(schema, make, tmp_path) -> None:
    path = make.save(make.shuffled(make.people(60)), tmp_path / "x.parquet")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for _ in episodes(open_source(path, schema), scratch=scratch, **SMALL):
        assert os.listdir(scratch) == []
    assert os.listdir(scratch) == []


def test_batches_are_small(schema, make, tmp_path) -> None:
    rows = make.people(200)
    for given in (rows, make.shuffled(rows)):
        path = make.save(given, tmp_path / "x.parquet")
        parts = list(episodes(open_source(path, schema), batch_rows=16, memory=5000))
        assert len(parts) > 10
        assert max(len(part.user) for part in parts) < 40
        assert parts[-1].rows == len(rows)
        assert np.array_equal(np.concatenate([part.user for part in parts]), np.arange(200))


@pytest.mark.parametrize("kind", [pa.int64(), pa.large_string()], ids=str)
def test_whether_rows_lie_together_by_brute_force(kind) -> None:
    """Against looking at all runs of equal users, over 600 short columns cut into batches anywhere."""
    draw, held = np.random.default_rng(7), Counter()
    for _ in range(600):
        keys = np.repeat(draw.integers(5, 13, draw.integers(1, 6)), draw.integers(1, 4)).tolist()
        runs = [key for i, key in enumerate(keys) if i == 0 or keys[i - 1] != key]
        column = pa.array([str(key) for key in keys] if kind != pa.int64() else keys, kind)
        cuts = [0, *np.flatnonzero(draw.random(len(keys) - 1) < 0.4) + 1, len(keys)]
        users = validate._Together()
        found = all(users.add(validate._look(column[a:b])) for a, b in itertools.pairwise(cuts))
        together = len(set(runs)) == len(runs)
        assert (found and bool(users)) == together
        held[together] += 1
    assert min(held.values()) > 100


def test_progress_is_told(schema, make, tmp_path) -> None:
    rows = make.people(20)
    seen = []
    path = make.save(rows, tmp_path / "x.parquet")
    check(open_source(path, schema), batch_rows=16, progress=lambda *now: seen.append(now))
    assert seen[-1] == ("check", len(rows), len(rows))
    assert seen[0] == ("look at the order", 16, len(rows))


def test_progress_is_told_by_the_thread_that_asks(schema, make, tmp_path) -> None:
    path = make.save(make.people(200), tmp_path / "x.parquet")
    threads = []

    def note(what, done, total):
        threads.append((threading.current_thread() is threading.main_thread(), what, done == total))

    check(open_source(path, schema), batch_rows=16, workers=3, progress=note)
    assert all(here for here, _, _ in threads)
    assert threads[-1] == (True, "check", True)


def test_who_takes_a_part_only_leaves_no_thread_behind(schema, make, tmp_path) -> None:
    path = make.save(make.people(500), tmp_path / "x.parquet")
    before = set(threading.enumerate())
    parts = episodes(open_source(path, schema), batch_rows=16, workers=3)
    next(parts)
    assert set(threading.enumerate()) > before
    parts.close()
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize("workers", [1, 3])
def test_small_files_that_fit_are_opened_once_more_than_their_footers(
    schema, make, tmp_path, monkeypatch, workers
) -> None:
    rows = make.people(80)
    rows[33]["reward"] = 77.0
    for i, begin in enumerate(range(0, len(rows), 10)):
        make.save(rows[begin : begin + 10], tmp_path / f"{i:03}.parquet")
    opened = Counter()
    whole = ParquetFile._open
    monkeypatch.setattr(ParquetFile, "_open", lambda self: (opened.update([self.name]), whole(self))[1])
    said = {}
    for memory in (len(rows) * 64, len(rows) * 64 - 1):
        opened.clear()
        source = open_source(tmp_path, schema)
        with pytest.raises(DataError, match=r"003\.parquet row 3 ") as caught:
            check(source, batch_rows=16, memory=memory, workers=workers)
        said[memory] = str(caught.value), max(opened.values())
    (one, few), (two, more) = said.values()
    assert one == two
    assert few < more


def test_steps_may_count_from_one(schema, make, tmp_path) -> None:
    rows = make.people(10)
    later = [{**row, "step": row["step"] + 1} for row in rows]
    path = make.save(later, tmp_path / "x.csv")
    assert everyone(open_source(path, replace(schema, first_step=1)))[0] == reference(rows, schema)
    with pytest.raises(DataError):
        check(open_source(path, schema))


def test_labels(schema, make, tmp_path) -> None:
    states, actions = ("a", "b", "c", "d", "1"), ("x", "y", "z")
    rows = make.people(10)
    named = [
        {**row, "state": states[row["state"]], "action": actions[row["action"]],
         "next_state": states[row["next_state"]]}
        for row in rows
    ]  # fmt: skip
    labelled = replace(schema, state_labels=states, action_labels=actions)
    for suffix in (".csv", ".parquet"):
        path = make.save(named, tmp_path / f"x{suffix}")
        assert everyone(open_source(path, labelled))[0] == reference(rows, schema)
        path = make.save([*named, {**named[0], "user": 99, "state": "e"}], tmp_path / f"y{suffix}")
        with pytest.raises(DataError, match="one of the schema's labels") as error:
            check(open_source(path, labelled))
        assert error.value.first == ("state", len(rows))


def test_known_rewards_take_the_place_of_the_files(schema, make, tmp_path) -> None:
    known = np.linspace(0, 1, 4 * 5 * 3).reshape(4, 5, 3)
    rows = make.people(10)
    for row in rows:
        del row["reward"]
    path = make.save(rows, tmp_path / "x.parquet")
    layout = Layout(5, 3, 4, schema.layout.mask)
    for part in episodes(open_source(path, replace(schema, layout=layout, known=known))):
        kept = part.trajectories
        assert np.array_equal(kept.rewards, known[np.arange(4), kept.states[:, :-1], kept.actions])


def test_a_file_that_changes_while_it_is_read(schema, make, tmp_path) -> None:
    rows = make.people(20)
    path = make.save(rows, tmp_path / "x.parquet")

    def meddle(what, done, total):
        if what == "look at the order" and done == total:
            make.save(make.shuffled(rows), path)

    with pytest.raises(ValueError, match="change while it was read"):
        check(open_source(path, schema), batch_rows=16, progress=meddle)


def counted(source, query, **how):
    """The tally of all episodes, and what else was found."""
    tally, rows = PartialAggregate(query), 0
    for part in episodes(source, **how):
        tally.add(part.trajectories, part.user)
        rows = part.rows
    return tally, rows


NAMES = {"numbers": int, "words": lambda u: f"{(u * 7919) % 104729:x}"}


@pytest.mark.parametrize(
    ("order", "name", "each"), pairwise(["sorted", "grouped", "shuffled"], NAMES, [1, 2])
)
def test_any_number_of_workers_counts_alike(schema, make, tmp_path, order, name, each) -> None:
    rows = make.people(120, each=each, name=name)
    if order == "grouped":  # everybody's rows lie together, in no order of people
        rows = sorted(rows, key=lambda row: hashlib.md5(str(row["user"]).encode()).digest())
    elif order == "shuffled":
        rows = make.shuffled(rows)
    source = open_source(make.save(rows, tmp_path / "rows.parquet"), replace(schema, episodes_per_user=each))
    query = CountQuery(schema.layout, center_rewards=True, episodes=each)
    found = [
        counted(source, query, workers=workers, **how)
        for workers in (1, 2, 120)
        for how in ({}, SMALL, {"batch_rows": 50})
    ]
    assert all(one == found[0] for one in found[1:])
    assert found[0][0].people == 120
    assert found[0][1] == len(rows)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("order", ["grouped", "shuffled"])
def test_any_number_of_workers_finds_the_same_offences(schema, make, tmp_path, order, workers) -> None:
    rows = make.people(200, name=lambda u: f"{(u * 7919) % 104729:x}")
    rows[11]["state"], rows[300]["reward"], rows[301]["reward"] = 77, 9.0, None
    given = make.shuffled(rows) if order == "shuffled" else rows
    path = make.save(given, tmp_path / "rows.parquet")
    least = min(given.index(rows[i]) for i in (11, 300, 301))
    for how in ({}, SMALL):
        with pytest.raises(DataError, match=rf"^rows.parquet row {least} \(") as caught:
            check(open_source(path, schema), workers=workers, **how)
        assert caught.value.counts["reward"] == 2
        assert caught.value.counts["state"] == 1


def test_who_comes_back_after_another_one_is_one_person(schema, make, tmp_path) -> None:
    """People in no order, together but for one, whose two episodes lie far apart: too many for one person."""
    rows = make.people(150, name=lambda u: f"{(u * 7919) % 104729:x}")
    again = [{**row, "episode": 1} for row in rows if row["user"] == rows[0]["user"]]
    path = make.save([*rows, *again], tmp_path / "rows.parquet")
    for how in ({}, SMALL):
        with pytest.raises(DataError, match="more than episodes_per_user = 1"):
            check(open_source(path, schema), **how)
        both = open_source(path, replace(schema, episodes_per_user=2))
        assert check(both, **how).users == 150


def test_many_small_files_are_read_as_one(schema, make, tmp_path) -> None:
    rows = make.people(80)
    one = open_source(make.save(rows, tmp_path / "one.parquet"), schema)
    folder = tmp_path / "many"
    folder.mkdir()
    for i, begin in enumerate(range(0, len(rows), 5)):
        make.save(rows[begin : begin + 5], folder / f"{i:03}{'.csv' if i % 10 == 9 else '.parquet'}")
    many = open_source(folder, schema)
    sizes = [table.num_rows for table in many.batches(batch_rows=20)]
    assert max(sizes) <= 20
    assert sum(sizes) == len(rows)
    assert len(sizes) < len(many.places)
    assert everyone(many) == everyone(one)
    make.save([{**row, "state": 9} for row in rows[5:10]], folder / "001.parquet")
    with pytest.raises(DataError, match=r"^001.parquet row 0 \(.*state = 9"):
        check(open_source(folder, schema))


def test_columns_that_change_between_two_looks_are_refused(schema, make, tmp_path) -> None:
    path = make.save(make.people(9), tmp_path / "rows.parquet")
    source = open_source(path, schema)
    make.save([{**row, "more": 1} for row in make.people(9)], path)
    with pytest.raises(ValueError, match="not what they were"):
        check(source)
