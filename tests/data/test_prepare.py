"""Records as they are become rows of trajectories: against a slow account of each rule, person by person."""

from __future__ import annotations

import itertools
import math
import os
import re
import shutil
import stat
import tomllib
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from discreet.data.prepare import COUNTS, Refused, prepare
from discreet.data.prepare_config import parse_declaration, read_prepare_config
from discreet.data.row_batches import open_source
from discreet.data.schema import read_schema
from discreet.data.validate import check

pytestmark = pytest.mark.filterwarnings(  # random records have readings at any time
    "ignore:readings taken after the action form states:UserWarning"
)

HOUR = 3_600_000_000
BASE = """
dataset = "ward"
unit = "patient"
horizon = {horizon}
episodes_per_user = 3
reward = {{ low = -100.0, high = 100.0 }}
[prepare]
user = "who"
episode = "stay"
time = "when"
duplicates = "remove"
long = "{long}"
{grid}
[prepare.values.x]
column = "x"
{x}
cuts = [2, 4]
[prepare.values.dose]
column = "dose"
within = "{sums}"
missing = {{ value = 0 }}
cuts = [0.0, 5]
closed = "right"
labels = ["none", "little", "much"]
[prepare.values.sex]
column = "sex"
of = "episode"
categories = {{ f = "female", F = "female", m = "male" }}
missing = "category"
[prepare.states]
product = ["sex", "x"]
[prepare.actions]
product = ["dose"]
{end}
[prepare.reward]
value = "dose"
{on}
"""
END = '[prepare.end]\ncolumn = "outcome"\nstates = { home = "well", died = "dead" }\nmissing = "lost"\n'


def records(seed: int, people: int = 12) -> pd.DataFrame:
    """Rows with gaps, repetitions and exact copies; several stays; facts that stand in some rows only."""
    draw = np.random.default_rng(seed)
    rows = []
    for who in range(people):
        for stay in range(int(draw.integers(1, 4))):
            begin = int(draw.integers(0, 1000)) * HOUR
            sex, outcome = draw.choice(["f", "F", "m", ""]), draw.choice(["home", "died", ""])
            stamps = draw.choice(np.arange(0, 40), int(draw.integers(2, 12)), replace=False)
            for at in stamps:
                row = {
                    "who": f"P{who}",
                    "stay": f"s{stay}",
                    "when": begin + int(at) * HOUR // 2,
                    "x": draw.integers(0, 7) + 0.5 if draw.random() < 0.6 else math.nan,
                    "dose": float(draw.integers(0, 7)) if draw.random() < 0.4 else math.nan,
                    "sex": sex if draw.random() < 0.7 else "",
                    "outcome": outcome if draw.random() < 0.7 else "",
                }
                rows += [row] * (1 + (draw.random() < 0.2))
    frame = pd.DataFrame(rows)
    frame["when"] = pd.to_datetime(frame["when"], unit="us")
    return frame.sample(frac=1.0, random_state=seed).reset_index(drop=True)


def gathered(rule: str, held: list[tuple[int, float]]) -> float:
    """One value of (time, value) pairs in order of time."""
    values = [value for _, value in held if not math.isnan(value)]
    if rule == "count":
        return float(len(values))
    if not values:
        return math.nan
    at = {"last": -1, "first": 0}
    if rule in at:
        return values[at[rule]]
    return {"sum": sum, "max": max, "min": min, "mean": lambda v: sum(v) / len(v)}[rule](values)


