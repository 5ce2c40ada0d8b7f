"""Files as hospitals, spreadsheets and statistics programs write them: read like the plain table, or refused
with what to declare.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from discreet.core.layout import Layout
from discreet.data.prepare import PreparedFolder, Refused, prepare
from discreet.data.prepare_config import read_prepare_config
from discreet.data.row_batches import open_source
from discreet.data.schema import Columns, Schema
from discreet.data.validate import DataError, check

TOML = """
dataset = "ward"
unit = "patient"
horizon = 3
reward = {{ outcomes = {{ home = 1.0, died = 0.0 }} }}
[prepare]
user = "patient"
time = {time}
long = "cut"
{head}
[prepare.values.map]
column = "map"
missing = "category"
{map}
cuts = [70]
[prepare.values.drug]
column = "drug"
{drug}
[prepare.states]
product = ["map"]
[prepare.actions]
product = ["drug"]
[prepare.end]
column = "outcome"
states = {end}
"""
PLAIN = """patient,time,map,drug,outcome
1,2024-05-01 10:30,60,1,home
1,2024-05-01 11:30,80,0,home
2,2024-05-01 11:30,75,1,died
"""
USUAL = {
    "time": '"time"',
    "head": "",
    "map": "",
    "drug": 'categories = ["0", "1"]',
    "end": '["home", "died"]',
}


def made(folder: Path, content: Any, name: str = "x.csv", how: Any = (), **declared: str) -> list[Any]:
    """(person, state, action, next state) of every row."""
    (folder / "P.toml").write_text(TOML.format(**{**USUAL, **declared}))
    if isinstance(content, str):
        (folder / name).write_bytes(content.encode())
        content = folder / name
    number = len([*folder.iterdir()])
    done: PreparedFolder = prepare(content, folder / "P.toml", folder / f"out{number}", **dict(how))
    rows = parquet.read_table(done.folder / "rows.parquet").to_pylist()
    return [(row["user"], row["state"], row["action"], row["next_state"]) for row in rows]


EXPECTED = [(0, "map<70", "1", "map>=70"), (0, "map>=70", "0", "home"), (1, "map>=70", "1", "died")]


# ------------------------------------------------------------------------------------------ names
def test_one_person_under_two_spellings(tmp_path: Path) -> None:
    """An integer that went through a join with gaps: one person if folded, a warning if not."""
    rows = "patient,time,map,drug,outcome\n1,2024-05-01 10:30,60,1,home\n{},2024-05-01 11:30,75,1,home\n"
    for first, other in (
        ("17", "17.0"), ("17", "17."), ("17", "+17"), ("100000", "1e+05"), ("M\u00fc17", "Mu\u030817"),
        ("A17", "A\u200b17"), ("A17", "\uff21\uff11\uff17"), ("A 17", "A\u00a017"), ("A17", "A\u00ad17"),
        ("A17", "\u200eA17"),
    ):  # fmt: skip
        text = rows.format(first) + f"{other},2024-05-02 11:30,80,0,home\n"
        with pytest.warns(UserWarning, match="^1 of the names in 'patient' look like another") as told:
            assert made(tmp_path, text)[-1][0] == 2
        assert 'declare names = "folded"' in str(told[0].message)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert made(tmp_path, text, head='names = "folded"')[-1][0] == 1
    text = rows.format("A-17") + "A17,2024-05-02 11:30,80,0,home\n"  # only their owner knows
    with pytest.warns(UserWarning, match="^1 of the names") as told:
        assert made(tmp_path, text, head='names = "folded"')[-1][0] == 2
    assert "folded" not in str(told[0].message)


def test_rows_of_trajectories_are_looked_at_too() -> None:
    """What ``learn`` and ``count`` read."""
    schema = Schema("test", "person", Layout(2, 2, 1, None))
    rows = pa.table(
        {
            "user": ["17", "18", "17.0"], "episode": [0, 0, 0], "step": [0, 0, 0], "state": [0, 1, 0],
            "action": [0, 1, 0], "reward": [0.0, 0.0, 0.0], "next_state": [0, 0, 0],
        }
    )  # fmt: skip
    with pytest.warns(UserWarning, match="^1 of the names in 'user' look like another one"):
        assert check(open_source(rows, schema)).users == 3


@pytest.mark.parametrize("name", ["", " ", "\u200b", "nan", "None", "NA", "?"])
def test_a_word_for_nothing_is_nobody(tmp_path: Path, name: str) -> None:
    frame = pa.table(
        {"patient": ["1", name], "time": ["2024-05-01"] * 2, "map": [60.0, 60.0], "drug": ["0", "0"],
         "outcome": ["home", "home"]}
    )  # fmt: skip
    with pytest.raises(Refused, match="user without a name: 1"):
        made(tmp_path, frame, head='empty = ["?"]')


# ------------------------------------------------------------------------------------------ cells
@pytest.mark.parametrize(
    ("old", "new", "declared"),
    [
        (",1,", ",1.0,", {}),
        (",1,", ",1.,", {}),
        (",1,", ",True,", {"drug": 'categories = { "false" = "0", "true" = "1" }'}),
        (",1,", ",TRUE,", {"drug": 'categories = { "False" = "0", "True" = "1" }'}),
        (",1,", ",true,", {"drug": 'cuts = [1]\nlabels = ["0", "1"]'}),
        (",80,", ",80.0,", {}),
        ("home", "True", {"end": '{ true = "home", false = "died" }'}),
        ("home", "1.0", {"end": '{ "1" = "home", "0" = "died" }'}),
    ],
)
def test_what_means_the_same_is_read_alike(tmp_path: Path, old: str, new: str, declared: Any) -> None:
    text = PLAIN.replace(old, new)
    if "true" in str(declared).lower():  # the other truth value
        text = text.replace(",0,", ",False,") if old == ",1," else text.replace("died", "False")
    elif "died" in declared.get("end", ""):
        text = text.replace("died", "0.0")
    assert made(tmp_path, text, **declared) == EXPECTED
    frame = pd.read_csv(tmp_path / "x.csv")  # with types of its own
    assert made(tmp_path, frame, **declared) == EXPECTED


def test_two_declared_texts_that_mean_the_same_are_told_apart(tmp_path: Path) -> None:
    drug = 'categories = { "1" = "1", "1.0" = "0" }'
    text = PLAIN.replace(",0,", ",1.0,")
    assert made(tmp_path, text, drug=drug) == EXPECTED
    with pytest.raises(Refused, match=r"drug: unknown category: 1\."):
        made(tmp_path, text.replace("1.0", "1.00"), drug=drug)
    with pytest.raises(Refused, match=r"drug: unknown category: 2\."):  # a code may begin with a zero
        made(tmp_path, PLAIN.replace(",1,", ",01,"))


def test_rows_of_a_long_table_are_not_passed_over_in_silence(tmp_path: Path) -> None:
    """A text of ``where`` that is written in two ways."""
    text = PLAIN.replace("patient,", "item,patient,").replace("\n1,", "\nMAP,1,").replace("\n2,", "\nMAP,2,")
    where = 'where = { item = "MAP" }'
    assert made(tmp_path, text, map=where) == EXPECTED
    for word in ("map", "M A P", "Map\u00a0", "\uff2d\uff21\uff30"):
        with pytest.raises(
            Refused, match=r"map: text of where, written otherwise: 1(?s:.*)add that spelling"
        ):
            made(tmp_path, text.replace("\nMAP,1,", f"\n{word},1,", 1), map=where)
    both = text.replace("\nMAP,1,", "\nmap,1,", 1)
    assert made(tmp_path, both, map='where = { item = ["MAP", "map"] }') == EXPECTED
    other = '\n[prepare.values.other]\ncolumn = "map"\nwhere = { item = "map" }\nmissing = { value = 0 }'
    assert made(tmp_path, both, map=where, drug=USUAL["drug"] + other)  # two things of their own
    assert made(tmp_path, text.replace("\nMAP,1,", "\nMAPE,1,"), map=where)[0][1] == "missing"


def test_labels_of_trajectories(tmp_path: Path) -> None:
    schema = Schema(
        "test", "person", Layout(2, 2, 1, None), state_labels=("1", "2"), action_labels=("true", "false"),
        columns=Columns(),
    )  # fmt: skip
    text = "user,episode,step,state,action,reward,next_state\na,0,0,1.0,True,0,2.0\nb,0,0,2,false,0,1\n"
    (tmp_path / "x.csv").write_text(text)
    assert check(open_source(tmp_path / "x.csv", schema)).users == 2
    (tmp_path / "x.csv").write_text(text.replace("True", "yes"))
    with pytest.raises(DataError, match="the action must be one of the schema's labels"):
        check(open_source(tmp_path / "x.csv", schema))


@pytest.mark.parametrize("word", [".", "<NA>", "n/a", "#N/A", "\\N", "?", "-9", "-99"])
def test_words_for_nothing_are_declared(tmp_path: Path, word: str) -> None:
    text = PLAIN.replace(",80,", f",{word},").replace(",0,", ",1,")
    expected = [(*EXPECTED[0][:3], "missing"), (0, "missing", "1", "home"), EXPECTED[2]]
    empty = f"empty = ['{word}']"
    for declared in ({"head": empty}, {"map": empty}):
        assert made(tmp_path, text, **declared) == expected
    with pytest.raises(Refused) as error:
        made(tmp_path, text)
    if word.startswith("-9"):
        assert error.value.counts == {"map: perhaps a code for nothing": 1}
        assert 'declare empty = ["-9"]' in str(error.value)
        low = made(tmp_path, text, map="range = [-100, 250]")  # a number, as declared
        assert [row[1] for row in low] == ["map<70", "map<70", "map>=70"]
        frame = pd.read_csv(tmp_path / "x.csv").astype({"map": float})
        assert made(tmp_path, frame, head=empty) == expected
    else:
        assert error.value.counts == {"map: number that cannot be read": 1}
        assert f"some hold {word!r}, perhaps words for an empty cell" in str(error.value)
    for column in ("drug", "outcome"):
        category = PLAIN.replace(",0,home", f",0,{word}" if column == "outcome" else f",{word},home")
        with pytest.raises(Refused, match=r"unknown category: 1(?s:.*)empty = \[\"\.\"\]"):
            made(tmp_path, category)
        drug = USUAL["drug"] + '\nmissing = { value = "0" }'
        assert made(tmp_path, category, head=empty, drug=drug) == EXPECTED


def test_numbers_below_everything_are_refused_only_where_they_may_be_codes(tmp_path: Path) -> None:
    """Base excess has negative values of its own."""
    text = PLAIN.replace(",80,", ",-9,")
    with pytest.raises(Refused, match="perhaps a code for nothing: 1"):
        made(tmp_path, text)
    assert len(made(tmp_path, text.replace(",60,", ",-3,"))) == 3


# ------------------------------------------------------------------------------------------ files
@pytest.mark.parametrize(
    ("name", "content", "how"),
    [
        ("sep.csv", "sep=;\r\n" + PLAIN.replace(",", ";").replace("\n", "\r\n"), {}),
        ("quoted.csv", '"sep=,"\n' + PLAIN, {}),
        ("bom.csv", "\ufeffsep=;\n" + PLAIN.replace(",", ";"), {}),
        ("tab.csv", "sep=\t\n" + PLAIN.replace(",", "\t"), {}),
        ("text.txt", PLAIN.replace(",", "\t"), {}),
        ("bars.TXT", PLAIN.replace(",", "|"), {}),
        ("spaces.txt", PLAIN.replace(" ", "T").replace(",", " "), {"delimiter": " "}),
        ("old.csv", PLAIN.replace("\n", "\r"), {}),
        ("quotes.csv", PLAIN.replace("home", '"home"').replace("\n", "\r"), {}),
        (
            "index.csv",
            "".join(f"{i},{row}\n" for i, row in zip(["", 0, 1, 2], PLAIN.split("\n"), strict=False)),
            {},
        ),
    ],
)
def test_files_of_spreadsheets_and_old_machines(tmp_path: Path, name: str, content: str, how: Any) -> None:
    assert made(tmp_path, content, name, how) == EXPECTED


def test_text_files_in_a_folder_are_notes(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "README.txt").write_text("Of ward 7.\n")
    (tmp_path / "data" / "x.csv").write_text(PLAIN)
    assert made(tmp_path, tmp_path / "data") == EXPECTED


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("Ward 7, export of 2024\n\n" + PLAIN, "its line 3 names the columns: take out the lines above it"),
        (PLAIN.replace("patient", "Patient", 1), "it has 'Patient': write it in the same way"),
        (PLAIN.replace("patient", "patients", 1), "it has 'patients': write it in the same way"),
        (PLAIN.replace("map", "MAP", 1), r"\(prepare.values.map\); it has 'MAP'"),
        (PLAIN.replace("outcome", "out_come", 1), r"\(prepare.end\); it has 'out_come'"),
        (PLAIN.replace("time", "TIME ", 1), r"\(prepare.time\); it has 'TIME '"),
    ],
)
def test_a_column_that_is_missed_is_looked_for(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        made(tmp_path, content)


def test_a_column_of_trajectories_that_is_missed(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("User,episode,step,state,action,reward,next_state\n")
    with pytest.raises(ValueError, match=r"one column 'user' \(user_column\), has 0; it has 'User'"):
        open_source(tmp_path / "x.csv", Schema("test", "person", Layout(2, 2, 1, None)))
    with pytest.raises(ValueError, match=r"must end in .parquet or .csv .*pass it as a frame"):
        open_source(tmp_path / "x.xlsx", Schema("test", "person", Layout(2, 2, 1, None)))


def test_lines_of_r_with_names_of_rows(tmp_path: Path) -> None:
    lines = PLAIN.splitlines()
    text = "\n".join([lines[0], *(f"{i},{line}" for i, line in enumerate(lines[1:], 1))]) + "\n"
    with pytest.raises(Refused, match=r"wrong number of fields: 3(?s:.*)row.names = FALSE"):
        made(tmp_path, text)


# ------------------------------------------------------------------------------------------ time
def test_numbers_since_1970(tmp_path: Path) -> None:
    stamps = pd.to_datetime(["2024-05-01 10:30", "2024-05-01 11:30", "2024-05-01 11:30"])
    for unit, name in (("ms", "milliseconds"), ("us", "microseconds"), ("s", "seconds")):
        frame = pd.read_csv(io.StringIO(PLAIN))
        frame["time"] = stamps.astype(f"datetime64[{unit}]").astype("int64")
        time = f'{{ column = "time", numbers = "{name}" }}'
        assert made(tmp_path, frame, time=time) == EXPECTED
        assert made(tmp_path, frame.to_csv(index=False), time=time) == EXPECTED
    with pytest.raises(Refused, match=r"time that cannot be read: 3(?s:.*)time.numbers for plain numbers"):
        made(tmp_path, frame.to_csv(index=False))
    frame["time"] *= 1000  # of a smaller unit than declared: beyond the year 9999
    for name in ("seconds", "hours", "days"):
        with pytest.raises(Refused, match=r"time that cannot be read: 3(?s:.*)perhaps milliseconds"):
            made(tmp_path, frame, time=f'{{ column = "time", numbers = "{name}" }}')


def test_people_numbered_by_floating_point(tmp_path: Path) -> None:
    frame = pd.read_csv(io.StringIO(PLAIN)).astype({"patient": float})
    with pytest.raises(ValueError, match="integers or text, not double; give whole numbers or text"):
        made(tmp_path, frame)


def test_a_begin_within_the_hour_that_is_twice(tmp_path: Path) -> None:
    text = PLAIN.replace("\n1,", "\n2024-10-27 02:30,1,").replace("\n2,", "\n2024-03-31 02:30,2,")
    text = "begin," + text
    head = 'step = "1 hour"\nbegin = "begin"\nbefore = "leave out"'
    within = {"map": 'within = "last"', "drug": 'within = "last"\n' + USUAL["drug"]}
    with pytest.raises(Refused) as error:
        made(tmp_path, text, time='{ column = "time", zone = "Europe/Berlin" }', head=head, **within)
    assert error.value.counts["begin that exists twice"] == 2
    assert error.value.counts["begin that does not exist"] == 1


def test_rows_of_one_time_have_an_order_that_is_declared(tmp_path: Path) -> None:
    """Logged clicks: two events in one second, told apart by their number."""
    text = "seq," + PLAIN.replace("11:30,80", "10:30,80").replace("\n1,", "\n{},1,").replace("\n2,", "\n1,2,")
    with pytest.raises(
        Refused, match=r"two rows at one time: 1(?s:.*)declare time.then, a column of numbers"
    ):
        made(tmp_path, text.format(1, 2))
    time = '{ column = "time", then = "seq" }'
    assert made(tmp_path, text.format(1, 2), time=time) == EXPECTED
    swapped = made(tmp_path, text.format(10, 9), time=time)  # as numbers, not as texts
    assert swapped[:2] == [(0, "map>=70", "0", "map<70"), (0, "map<70", "1", "home")]
    with pytest.raises(Refused, match="two rows at one time: 1"):
        made(tmp_path, text.format(3, 3), time=time)
    with pytest.raises(Refused, match="seq: number that cannot be read: 1"):
        made(tmp_path, text.format("x", 3), time=time)
    with pytest.raises(ValueError, match=r"no file has the column 'seq' \(prepare.time.then\)"):
        made(tmp_path, PLAIN, time=time)
    grid = {"head": 'step = "1 hour"', "map": 'within = "last"', "drug": 'within = "last"\n' + USUAL["drug"]}
    with pytest.raises(Refused, match=r"two values at one time: 1(?s:.*)declare ties; or declare time.then"):
        made(tmp_path, text.format(1, 2), **grid)
    assert made(tmp_path, text.format(1, 2), time=time, **grid)[0] == (0, "map>=70", "0", "home")
    assert made(tmp_path, text.format(2, 1), time=time, **grid)[0] == (0, "map<70", "1", "home")
    assert "seq" in read_prepare_config(tmp_path / "P.toml").schema.declared["columns"]


def test_one_order_in_memory_and_in_parts(tmp_path: Path) -> None:
    rows = [f"{i % 7},{i % 5},2024-05-01 10:30,{50 + i % 50},{i % 2},home" for i in range(0, 35)]
    text = "seq,patient,time,map,drug,outcome\n" + "\n".join(rows) + "\n"
    declared = {"time": '{ column = "time", then = "seq" }', "head": 'duplicates = "refuse"'}
    found = [made(tmp_path, text, "x.csv", how, **declared) for how in ({}, {"memory": 2000})]
    assert sorted(str(row[1:]) for row in found[0]) == sorted(str(row[1:]) for row in found[1])
    assert len(found[0]) == 15


def test_a_where_that_no_row_has_is_warned_of(tmp_path: Path) -> None:
    text = PLAIN.replace("map,drug", "map,item,drug").replace("60,", "60,MAP,")
    text = text.replace("80,", "80,MAP,").replace("75,", "75,MAP,")
    with pytest.warns(UserWarning, match="^no cell was read of map, which is missing everywhere"):
        made(tmp_path, text, map='where = { item = "Mean pressure" }')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert made(tmp_path, text, map='where = { item = "MAP" }') == EXPECTED


# ---------------------------------------------------------------------------------------- remedies
def test_data_without_an_end_and_with_two(tmp_path: Path) -> None:
    text = PLAIN.replace("80,0,home", "80,0,died")
    with pytest.raises(Refused, match=r'end: two values in an episode: 1(?s:.*)declare within = "last"'):
        made(tmp_path, text)
    with pytest.raises(
        Refused, match=r"episode without an outcome: 1(?s:.*)declare prepare.end.missing(?s:.*)censored"
    ):
        made(tmp_path, PLAIN.replace("died", ""))
    with pytest.raises(Refused, match=r"end: unknown category: 1(?s:.*)prepare.end.states(?s:.*)censored"):
        made(tmp_path, PLAIN.replace("died", "moved"))
