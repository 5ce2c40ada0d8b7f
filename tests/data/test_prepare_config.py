"""Declarations are read whole or refused in words; what the page shows is one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from discreet.data import prepare_config as declaration
from discreet.data.prepare_config import parse_declaration, read_prepare_config
from discreet.data.schema import parse_schema, read_schema

ROOT = Path(__file__).parents[2]
GOOD = """
dataset = "ward"
unit = "patient"
horizon = 4
reward = { low = 0.0, high = 1.0 }
[prepare]
user = "who"
time = "when"
step = "1 hour"
[prepare.values.x]
column = "x"
within = "last"
cuts = [0, 1.5]
[prepare.values.k]
column = "k"
within = "last"
categories = ["a", "b"]
[prepare.states]
product = ["x"]
[prepare.actions]
product = ["k"]
[prepare.end]
column = "out"
states = { h = "home" }
[prepare.reward]
on = { home = 1.0 }
"""


def parsed(text: str) -> Any:
    return parse_declaration(tomllib.loads(text), ".", text)


def test_what_is_declared() -> None:
    declared = parsed(GOOD)
    assert declared.schema.state_labels == ("x<0", "0<=x<1.5", "x>=1.5", "home")
    assert declared.schema.action_labels == ("a", "b")
    assert declared.schema.terminal == (3,)
    assert declared.on == {3: 1.0}
    assert declared.columns == {"x": "number", "k": "text", "out": "text"}
    x = declared.values["x"]
    assert x.codes(np.array([-1.0, 0.0, 1.4, 1.5, np.nan])).tolist() == [0, 1, 1, 2, -1]
    right = parsed(GOOD.replace("cuts = [0, 1.5]", 'cuts = [0, 1.5]\nclosed = "right"\nmissing = "category"'))
    assert right.schema.state_labels == ("x<=0", "0<x<=1.5", "x>1.5", "missing", "home")
    assert right.values["x"].codes(np.array([0.0, 1.5, 1.6, np.nan])).tolist() == [0, 1, 2, 3]
    two = parsed(GOOD.replace('product = ["x"]', 'product = ["k", "x"]'))
    assert two.schema.state_labels[:4] == ("k=a / x<0", "k=a / 0<=x<1.5", "k=a / x>=1.5", "k=b / x<0")
    assert two.states.readings(7).tolist() == [
        [1, 0, 0], [1, 0, 0.75], [1, 0, 1.5], [0, 1, 0], [0, 1, 0.75], [0, 1, 1.5], [0, 0, 0],
    ]  # fmt: skip
    assert right.states.readings(5).tolist() == [[0, 0], [0.75, 0], [1.5, 0], [0, 1], [0, 0]]
    one = parsed(GOOD.replace("cuts = [0, 1.5]", 'cuts = [1.5]\nmissing = "category"'))
    assert one.states.readings(4).tolist() == [[0, 0], [1, 0], [0, 1], [0, 0]]
    with pytest.raises(ValueError, match="states = 3"):
        right.states.readings(3)
    below, above = float(np.nextafter(0.0, -1.0)), float(np.nextafter(1.5, 2.0))
    assert right.states.columns(5) == {"x": [0.0, 0.75, above, None, None]}
    assert two.states.columns(7) == {
        "k": ["a", "a", "a", "b", "b", "b", None], "x": [below, 0.75, 1.5, below, 0.75, 1.5, None],
    }  # fmt: skip
    for one in (declared, right):  # a state's reading is in the state's bin
        cells = np.array(one.states.columns(3 + (one is right))["x"][:3])
        assert one.states.codes({"x": cells}).tolist() == [0, 1, 2]
    codes = two.states.codes({"k": np.array([0.0, 1.0, np.nan]), "x": np.array([2.0, -1.0, 0.0])})
    assert codes.tolist() == [2, 3, -1]


ENDS = 'states = { h = "home" }'
BAD = [
    ("[prepare]", "[prepared]", "prepare.user is missing"),
    ('user = "who"', "", "prepare.user is missing"),
    ('user = "who"', 'user = []', "prepare.user = .*not empty"),
    ('user = "who"', 'user = ["a", "a"]', "must not name an item twice"),
    ('user = "who"', 'user = "who"\nnames = "loosely"', "prepare.names = 'loosely'"),
    ('user = "who"', 'user = "who"\nusers = "who"', "unknown key prepare.users"),
    ('time = "when"\n', "", "prepare.step: must be given with prepare.time"),
    ('time = "when"', "time = 3", "prepare.time = 3"),
    ('time = "when"', 'time = { column = "t", zone = "Berlin" }', "prepare.time.zone = 'Berlin'"),
    ('time = "when"', 'time = { column = "t", zone = "../../etc" }', "prepare.time.zone"),
    ('time = "when"', 'time = { column = "t", numbers = "years" }', "prepare.time.numbers = 'years'"),
    ('time = "when"', 'time = { column = "t", numbers = "hours", zone = "UTC" }', "without format and zone"),
    ('step = "1 hour"', 'step = "an hour"', "prepare.step = 'an hour': must be a length of time"),
    ('step = "1 hour"', 'step = "0 hours"', "prepare.step"),
    ('step = "1 hour"', 'begin = "b"', "prepare.begin: must be given with prepare.step"),
    ('step = "1 hour"', 'step = "1 hour"\nlong = "maybe"', "prepare.long = 'maybe'"),
    ("horizon = 4", "horizon = 0", "horizon = 0"),
    ("horizon = 4", "horizon = 4\nstates = 3", "states: must be left out"),
    ("horizon = 4", 'horizon = 4\nuser_column = "who"', "user_column: must be left out"),
    ("horizon = 4", "horizon = 4\nactions = { count = 2 }", "unknown key actions.count"),
    ("[prepare.values.x]", '[prepare.values."x y"]', "must consist of letters, digits and _"),
    ('column = "x"\nwithin = "last"', 'column = "x"', "prepare.values.x.within is missing"),
    ("cuts = [0, 1.5]", "cuts = [1.5, 0]", "must increase strictly"),
    ("cuts = [0, 1.5]", "cuts = []", "not empty"),
    ("cuts = [0, 1.5]", 'cuts = ["a"]', "prepare.values.x.cuts = 'a'"),
    ("cuts = [0, 1.5]", "cuts = [0, 1e-9]", None),
    ("cuts = [0, 1.5]", "cuts = [1, 1.0000001]", "must differ in their first six digits"),
    ("cuts = [0, 1.5]", 'cuts = [0]\nlabels = ["a"]', "must be 2, one per bin"),
    ("cuts = [0, 1.5]", "", "x must have cuts or categories"),
    ("cuts = [0, 1.5]", 'labels = ["a"]', "must be given with cuts"),
    ("cuts = [0, 1.5]", 'cuts = [0]\nrange = [3, 1]', "the largest must be above"),
    ("cuts = [0, 1.5]", 'cuts = [0]\nmissing = 3', "prepare.values.x.missing = 3"),
    ("cuts = [0, 1.5]", 'cuts = [0]\nmissing = { valu = 3 }', "unknown key prepare.values.x.missing.valu"),
    ("cuts = [0, 1.5]", "cuts = [0]\ncarry = -1", "prepare.values.x.carry = -1"),
    ("cuts = [0, 1.5]", "cuts = [0]\nlag = true", "prepare.values.x.lag = True"),
    ("cuts = [0, 1.5]", 'cuts = [0]\nbefore = "noon"', "prepare.values.x.before = 'noon'"),
    ("cuts = [0, 1.5]", 'cuts = [0]\nbefore = "action"\nlag = 1', "x.before: must be given without lag"),
    ("cuts = [0, 1.5]", 'cuts = [0]\nbefore = "action"', "prepare.decision is missing.*records of others"),
    ("cuts = [0, 1.5]", 'cuts = [0]\nbefore = "action"\nof = "episode"', "x.before: must be left out"),
    ('step = "1 hour"', 'step = "1 hour"\ndecision = "1 hour"', "prepare.decision: must be left out"),
    ('step = "1 hour"', 'step = "1 hour"\nstrict = 1', "prepare.strict = 1"),
    ('categories = ["a", "b"]', 'categories = ["a", "b"]\nbefore = "action"', "a value that forms actions"),
    ("cuts = [0, 1.5]", 'cuts = [0]\nmissing = ["-9"]', "declare words for an empty cell with empty"),
    ("cuts = [0, 1.5]", "cuts = [0]\nempty = []", "prepare.values.x.empty = .*must be a list, not empty"),
    ("cuts = [0, 1.5]", "cuts = [0]\nempty = [-9]", "prepare.values.x.empty = -9"),
    ('user = "who"', 'user = "who"\nempty = "."', "prepare.empty = '.': must be a list"),
    ('time = "when"', 'time = { column = "when", then = 3 }', "prepare.time.then = 3"),
    ('time = "when"', 'time = { column = "when", numbers = "ms" }', "prepare.time.numbers = 'ms'.*millisec"),
    ('categories = ["a", "b"]', 'categories = ["a", "a"]', "must not name an item twice"),
    ('categories = ["a", "b"]', 'categories = ["a"]\nrange = [0, 1]', "a category has none"),
    ('categories = ["a", "b"]', 'categories = ["a"]\nties = "mean"', "no sum, mean or order"),
    ('categories = ["a", "b"]', 'categories = ["a"]\nmissing = { value = "c" }', "must be one of 'a'"),
    ('product = ["x"]', 'product = ["z"]', "prepare.states.product = 'z'"),
    ('product = ["x"]', "", "must have one of product, rules and codebook"),
    ('product = ["x"]', 'rules = []', "must be a list of tables"),
    ('product = ["x"]', 'rules = [{ label = "a" }, { label = "b" }]', r"rules\[0\].when is missing"),
    ('product = ["x"]', 'rules = [{ label = "a", when = "x < y" }]', "'y' must be one of the values"),
    ('product = ["x"]', 'rules = [{ label = "a", when = "x < 1" }, { label = "a" }]', "must occur once"),
    ('product = ["x"]', 'codebook = { file = "none.csv", scale = { x = 1 } }', "must be a file"),
    ('product = ["x"]', 'codebook = { file = "none.csv", scale = { k = 1 } }', "'k' must be one of the val"),
    ('states = { h = "home" }', 'states = { h = "x<0" }', "'x<0' is a state already"),
    ('states = { h = "home" }', "states = {}", "at least one"),
    ("on = { home = 1.0 }", "on = { hell = 1.0 }", "prepare.reward.on = 'hell'"),
    ("on = { home = 1.0 }", "", "must have value, or on, or both"),
    ("on = { home = 1.0 }", 'value = "k"', "must be a number"),
    ("[prepare.reward]\non = { home = 1.0 }", "", "prepare.reward is missing"),
    ("on = { home = 1.0 }", "on = { home = 2.0 }", "prepare.reward.on.home = 2.0: must be in the range of"),
    (ENDS, f'{ENDS}\ncensored = ["t", ""]', None),
    (ENDS, f'{ENDS}\ncensored = ["t", ""]\nmissing = "censored"', None),
    (ENDS, f"{ENDS}\ncensored = []", r"prepare.end.censored = \[\]: must be a list"),
    (ENDS, f'{ENDS}\ncensored = "t"', "prepare.end.censored = 't': must be a list"),
    (ENDS, f"{ENDS}\ncensored = [3]", "prepare.end.censored = 3: must be a text"),
    (ENDS, f'{ENDS}\ncensored = ["t", " t"]', "must not name an item twice"),
    (ENDS, f'{ENDS}\ncensored = ["h "]', "'h' is in prepare.end.states too"),
    (ENDS, f'{ENDS}\ncensored = [""]\nmissing = "home"', "prepare.end.missing = 'home': must be left out"),
    (ENDS, f'{ENDS}\ncensored = [""]\nmissing = "refuse"', "prepare.end.missing = 'refuse': must be"),
    (ENDS, 'states = { h = "home", c = "censored" }\ncensored = ["t"]', "is the state of censored ends"),
    ('states = { h = "home" }', 'states = { h = "x" }\ncensoring = ["t"]', "unknown key prepare.end.censor"),
    ("on = { home = 1.0 }", "on = { censored = 1.0 }", "prepare.reward.on = 'censored': must be one of"),
]  # fmt: skip


def test_what_censored_ends_need() -> None:
    text = GOOD.replace(ENDS, f'{ENDS}\ncensored = ["t"]')
    steps = text.replace("on = { home = 1.0 }", 'value = "x"')
    with pytest.raises(ValueError, match="censored: must be given with reward.outcomes"):
        parsed(steps)
    with pytest.raises(ValueError, match="prepare.reward.on.censored: must be left out"):
        parsed(text.replace("home = 1.0", "home = 1.0, censored = 1.0"))
    with pytest.raises(ValueError, match="censored: must be left out if prepare.end.censored"):
        parsed(text.replace("horizon = 4", 'horizon = 4\ncensored = "home"'))
    named = text.replace('product = ["x"]', 'rules = [{ label = "censored" }]', 1)
    with pytest.raises(ValueError, match="prepare.states: has a label 'censored'"):
        parsed(named)
    assert parsed(text).schema.censored == 4
    assert parsed(text).end_missing is None
    assert parsed(text.replace('["t"]', '["t", ""]')).end_missing == 1


@pytest.mark.parametrize(("old", "new", "message"), BAD)
def test_bad_declarations(old: str, new: str, message: str | None) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    if message is None:
        parsed(text)
        return
    with pytest.raises(ValueError, match=message):
        parsed(text)


def test_files_that_are_no_declaration(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such file"):
        read_prepare_config(tmp_path / "P.toml")
    (tmp_path / "P.toml").write_bytes(b"\xff = 1")
    with pytest.raises(ValueError, match=r"P\.toml: not a TOML file"):
        read_prepare_config(tmp_path / "P.toml")
    (tmp_path / "P.toml").write_text(GOOD)
    with pytest.raises(ValueError, match="unknown key prepare"):
        read_schema(tmp_path / "P.toml")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("x,label\n1,a\n2,a\n", "must not name an item twice"),
        ("x\n", "must hold numbers"),
        ("x\n1.5\ninf\n", "numbers everywhere"),
        ("x\na\n", "must hold numbers"),
        ("y\n1\n", "unknown key|is missing"),
    ],
)
def test_bad_codebooks(tmp_path: Path, rows: str, message: str) -> None:
    (tmp_path / "c.csv").write_text(rows)
    text = GOOD.replace('product = ["x"]', 'codebook = { file = "c.csv", scale = { x = 2 } }')
    (tmp_path / "P.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_prepare_config(tmp_path / "P.toml")


# ------------------------------------------------------------------------------------------ pages
def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.S)


def test_the_pages_declaration_is_one(tmp_path: Path) -> None:
    first, rules, codebook = blocks("prepare.md", "toml")
    declared = parsed(first)
    assert declared.schema.layout.states == 8 + 2
    lactate = '\n[prepare.values.lactate]\ncolumn = "l"\nwithin = "max"\n'
    plain = first.replace('[prepare.states]\nproduct = ["pressure", "sex"]\n', "") + lactate
    assert parsed(plain + rules).states.labels == ("shock", "other")
    with pytest.raises(ValueError, match="have no readings"):
        parsed(plain + rules).states.readings(4)
    (tmp_path / "centres.csv").write_text("pressure,lactate,label\n0.5,1,a\n-1,2,b\n")
    numbers = plain.replace(
        'missing = "category"            # then', 'missing = "refuse"              # then'
    )
    made = parse_declaration(tomllib.loads(numbers + codebook), tmp_path)
    assert made.states.labels == ("a", "b")
    assert made.states.readings(3).tolist() == [*made.states.centres.tolist(), [0.0, 0.0]]
    raw = made.states.columns(3)
    assert raw["lactate"][2] is None
    assert made.states.codes({name: np.array(cells[:2]) for name, cells in raw.items()}).tolist() == [0, 1]
    assert made.states.codes(
        {"pressure": np.array([87.5, 65.0]), "lactate": np.array([2.0, 4.0])}
    ).tolist() == [0, 1]


def test_what_readings_before_the_action_need() -> None:
    early = GOOD.replace("cuts = [0, 1.5]", 'cuts = [0, 1.5]\nbefore = "action"')
    timed = early.replace('step = "1 hour"', 'step = "1 hour"\ndecision = "{}"')
    hour = timed.replace("{}", "1 hour")
    declared = parsed(timed.replace("{}", "30 minutes"))
    assert declared.decision == 1_800_000_000
    assert declared.values["x"].before == "action"
    assert not declared.strict
    for text, message in (
        (timed.replace("{}", "2 hours"), "prepare.decision = '2 hours': must be at most prepare.step"),
        (timed.replace("{}", "soon"), "prepare.decision = 'soon': must be a length of time"),
        (early.replace('step = "1 hour"\n', ""), "must be given with prepare.step"),
        (
            hour.replace('column = "k"', 'column = "k"\nlag = 1'),
            "k.lag = 1: must be 0",
        ),
        (
            hour.replace('column = "k"\nwithin = "last"', 'column = "k"\nof = "episode"'),
            "must have a value of steps in .prepare.actions.",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            parsed(text)


def test_the_page_names_every_key() -> None:
    page = (ROOT / "docs" / "prepare.md").read_text(encoding="utf-8")
    keys = re.findall(r"[a-z]+", " ".join((*declaration._KEYS, *declaration._VALUE, *declaration.WITHIN)))
    assert [key for key in keys if not re.search(rf"\b{key}\b", page)] == []


def test_the_pages_public_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mask, rewards = blocks("data.md", "csv")
    (tmp_path / "mask.csv").write_text(mask)
    (tmp_path / "rewards.csv").write_text(rewards)
    (code,) = (one for one in blocks("data.md", "python") if "phi.npy" in one)
    exec(code, {})
    text = (
        'dataset = "w"\nunit = "p"\nhorizon = 2\nstates = ["healthy", "ill"]\n'
        + blocks("data.md", "toml")[-1]
    )
    schema = parse_schema(tomllib.loads(text), tmp_path)
    assert schema.layout.mask is not None
    assert schema.layout.mask.tolist() == [[True, False], [True, True]]
    assert schema.known is not None
    assert (schema.known[0] * 2 - 1)[schema.layout.mask] == pytest.approx([1.0, 0.0, -0.2])
    assert schema.features is not None
    assert pd.DataFrame(schema.features[1]).to_numpy()[1].tolist() == [0.5, 0.5, 0.5]