def slow(frame: pd.DataFrame, how: dict[str, Any]) -> list[tuple[Any, ...]]:
    """(person, stay, step, state, action, reward, next state) of each step."""
    stays: dict[tuple[str, str], list[Any]] = defaultdict(list)
    frame = frame.assign(when=frame["when"].astype("datetime64[us]").astype(np.int64))
    for row in sorted(frame.drop_duplicates().to_dict("records"), key=lambda row: row["when"]):
        stays[row["who"], row["stay"]].append(row)
    found = []
    for (who, stay), rows in stays.items():
        cells: dict[int, list[Any]] = defaultdict(list)
        for number, row in enumerate(rows):
            cells[(row["when"] - rows[0]["when"]) // (4 * HOUR) if how["grid"] else number].append(row)
        total = max(cells) + 1
        xs, doses, earlier = [], [], []
        for cell in range(total):
            held = cells.get(cell, [])
            xs.append(gathered(how["within"], [(row["when"], row["x"]) for row in held]))
            if how.get("before"):
                start = rows[0]["when"] + cell * 4 * HOUR
                acts = [row["when"] for row in held if not (math.isnan(row["dose"]) or row["dose"] == 0)]
                limit = min(acts, default=start + how["decision"])
                known = [(row["when"], row["x"]) for row in held if row["when"] < limit]
                earlier.append(gathered(how["within"], known))
            doses.append(gathered(how["sums"], [(row["when"], row["dose"]) for row in held]))
        xs = [xs[i - how["lag"]] if i >= how["lag"] else math.nan for i in range(total)]
        filled = []
        for i in range(total):
            near = [x for x in xs[max(0, i - how["carry"]) : i + 1] if not math.isnan(x)]
            filled.append(near[-1] if near else math.nan)
        if how.get("before"):  # of an earlier step every reading is before this one's action
            filled = []
            for i in range(total):
                near = [x for x in xs[max(0, i - how["carry"]) : i] if not math.isnan(x)]
                filled.append(earlier[i] if not math.isnan(earlier[i]) else near[-1] if near else math.nan)
        doses = [0.0 if math.isnan(dose) else dose for dose in doses]
        sexes = {row["sex"].lower() for row in rows} - {""}
        sex = {"f": "female", "m": "male"}[sexes.pop()] if sexes else "missing"

        def state(i: int, filled: list[float] = filled, sex: str = sex) -> str:
            x = filled[i]
            part = "x=missing" if math.isnan(x) else "x<2" if x < 2 else "2<=x<4" if x < 4 else "x>=4"
            return f"sex={sex} / {part}"

        outcomes = {row["outcome"] for row in rows} - {""}
        outcome = {"home": "well", "died": "dead"}[outcomes.pop()] if outcomes else "lost"
        horizon = how["horizon"]
        steps = min(total, horizon)
        for i in range(steps):
            over = total > horizon and how["long"] == "cut"
            after = state(i + 1) if i + 1 < steps or over else outcome
            action = "none" if doses[i] <= 0 else "little" if doses[i] <= 5 else "much"
            reward = doses[i] + (1.5 if after == "well" else 0)
            found.append((who, stay, i, state(i), action, reward, after))
    return found


def grouped(rows: list[tuple[Any, ...]]) -> list[Any]:
    """People as sets of their stays: names apart, which are numbers in the result."""
    people: dict[Any, dict[Any, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for who, stay, *rest in rows:
        people[who][stay].append(tuple(rest))
    return sorted(sorted(sorted(steps) for steps in stays.values()) for stays in people.values())


def made(folder: Path) -> list[tuple[Any, ...]]:
    table = parquet.read_table(folder / "rows.parquet")
    return [tuple(row.values()) for row in table.to_pylist()]


CASES = list(
    itertools.product(
        (True, False),
        ("last", "first", "mean", "max", "min", "sum", "count"),
        ("cut", "end"),
        (0, 1),
        (0, 1, 3),
    )
)


@pytest.mark.parametrize("seed", range(0, len(CASES), 3))
def test_against_the_slow_account(seed: int, tmp_path: Path) -> None:
    grid, within, long, lag, carry = CASES[seed]
    how = {
        "grid": grid, "within": within, "long": long, "lag": lag, "carry": carry, "horizon": 5,
        "sums": "max" if seed % 2 else "sum",
    }  # fmt: skip
    x = f'within = "{within}"\nlag = {lag}\ncarry = {carry}\nmissing = "category"'
    text = BASE.format(
        horizon=5, long=long, grid='step = "4 hours"' if grid else "", x=x, sums=how["sums"], end=END,
        on="on = { well = 1.5 }",
    )  # fmt: skip
    if not grid:
        text = text.replace(f'within = "{how["sums"]}"', "")
    (tmp_path / "P.toml").write_text(text)
    frame = records(seed)
    memory = (2**30, 3000)[seed % 2]
    done = prepare(frame, tmp_path / "P.toml", tmp_path / "out", memory=memory)
    expected = slow(frame, how if grid else {**how, "within": within if within == "count" else "last"})
    assert grouped(made(tmp_path / "out")) == grouped(expected)
    assert done.steps == len(expected)
    assert done.people == frame["who"].nunique()
    assert done.episodes == len(frame[["who", "stay"]].drop_duplicates())
    again = prepare(frame[::-1], tmp_path / "P.toml", tmp_path / "again", memory=memory)
    assert grouped(made(tmp_path / "again")) == grouped(expected)
    assert dict(again.counts) == dict(done.counts)
    assert done.counts.get("duplicate rows, removed", 0) == frame.duplicated().sum()


# ------------------------------------------------------------------------------------ small examples
def write(tmp_path: Path, text: str, rows: Any, name: str = "out", **how: Any) -> Path:
    (tmp_path / "P.toml").write_text(text)
    prepare(pd.DataFrame(rows), tmp_path / "P.toml", tmp_path / name, **how)
    return tmp_path / name


SMALL = """
dataset = "ward"
unit = "patient"
horizon = 2
reward = { low = 0.0, high = 1.0 }
[prepare]
user = "who"
time = { column = "when", numbers = "hours" }
step = "1 hour"
long = "cut"
[prepare.values.x]
column = "x"
within = "last"
cuts = [0]
labels = ["low", "high"]
[prepare.values.a]
column = "a"
within = "last"
categories = ["go", "stay"]
missing = { value = "stay" }
[prepare.states]
product = ["x"]
[prepare.actions]
product = ["a"]
[prepare.reward]
on = { high = 1.0 }
"""
ROWS = {"who": ["1"] * 3, "when": [0.0, 1.0, 2.0], "x": [-1.0, 1.0, 1.0], "a": ["go", "", "go"]}


def test_a_finished_folder_is_read_as_it_is(tmp_path: Path) -> None:
    out = write(tmp_path, SMALL, ROWS)
    assert made(out) == [
        (0, 0, 0, "low", "go", 1.0, "high"),
        (0, 0, 1, "high", "stay", 1.0, "high"),
    ]
    schema = read_schema(out / "schema.toml")
    assert schema.state_labels == ("low", "high")
    assert check(open_source(out / "rows.parquet", schema)).users == 1
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in out.iterdir()}
    assert modes["rows.parquet"] == modes[COUNTS] == 0o600
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    assert (out / "prepare.toml").read_text() == SMALL
    declared = read_prepare_config(tmp_path / "P.toml")
    assert declared.hash in (out / "schema.toml").read_text()
    assert tomllib.loads((out / "schema.toml").read_text())["dataset"] == "ward"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["P.toml", "out"]


def changed(**columns: Any) -> dict[str, Any]:
    return {**ROWS, **columns}


def test_messages_quote_nobody_and_the_private_file_does(tmp_path: Path) -> None:
    rows = changed(who=["Mrs. Jones"] * 3, x=[1.0, 2.0, math.nan], a=["go", "secretly", "go"])
    with pytest.raises(Refused) as error:
        write(tmp_path, SMALL, rows, offending=tmp_path / "mine.csv")
    assert "Jones" not in str(error.value)
    assert "secretly" not in str(error.value)
    (row,) = pd.read_csv(tmp_path / "mine.csv").to_dict("records")
    assert (row["user"], row["cell"], row["row"], row["column"]) == ("Mrs. Jones", "secretly", 1, "a")


def test_an_existing_folder_and_a_killed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = write(tmp_path, SMALL, ROWS)
    with pytest.raises(ValueError, match="must be a new folder"):
        write(tmp_path, SMALL, ROWS)

    def full(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        write(tmp_path, SMALL, ROWS, name="other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["P.toml", out.name]


def test_ranges_unreadable_cells_and_copies_as_declared(tmp_path: Path) -> None:
    text = SMALL.replace(
        'within = "last"\ncuts',
        'within = "last"\nrange = [-5, 5]\noutside = "missing"\nunreadable = "missing"\ncarry = 1\ncuts',
    )
    rows = changed(x=["1", "77", "<0.5"], when=[0, 1, 1.5])
    rows = {name: [*column, *column] for name, column in rows.items()}
    rows = {
        name: [*column, last] for (name, column), last in zip(rows.items(), ["1", 2, "-1", "go"], strict=True)
    }
    out = write(tmp_path, text, rows)
    assert made(out) == [(0, 0, 0, "high", "go", 1.0, "high"), (0, 0, 1, "high", "go", 0.0, "low")]
    counts = pd.read_json(out / COUNTS, typ="series").to_dict()
    assert counts["duplicate rows, removed"] == 3
    assert counts["x: outside of its range, missing"] == 2
    assert counts["x: cells that cannot be read, missing"] == 2
    for key in ("unreadable", "outside"):
        with pytest.raises(Refused):
            write(tmp_path, text.replace(f'{key} = "missing"', f'{key} = "refuse"'), rows, name="other")
    strict = text.replace('step = "1', 'duplicates = "refuse"\nstep = "1')
    with pytest.raises(Refused, match="row that is there twice: 3"):
        write(tmp_path, strict, rows, name="other")


def test_several_files_with_facts_and_items(tmp_path: Path) -> None:
    """A long table of items, a file of stays with outcomes, one of people; each column where it is."""
    text = """
dataset = "ward"
unit = "patient"
horizon = 3
episodes_per_user = 2
reward = { low = 0.0, high = 1.0 }
[prepare]
user = ["site", "who"]
episode = "stay"
time = "when"
step = "1 day"
begin = "admitted"
before = "leave out"
[prepare.values.x]
column = "value"
where = { item = ["heart rate", "HR"] }
within = "mean"
carry = 5
missing = { value = 70 }
cuts = [100]
labels = ["calm", "fast"]
[prepare.values.drug]
column = "value"
where = { item = "drug" }
within = "count"
cuts = [1]
labels = ["no", "yes"]
[prepare.values.old]
column = "age"
of = "episode"
cuts = [65]
labels = ["young", "old"]
[[prepare.states.rules]]
label = "alarm"
when = "x >= 100 or (old == 1 and x > 90)"
[[prepare.states.rules]]
label = "rest"
[prepare.actions]
product = ["drug"]
[prepare.end]
column = "outcome"
states = { "1" = "dead", "0" = "home" }
[prepare.reward]
on = { home = 1.0 }
""".replace("old == 1", "old >= 65")
    (tmp_path / "P.toml").write_text(text)
    when = [
        "2024-01-01",
        "2024-01-02 05:00",
        "2024-01-02 06:00",
        "2024-01-03T00:00:01",
        "2023-12-31",
        "2024-05-01",
    ]
    events = pd.DataFrame(
        {
            "site": ["A"] * 6,
            "who": [1, 1, 1, 1, 1, 2],
            "stay": [7, 7, 7, 7, 7, 9],
            "when": when,
            "item": ["HR", "drug", "heart rate", "HR", "HR", "drug"],
            "value": [80.0, 3.0, 95.0, 120.0, 500.0, 1.0],
        }
    )
    stays = pd.DataFrame(
        {
            "site": ["A", "A", "A"], "who": [1, 2, 3], "stay": [7, 9, 11], "outcome": [0.0, 1.0, 1.0],
            "admitted": ["2024-01-01", "2024-04-30 12:00", "2024-01-01"],
        }
    )  # fmt: skip
    people = pd.DataFrame({"site": ["A", "A", "A"], "who": [1, 2, 4], "age": [70, 30, 20]})
    events.to_csv(tmp_path / "events.csv", index=False)
    done = prepare([tmp_path / "events.csv", stays, people], tmp_path / "P.toml", tmp_path / "out")
    assert grouped(made(tmp_path / "out")) == grouped(
        [
            (1, 7, 0, "rest", "no", 0.0, "alarm"),
            (1, 7, 1, "alarm", "yes", 0.0, "alarm"),
            (1, 7, 2, "alarm", "no", 1.0, "home"),
            (2, 9, 0, "rest", "yes", 0.0, "dead"),
        ]
    )
    assert done.counts["rows before their episode begins, left out"] == 1
    assert done.counts["episodes with facts only, left out"] == 1
    with pytest.raises(ValueError, match="no file has the column 'age'"):
        prepare([tmp_path / "events.csv", stays], tmp_path / "P.toml", tmp_path / "none")
    with pytest.raises(ValueError, match="the table 1: must have|table 1: must have the column 'who'"):
        prepare([events, stays.drop(columns="who")], tmp_path / "P.toml", tmp_path / "none")
    twice = pd.concat([stays, stays.assign(outcome=[1.0, 1.0, 1.0])])
    with pytest.raises(Refused, match="end: two values in an episode: 1"):
        prepare([events, twice, people], tmp_path / "P.toml", tmp_path / "none")
    with pytest.raises(Refused, match="old: missing: 3"):
        prepare([events, stays, people[1:]], tmp_path / "P.toml", tmp_path / "none")
    with pytest.raises(Refused, match="episode without an outcome: 1"):
        prepare([events, stays[:1], people], tmp_path / "P.toml", tmp_path / "none")


def test_terminal_states_that_are_seen(tmp_path: Path) -> None:
    """A declared terminal state ends an episode when it is reached; what follows is left out and counted."""
    text = SMALL.replace("horizon = 2", 'horizon = 3\nterminal = { states = ["high"] }')
    out = write(tmp_path, text, changed(when=[0.0, 1.0, 5.0]) | {"x": [-1.0, 1.0, -1.0]})
    assert made(out) == [(0, 0, 0, "low", "go", 1.0, "high")]
    assert (
        pd.read_json(out / COUNTS, typ="series")["episodes with rows after a terminal state, left out"] == 1
    )
    with pytest.raises(Refused, match="begins in a terminal state: 1"):
        write(tmp_path, text, changed(x=[1.0, 1.0, 1.0]), name="no")
    with pytest.raises(Refused, match="ends before the horizon, without an end: 1"):
        write(tmp_path, text, changed(x=[-1.0, -1.0, -1.0]), name="no")
    cut = text.replace('["high"]', '["high"], unfinished = "terminal"')
    out = write(tmp_path, cut, changed(x=[-1.0, -1.0, -1.0]), name="cut")
    assert [row[2:4] for row in made(out)] == [(0, "low"), (1, "low")]


def test_rewards_at_ends_alone_become_a_rule(tmp_path: Path) -> None:
    """The schema that is written has the rule, as if it had been declared, and the screen says so."""
    text = SMALL.replace("horizon = 2", 'horizon = 3\nterminal = { states = ["high"] }')
    rows = pd.DataFrame(changed(when=[0.0, 1.0, 5.0]) | {"x": [-1.0, 1.0, -1.0]})
    declared = parse_declaration(tomllib.loads(text), tmp_path, text)
    found = prepare(rows, declared, tmp_path / "made")
    assert found.notes[0].startswith(
        'prepare.reward.on pays at ends only, so the schema has reward.outcomes = { "high" = 1 } and '
        "return_bound = [0, 1]"
    )
    ruled = text.replace("[prepare.reward]\non = { high = 1.0 }", "")
    ruled = re.sub(
        r"reward = \{ low.*\}",
        'reward = { low = 0, high = 1, outcomes = { "high" = 1 } }\nreturn_bound = 1.0', ruled,
    )  # fmt: skip
    plain = parse_declaration(tomllib.loads(ruled), tmp_path, ruled)
    assert not prepare(rows, plain, tmp_path / "ruled").notes
    assert made(tmp_path / "ruled")[0][-1] == "high"
    of_rule = read_schema(tmp_path / "made" / "schema.toml")
    assert of_rule.hash == read_schema(tmp_path / "ruled" / "schema.toml").hash
    assert of_rule.outcomes == {1: 1.0}
    assert of_rule.return_bound == (0.0, 1.0)
    keeps = text.replace("horizon = 3", "horizon = 3\nreturn_bound = [0.0, 2.0]")
    assert parse_declaration(tomllib.loads(keeps), tmp_path).schema.return_bound == (0.0, 2.0)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("on = { high = 1.0 }", "on = { low = 1.0 }"),  # a state that does not end an episode
        ("on = { high = 1.0 }", "on = { high = 1.0, low = 0.5 }"),
        ("on = { high = 1.0 }", 'on = { high = 1.0 }\nvalue = "pay"'),
        ("on = { high = 1.0 }", "on = { high = 0.0 }"),
    ],
)
def test_rewards_that_are_no_rule_of_ends_stay_as_they_are(tmp_path: Path, old: str, new: str) -> None:
    text = SMALL.replace("horizon = 2", 'horizon = 3\nterminal = { states = ["high"] }').replace(old, new)
    text = text.replace(
        "[prepare.states]", '[prepare.values.pay]\ncolumn = "x"\nwithin = "last"\n[prepare.states]'
    )
    declared = parse_declaration(tomllib.loads(text), tmp_path)
    assert not declared.ruled
    assert (declared.schema.outcomes, declared.schema.return_bound) == (None, None)


CENSORED = """
[prepare.end]
column = "out"
states = { h = "home", d = "dead" }
censored = ["transferred", ""]
"""


def test_censored_ends_are_a_state_and_nobody_is_left_out(tmp_path: Path) -> None:
    text = SMALL.replace("on = { high = 1.0 }", "on = { home = 1.0 }").replace(
        "[prepare.reward]", f"{CENSORED}[prepare.reward]"
    )
    rows = pd.DataFrame([
        {"who": who, "when": float(at), "x": -1.0, "a": "go", "out": out}
        for who, out in enumerate(["h", "d", " transferred ", "", None, "NA"]) for at in range(2)
    ])  # fmt: skip
    declared = parse_declaration(tomllib.loads(text), tmp_path, text)
    found = prepare(rows, declared, tmp_path / "made")
    last = [row[-1] for row in made(tmp_path / "made") if row[2] == 1]
    assert last == ["home", "dead", *["censored"] * 4]
    assert (found.people, found.counts["episodes with a censored end"]) == (6, 4)
    assert "66.7% of the episodes end censored (4 of 6). They are not removed" in found.notes[1]
    schema = read_schema(tmp_path / "made" / "schema.toml")
    assert schema.state_labels == ("low", "high", "home", "dead", "censored")
    assert schema.terminal == (2, 3, 4)
    assert schema.censored == 4
    assert schema.outcomes == {2: 1.0, 3: 0.0}
    assert schema.returns.outcomes == {2: 1.0, 3: 0.0, 4: 0.5}
    unknown = rows.assign(out=rows["out"].replace("h", "moved"))
    with pytest.raises(Refused, match="end: unknown category"):
        prepare(unknown, declared, tmp_path / "unknown")
    only = text.replace('["transferred", ""]', '["transferred"]')
    with pytest.raises(Refused, match="without an outcome: 3"):
        prepare(rows, parse_declaration(tomllib.loads(only), tmp_path, only), tmp_path / "only")


def test_masks_rewards_and_too_many_episodes(tmp_path: Path) -> None:
    (tmp_path / "mask.csv").write_text("state,action\nlow,go\nlow,stay\nhigh,go\n")
    text = SMALL.replace("[prepare]", 'actions = { mask = "mask.csv" }\n[prepare]', 1)
    with pytest.raises(Refused, match="action that the mask does not admit: 1"):
        write(tmp_path, text, ROWS)
    with pytest.raises(Refused, match="reward outside of its range: 2"):
        write(tmp_path, SMALL.replace("on = { high = 1.0 }", "on = { high = 3.0 }"), ROWS)
    stays = SMALL.replace('user = "who"', 'user = "who"\nepisode = "stay"')
    rows = {name: [*column, *column] for name, column in ROWS.items()} | {"stay": [1, 1, 1, 2, 2, 2]}
    with pytest.raises(Refused, match="more than 1 episode of one patient: 1"):
        write(tmp_path, stays, rows)
    out = write(tmp_path, "episodes_per_user = 2\n" + stays, rows)
    assert check(open_source(out / "rows.parquet", read_schema(out / "schema.toml"))).episodes == 2


def test_a_codebook(tmp_path: Path) -> None:
    text = SMALL.replace(
        '[prepare.states]\nproduct = ["x"]',
        '[prepare.values.y]\ncolumn = "y"\nwithin = "mean"\n[prepare.states.codebook]\nfile = "centres.csv"\n'
        "scale = { x = 2.0, y = 10.0 }",
    )
    (tmp_path / "centres.csv").write_text("y,x,label\n0,-1,low\n10,1,high\n")
    out = write(tmp_path, text, ROWS | {"y": [0.0, 4.0, 9.0]})
    assert [row[3] for row in made(out)] == ["low", "high"]
    assert (out / "centres.csv").read_text() == (tmp_path / "centres.csv").read_text()
    (tmp_path / "P2.toml").write_text(
        text.replace("= 10.0 }", "= 10.0 }\nshift = { x = 1.0 }\nscaled = true")
    )
    (tmp_path / "centres.csv").write_text("x,y,label\n-1,0,low\n0,1,high\n")
    prepare(pd.DataFrame(ROWS | {"y": [0.0, 4.0, 9.0]}), tmp_path / "P2.toml", tmp_path / "scaled")
    assert made(tmp_path / "scaled") == made(out)


def test_nearest_centres_by_brute_force() -> None:
    from discreet.data.prepare_config import nearest

    draw = np.random.default_rng(3)
    points, centres = draw.normal(100, 3, (500, 4)), draw.normal(100, 3, (30, 4))
    distance = ((points[:, None] - centres[None]) ** 2).sum(axis=2)
    points[7, 2] = math.nan
    found = nearest(points, centres, rows=64)
    assert found[7] == -1
    rest = np.arange(500) != 7
    assert np.array_equal(found[rest], distance.argmin(axis=1)[rest])


# -------------------------------------------------------------------------------------------- time
def clocked(tmp_path: Path, stamps: Any, time: str, name: str = "out") -> list[Any]:
    text = SMALL.replace('time = { column = "when", numbers = "hours" }', f"time = {time}")
    text = text.replace("horizon = 2", "horizon = 9").replace(
        "[prepare.states]", '[prepare.end]\ncolumn = "who"\nstates = { "1" = "end" }\n[prepare.states]'
    )
    rows = {"who": ["1"] * len(stamps), "when": stamps, "x": [1.0] * len(stamps), "a": ["go"] * len(stamps)}
    text = text.replace('missing = { value = "stay" }', 'carry = 0\nmissing = { value = "stay" }')
    text = text.replace("cuts = [0]", "missing = { value = 0 }\ncuts = [0]")
    out = write(tmp_path, text, rows, name=name)
    return [row[2] for row in made(out) if row[4] == "go"]


def test_stamps_of_every_kind(tmp_path: Path) -> None:
    iso = ["2024-03-01 08:00", "2024-03-01T09:30:00.25", "2024-03-01 11"]
    assert clocked(tmp_path, iso, '"when"', "a") == [0, 1, 3]
    german = ["01.03.2024 08:00", "01.03.2024 09:30", "01.03.2024 11:59"]
    assert clocked(tmp_path, german, '{ column = "when", format = "%d.%m.%Y %H:%M" }', "b") == [0, 1, 3]
    typed = pd.to_datetime(iso, format="ISO8601")
    assert clocked(tmp_path, typed, '"when"', "c") == [0, 1, 3]
    assert clocked(tmp_path, [0, 90, 181], '{ column = "when", numbers = "minutes" }', "d") == [0, 1, 3]
    mixed = ["2024-03-01T08:00:00Z", "2024-03-01 10:30", "2024-03-01T12:00:00+01:00"]
    zone = '{ column = "when", zone = "Europe/Berlin" }'
    assert clocked(tmp_path, mixed, zone, "e") == [0, 1, 3]
    assert clocked(tmp_path, typed.tz_localize("UTC"), zone, "f") == [0, 1, 3]
    with pytest.raises(Refused, match="time that cannot be read: 2"):
        clocked(tmp_path, mixed, '"when"', "g")
    with pytest.raises(ValueError, match=r"declare prepare\.time\.zone"):
        clocked(tmp_path, typed.tz_localize("UTC"), '"when"', "h")
    wrong = ["31.02.2024 08:00", "2024-13-01", "1.3."]
    with pytest.raises(Refused, match="time that cannot be read: 3"):
        clocked(tmp_path, wrong, '{ column = "when", format = "%d.%m.%Y %H:%M" }')


def test_the_hour_that_is_not_and_the_hour_that_is_twice(tmp_path: Path) -> None:
    zone = '{{ column = "when", zone = "Europe/Berlin", ambiguous = "{}" }}'
    spring = ["2024-03-31 01:30", "2024-03-31 03:30"]
    assert clocked(tmp_path, spring, zone.format("refuse"), "a") == [0, 1]  # an hour, by the clock two
    with pytest.raises(Refused, match=r"time that does not exist: 1(?s:.*)clocks skip that hour(?s:.*)zone"):
        clocked(tmp_path, [*spring, "2024-03-31 02:30"], zone.format("later"), "b")
    autumn = ["2024-10-27 01:30", "2024-10-27 02:30", "2024-10-27 03:30"]
    assert clocked(tmp_path, autumn, zone.format("earlier"), "c") == [0, 1, 3]
    assert clocked(tmp_path, autumn, zone.format("later"), "d") == [0, 2, 3]
    with pytest.raises(Refused, match=r'time that exists twice: 1(?s:.*)declare time.ambiguous = "earlier"'):
        clocked(tmp_path, autumn, zone.format("refuse"), "e")


def test_rows_without_a_time_as_declared(tmp_path: Path) -> None:
    when = '{ column = "when", unreadable = "leave out" }'
    assert clocked(tmp_path, ["2024-01-01", "soon", "", "2024-01-01 02:10"], when) == [0, 2]
    with pytest.raises(Refused, match="episode of which no row is left: 1"):  # nobody vanishes by her values
        clocked(tmp_path, ["soon", "later"], when, "gone")


def test_names_that_look_alike(tmp_path: Path) -> None:
    rows = {name: [*column, *column] for name, column in ROWS.items()}
    rows["who"] = ["p07"] * 3 + ["P07 "] * 3
    with pytest.warns(UserWarning, match="^1 of the names in 'who'"):
        write(tmp_path, SMALL, rows)
    folded = SMALL.replace('user = "who"', 'user = "who"\nnames = "folded"')
    rows["when"] = [0, 0.2, 1.5, 0.5, 1, 2]
    out = write(tmp_path, folded, rows, name="folded")
    assert {row[0] for row in made(out)} == {0}


def test_a_column_of_nothing_and_an_empty_file(tmp_path: Path) -> None:
    nothing = SMALL.replace('labels = ["low", "high"]', 'labels = ["low", "high"]\nmissing = { value = 1 }')
    out = write(tmp_path, nothing, changed(x=[None, None, None], a=[None] * 3))
    assert [row[3:5] for row in made(out)] == [("high", "stay")] * 2
    with pytest.raises(ValueError, match="must hold a row of at least one user"):
        write(tmp_path, SMALL, {name: [] for name in ROWS}, name="none")


def test_lines_with_too_few_fields(tmp_path: Path) -> None:
    (tmp_path / "P.toml").write_text(SMALL)
    (tmp_path / "x.csv").write_text("who;when;x;a\n1;0;1;go\n1;1\n1;2;1;go\n")
    with pytest.raises(Refused, match="line with a wrong number of fields: 1"):
        prepare(tmp_path / "x.csv", tmp_path / "P.toml", tmp_path / "out")


def test_numbers_in_german(tmp_path: Path) -> None:
    (tmp_path / "P.toml").write_text(SMALL)
    (tmp_path / "x.csv").write_text("who;when;x;a\n1;0;-0,5;go\n1;1;0,5;go\n1;2,5;n/a;go\n1;2;1;go\n")
    with pytest.raises(Refused) as error:
        prepare(tmp_path / "x.csv", tmp_path / "P.toml", tmp_path / "out", decimal=",")
    assert error.value.counts == {"x: number that cannot be read": 1}
    (tmp_path / "x.csv").write_text("who;when;x;a\n1;0;-0,5;go\n1;1;0,5;go\n1;2,5;NA;go\n1;2;1;go\n")
    prepare(tmp_path / "x.csv", tmp_path / "P.toml", tmp_path / "out", decimal=",")
    assert [row[3] for row in made(tmp_path / "out")] == ["low", "high"]


def test_parts_and_memory_change_nothing(tmp_path: Path) -> None:
    frame = pa.Table.from_pandas(records(5, people=200))
    text = BASE.format(
        horizon=5, long="cut", grid='step = "4 hours"', x='within = "mean"\nmissing = "category"', sums="sum",
        end=END, on="",
    )  # fmt: skip
    declared = parse_declaration(tomllib.loads(text), tmp_path, text)
    whole = prepare(frame, declared, tmp_path / "whole")
    parts = prepare(frame, declared, tmp_path / "parts", memory=20_000, scratch=tmp_path)
    assert grouped(made(tmp_path / "whole")) == grouped(made(tmp_path / "parts"))
    assert whole.counts == parts.counts
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts", "whole"]


# ------------------------------------------------------------------------------- before the action
@pytest.mark.parametrize("carry", [0, 2])
@pytest.mark.parametrize("within", ["last", "first", "mean", "max", "min", "sum", "count"])
def test_readings_before_the_action_against_the_slow_account(within: str, carry: int, tmp_path: Path) -> None:
    how = {
        "grid": True, "within": within, "long": "cut", "lag": 0, "carry": carry, "horizon": 5, "sums": "sum",
        "before": True, "decision": 2 * HOUR,
    }  # fmt: skip
    text = BASE.format(
        horizon=5, long="cut", grid='step = "4 hours"\ndecision = "2 hours"', sums="sum", end=END,
        x=f'within = "{within}"\nbefore = "action"\ncarry = {carry}\nmissing = "category"',
        on="on = { well = 1.5 }",
    )  # fmt: skip
    declared = parse_declaration(tomllib.loads(text), tmp_path, text)
    frame = records(40 + carry, people=25)
    expected = grouped(slow(frame, how))
    assert expected != grouped(slow(frame, {**how, "before": False}))
    half = len(frame) // 2
    ways = {
        "whole": (frame, {}),
        "parts": (frame[::-1], {"memory": 3000}),
        "files": ([frame[half:], frame[:half]], {"memory": 3000, "scratch": tmp_path}),
    }
    for name, (where, more) in ways.items():
        done = prepare(where, declared, tmp_path / name, **more)
        assert grouped(made(tmp_path / name)) == expected
        assert not any("later than the action" in reason for reason in done.counts)


EARLY = (
    SMALL.replace("cuts", 'before = "action"\nmissing = { value = 9 }\ncuts')
    .replace("cuts = [0]", "cuts = [0, 5]").replace('["low", "high"]', '["low", "high", "none"]')
    .replace('step = "1 hour"', 'step = "1 hour"\ndecision = "30 minutes"')
)  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "states"),
    [
        # the reading just before the action counts, the one at its time and the one after it do not
        ([(0.0, -1, ""), (0.2, 1, ""), (0.3, -1, "go"), (0.4, -1, "")], ["high", "none"]),
        ([(0.0, -1, ""), (0.3, 1, ""), (0.3, None, "go")], ["low", "none"]),
        ([(0.3, None, "go"), (0.4, 1, "")], ["none", "none"]),
        ([(0.1, -1, ""), (0.4, 1, "go"), (0.2, 1, ""), (0.1, None, "stay")], ["none", "none"]),
        # without an action up to the decision, and not at its time
        ([(0.0, -1, ""), (0.499, 1, ""), (0.5, -1, ""), (0.9, -1, "")], ["high", "none"]),
        # an action after the decision: up to the action
        ([(0.0, -1, ""), (0.7, 1, ""), (0.8, None, "go"), (0.9, -1, "")], ["high", "none"]),
        # a step's own action, not that of the step before
        ([(0.0, -1, "go"), (1.1, 1, ""), (1.2, -1, "go")], ["none", "high"]),
    ],
)
def test_which_readings_are_before_the_action(tmp_path: Path, rows: Any, states: Any) -> None:
    rows = [(0.0, None, "") if i == 0 else row for i, row in enumerate([rows[0], *rows])]
    rows = [*rows, (1.0, None, ""), (2.0, None, "")]
    frame = {"who": ["1"] * len(rows), **dict(zip(("when", "x", "a"), zip(*rows, strict=True), strict=True))}
    out = write(tmp_path, EARLY, {name: list(column) for name, column in frame.items()})
    assert [row[3] for row in made(out)] == states


def test_an_order_within_one_time_does_not_make_a_reading_earlier(tmp_path: Path) -> None:
    """A sequence number says when a row was written; reading and action still have one time."""
    text = EARLY.replace('numbers = "hours"', 'numbers = "hours", then = "seq"')
    rows = {"who": ["1"] * 4, "when": [0.0, 0.0, 1.0, 2.0], "seq": [1, 2, 3, 4]}
    out = write(tmp_path, text, {**rows, "x": [1.0, None, None, None], "a": ["", "go", "", ""]})
    assert [row[3] for row in made(out)] == ["none", "none"]


def test_zones_are_instants_before_the_action(tmp_path: Path) -> None:
    """09:30 in Berlin is before an action of 09:00 UTC, and 10:30 in Berlin is after it."""
    text = EARLY.replace(
        '{ column = "when", numbers = "hours" }', '{ column = "when", zone = "Europe/Berlin" }'
    )
    text = text.replace("1 hour", "4 hours").replace("30 minutes", "1 hour")
    times = ["2024-03-01 09:00", "2024-03-01 09:30", "2024-03-01T09:00:00Z", "2024-03-01 10:30"]
    times += ["2024-03-01T12:00:00Z", "2024-03-01T16:00:00Z"]
    rows = {"who": ["1"] * 6, "when": times, "x": [None, 1.0, None, -1.0, None, None]}
    out = write(tmp_path, text, {**rows, "a": ["", "", "go", "", "", ""]})
    assert [row[3] for row in made(out)] == ["high", "none"]


LEAK = """
dataset = "leak"
unit = "patient"
horizon = 8
stationary = true
reward = { outcomes = { discharged = 1.0, died = 0.0 } }
[prepare]
user = "patient"
time = { column = "time", numbers = "minutes" }
begin = "admitted"
step = "4 hours"
long = "end"
[prepare.values.pressure]
column = "value"
within = "last"
missing = "category"
cuts = [65]
[prepare.values.drug]
column = "amount"
within = "sum"
missing = { value = 0 }
[prepare.states]
product = ["pressure"]
[prepare.actions]
rules = [{ label = "drug", when = "drug > 0" }, { label = "wait" }]
[prepare.end]
column = "outcome"
states = { home = "discharged", died = "died" }
"""


def treated(people: int, after: float = 25.0) -> tuple[list[pd.DataFrame], list[Any]]:
    """Readings at minute 10, doses at 60 and readings at 200, which a dose raises; nothing helps.

    Also the states and actions that were known: of each patient, in their order.
    """
    draw = np.random.default_rng(1)
    charts, drugs, stays, known = [], [], [], []
    for who in range(people):
        sick = draw.random() < 0.4
        steps = int(draw.integers(2, 8))
        path = []
        for k in range(steps):
            pressure = round(float(draw.normal(58 if sick else 82, 6)), 1)
            dose = draw.random() < (0.6 if pressure < 65 else 0.15)
            charts.append((who, 240 * k + 10, pressure))
            charts.append((who, 240 * k + 200, round(pressure + after * dose, 1)))
            drugs.append((who, 240 * k + 60, float(dose)))  # a charted 0 is no action of a sum
            path.append(("pressure<65" if pressure < 65 else "pressure>=65", "drug" if dose else "wait"))
        known.append(path)
        stays.append((who, "died" if draw.random() < (0.6 if sick else 0.1) else "home", 0))
    return [
        pd.DataFrame(charts, columns=["patient", "time", "value"]),
        pd.DataFrame(drugs, columns=["patient", "time", "amount"]),
        pd.DataFrame(stays, columns=["patient", "outcome", "admitted"]),
    ], known


def paths(folder: Path) -> list[Any]:
    """States and actions of each episode, sorted."""
    found: dict[int, list[Any]] = defaultdict(list)
    for user, _, _, state, action, *_ in made(folder):
        found[user].append((state, action))
    return sorted(found.values())


@pytest.mark.filterwarnings("always:readings taken after the action form states:UserWarning")
def test_a_reading_after_the_action_is_told_and_before_it_the_state_is_right(tmp_path: Path) -> None:
    tables, known = treated(150)
    doses = sum(action == "drug" for path in known for _, action in path)
    (tmp_path / "P.toml").write_text(LEAK)
    reason = "pressure: steps whose reading is later than the action"
    with pytest.warns(UserWarning, match=r'pressure in 100\.0%.*before = "action"'):
        late = prepare(tables, tmp_path / "P.toml", tmp_path / "late")
    assert late.counts[reason] == doses
    assert paths(tmp_path / "late") != sorted(known)
    early = LEAK.replace("cuts", 'before = "action"\ncuts').replace("step =", 'decision = "1 hour"\nstep =')
    (tmp_path / "B.toml").write_text(early)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = prepare(tables, tmp_path / "B.toml", tmp_path / "early")
    assert paths(tmp_path / "early") == sorted(known)
    assert reason not in done.counts
    # the count is the holder's: what is released, or read by `learn`, does not depend on it
    same, _ = treated(150)
    same[1]["time"] += 170  # doses after every reading
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert reason not in prepare(same, tmp_path / "P.toml", tmp_path / "clean").counts
    for name in ("schema.toml", "prepare.toml"):
        assert (tmp_path / "late" / name).read_text() == (tmp_path / "clean" / name).read_text()
    columns = {name: parquet.read_schema(tmp_path / name / "rows.parquet") for name in ("late", "clean")}
    assert columns["late"].equals(columns["clean"], check_metadata=True)
    assert stat.S_IMODE((tmp_path / "late" / COUNTS).stat().st_mode) == 0o600
    # parts count as the whole does, and `strict` refuses
    with pytest.warns(UserWarning, match="after the action"):
        parts = prepare(tables, tmp_path / "P.toml", tmp_path / "parts", memory=20_000)
    assert dict(parts.counts) == dict(late.counts)
    (tmp_path / "P.toml").write_text(LEAK.replace("step =", "strict = true\nstep ="))
    with pytest.raises(ValueError, match="records: readings taken after .*refused by strict = true"):
        prepare(tables, tmp_path / "P.toml", tmp_path / "strict")
    assert not (tmp_path / "strict").exists()


@pytest.mark.parametrize(
    ("within", "after", "late"),
    [
        ("last", 25.0, True), ("first", 25.0, False), ("mean", 25.0, True), ("max", 25.0, True),
        ("min", 25.0, False), ("min", -25.0, True), ("max", -25.0, False), ("sum", 25.0, True),
        ("count", 25.0, True),
    ],
)  # fmt: skip
def test_which_reading_is_used(tmp_path: Path, within: str, after: float, late: bool) -> None:
    tables, known = treated(60, after)
    doses = sum(action == "drug" for path in known for _, action in path)
    text = LEAK.replace('within = "last"', f'within = "{within}"')
    text = text.replace('missing = "category"\n', "") if within == "count" else text
    (tmp_path / "P.toml").write_text(text)
    found = prepare(tables, tmp_path / "P.toml", tmp_path / "out").counts
    assert found.get("pressure: steps whose reading is later than the action", 0) == doses * late
    (tmp_path / "P.toml").write_text(text.replace("cuts", "lag = 1\nmissing = { value = 70 }\ncuts")
                                     .replace('missing = "category"\n', ""))  # fmt: skip
    found = prepare(tables, tmp_path / "P.toml", tmp_path / "lag").counts
    assert not any("later than the action" in reason for reason in found)


def test_few_readings_after_the_action_are_no_warning(tmp_path: Path) -> None:
    tables, known = treated(150)
    doses = sum(action == "drug" for path in known for _, action in path)
    charts = tables[0]
    early = charts["time"] % 240 == 10
    (tmp_path / "P.toml").write_text(LEAK.replace("step =", "strict = true\nstep ="))
    dosed = tables[1][tables[1]["amount"] > 0]
    for name, more in (("at", doses // 100), ("above", doses // 100 + 1)):
        some = dosed[:more].assign(value=70.0, time=lambda one: one["time"] + 1).drop(columns="amount")
        asked = [pd.concat([charts[early], some]), *tables[1:]]
        if name == "at":
            done = prepare(asked, tmp_path / "P.toml", tmp_path / name)
            assert done.counts["pressure: steps whose reading is later than the action"] == more > 0
        else:
            with pytest.raises(ValueError, match="refused by strict"):
                prepare(asked, tmp_path / "P.toml", tmp_path / name)


# ------------------------------------------------------------------------------- people are apart
@pytest.mark.parametrize("early", ["", 'before = "action"\n'])
@pytest.mark.parametrize("seed", range(8))
def test_one_persons_records_change_nobody_elses_rows(seed: int, early: str, tmp_path: Path) -> None:
    """What protects the result's people protects the records': each row is made of one person's records."""
    draw = np.random.default_rng(seed)
    text = BASE.format(
        horizon=5, long="cut", grid='step = "4 hours"\n' + ('decision = "1 hour"' if early else ""),
        x=f'within = "mean"\n{early}carry = 2\nmissing = "category"', sums="sum", end=END,
        on="on = { well = 1.5 }",
    )  # fmt: skip
    declared = parse_declaration(tomllib.loads(text), tmp_path, text)
    frame, other = records(seed), records(seed + 100)
    victim = f"P{draw.integers(0, 12)}"
    swapped = pd.concat([frame[frame["who"] != victim], other[other["who"] == victim]])
    people = []
    for name, each in (("a", frame), ("b", swapped.sample(frac=1.0, random_state=seed))):
        prepare(each, declared, tmp_path / name, memory=(2**30, 2000)[seed % 2])
        people.append(grouped(made(tmp_path / name)))
    first, second = people
    assert len(first) == len(second) == 12
    left = list(second)
    for one in first:
        if one in left:
            left.remove(one)
    assert len(left) <= 1


CELLS = st.sampled_from(
    [
        "",
        "1",
        "2",
        "-1",
        "0.5",
        "1e999",
        "nan",
        "NA",
        "x",
        " 1 ",
        "go",
        "stay",
        "é",
        '"',
        "2024-01-01",
        "\x00",
    ]
)


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(st.lists(CELLS, min_size=3, max_size=5), max_size=12), st.sampled_from([2**30, 500]))
def test_any_cells(tmp_path: Path, lines: list[list[str]], memory: int) -> None:
    """Whatever is in them: rows that a learner reads, or a refusal in words, and nothing left behind."""
    (tmp_path / "P.toml").write_text(SMALL)
    body = "\n".join(["who,when,x,a", *(",".join(line) for line in lines)]) + "\n"
    (tmp_path / "x.csv").write_text(body)
    out = tmp_path / "out"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names that look alike
        try:
            prepare(tmp_path / "x.csv", tmp_path / "P.toml", out, memory=memory)
        except ValueError:
            assert not out.exists()
        else:
            assert check(open_source(out / "rows.parquet", read_schema(out / "schema.toml"))).users > 0
            shutil.rmtree(out)
    (tmp_path / "out.offending.csv").unlink(missing_ok=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["P.toml", "x.csv"]


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]), st.none() | st.datetimes(), st.none() | st.floats()
        ),
        min_size=1, max_size=10,
    )
)  # fmt: skip
def test_any_times_and_numbers(tmp_path: Path, rows: list[Any]) -> None:
    text = SMALL.replace(
        '{ column = "when", numbers = "hours" }', '{ column = "when", zone = "Europe/Berlin" }'
    )
    (tmp_path / "P.toml").write_text(text)
    who, when, x = zip(*rows, strict=True)
    stamps, numbers = pa.array(when, pa.timestamp("us")), pa.array(x, pa.float64())
    table = pa.table({"who": who, "when": stamps, "x": numbers, "a": ["go"] * len(who)})
    try:
        prepare(table, tmp_path / "P.toml", tmp_path / "out")
        shutil.rmtree(tmp_path / "out")
    except ValueError:
        assert not (tmp_path / "out").exists()
