"""An owner's rule over a folder of data, as those who run meet it: learn, prepare, codebook."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import discreet as dr
from discreet.core.layout import Layout
from discreet.data.prepare import prepare
from discreet.data.row_batches import open_source
from discreet.data.schema import Schema
from discreet.learners.offline.apvi import APVI, DPAPVI
from discreet.ledger.ledger import Ledger
from discreet.ledger.owner_rules import NAME, OwnerRule, obeyed, require_ledger
from discreet.pipeline.state_codebook import fit_codebook
from discreet.pipeline.synthetic_data import write_made_up

pytestmark = pytest.mark.usefixtures("figures_are_sketched")
SCHEMA = Schema("ward", "patient", Layout(3, 2, 2))
DECLARATION = """
dataset = "ward"
unit = "patient"
horizon = 2
reward = { low = 0.0, high = 1.0 }
[prepare]
user = "patient"
[prepare.values.pressure]
column = "pressure"
range = [0, 100]
%s
[prepare.states]
product = ["pressure"]
[prepare.values.dose]
column = "dose"
cuts = [1]
closed = "left"
[prepare.actions]
product = ["dose"]
[prepare.reward]
value = "pay"
[prepare.values.pay]
column = "pay"
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of made-up people, over which the ledger beside it is required."""
    folder = tmp_path / "data"
    folder.mkdir()
    write_made_up(SCHEMA, 40, folder / "people.parquet", seed=1)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        require_ledger(folder, ledger, "ward")
    return folder


def test_learning_asks_for_the_ledger(data: Path, tmp_path: Path) -> None:
    source = open_source(data, SCHEMA)
    private = dr.Central(epsilon=1.0, delta=1e-6)
    with pytest.raises(ValueError, match="--no-ledger is forbidden"):
        dr.learn(source, DPAPVI(), tmp_path / "out", privatizer=private, ledger=None)
    with pytest.raises(ValueError, match="--no-ledger is forbidden"):  # exact sums above all
        dr.learn(source, APVI(), tmp_path / "out", ledger=None)
    with Ledger.open(tmp_path / "own") as own, pytest.raises(ValueError, match="must be that of identity"):
        dr.learn(source, DPAPVI(), tmp_path / "out", privatizer=private, ledger=own)
    renamed = Schema("free", "patient", Layout(3, 2, 2))
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        with pytest.raises(ValueError, match="dataset = 'free': must be 'ward'"):
            dr.learn(
                open_source(data, renamed), DPAPVI(), tmp_path / "out", privatizer=private, ledger=ledger
            )
        assert len(ledger.entries()) == 1
        dr.learn(source, DPAPVI(), tmp_path / "out", privatizer=private, ledger=ledger)
    # what it does not stop: the same people as a table in memory
    frame = pd.read_parquet(data / "people.parquet")
    dr.learn(open_source(frame, SCHEMA), DPAPVI(), tmp_path / "free", privatizer=private, ledger=None)


def test_a_rule_that_is_made_while_rows_are_read_holds(data: Path, tmp_path: Path) -> None:
    aside = (data / NAME).rename(tmp_path / "rule")

    def laid(*_: object) -> None:
        if aside.exists():
            aside.rename(data / NAME)

    source, how = open_source(data, SCHEMA), {"privatizer": dr.Central(epsilon=1.0, delta=1e-6)}
    with pytest.raises(ValueError, match="--no-ledger is forbidden"):
        dr.learn(source, DPAPVI(), tmp_path / "out", ledger=None, progress=laid, **how)
    assert not (tmp_path / "out").exists()


def records(folder: Path, cuts: str) -> Path:
    rows = [
        (f"p{i}", x, d, 1.0) for i in range(30) for x, d in ((40.0 + i, 0.0), (90.0 - i, 2.0), (50.0, 0.0))
    ]
    pd.DataFrame(rows, columns=["patient", "pressure", "dose", "pay"]).to_csv(
        folder / "records.csv", index=False
    )
    (folder / "P.toml").write_text(DECLARATION % cuts, "utf-8")
    return folder / "records.csv"


def test_rows_stay_under_the_rule(tmp_path: Path) -> None:
    raw, ward = tmp_path / "raw", tmp_path / "elsewhere" / "ward"
    raw.mkdir()
    file = records(raw, "cuts = [60]")
    with Ledger.open(tmp_path / "book") as ledger:
        made = require_ledger(raw, ledger, "ward")
        prepared = prepare(file, raw / "P.toml", ward)
    assert (ward / NAME).read_bytes() == made.read_bytes()
    assert prepared.schema.declared["columns"] == (
        "person: patient, pressure: pressure, dose: dose, pay: pay"
    )
    with pytest.raises(ValueError, match="--no-ledger is forbidden"):
        dr.learn(open_source(ward / "rows.parquet", prepared.schema), APVI(), tmp_path / "out", ledger=None)
    other = (raw / "P.toml").read_text("utf-8").replace('"ward"', '"free"')
    (raw / "F.toml").write_text(other, "utf-8")
    with pytest.raises(ValueError, match="dataset = 'free': must be 'ward'"):
        prepare(file, raw / "F.toml", tmp_path / "free")
    assert not (tmp_path / "free").exists()


def test_codebooks_ask_for_it_too(tmp_path: Path) -> None:
    file = records(tmp_path, "cuts = [60]")
    asked = {"quantiles": ("pressure", 2), "epsilon": 5.0, "delta": 1e-6, "anyway": True}
    with Ledger.open(tmp_path / "book") as ledger:
        require_ledger(tmp_path, ledger, "ward")
        with pytest.raises(ValueError, match="--no-ledger is forbidden"):
            fit_codebook(file, tmp_path / "P.toml", tmp_path / "fit", ledger=None, **asked)
        fit_codebook(file, tmp_path / "P.toml", tmp_path / "fit", ledger=ledger, **asked)
        assert np.sum([entry.kind == "reserve" for entry in ledger.entries()]) == 1


def test_the_limit_must_be_signed_with_the_rule_s_key_or_by_its_heirs(tmp_path: Path) -> None:
    """The ledger of the right identity, with a limit that somebody else signed."""
    mine, theirs = "a" * 64, "b" * 64
    rules = {tmp_path / NAME: OwnerRule("ward", "0" * 32, mine)}
    for owner, successors, allowed in (
        (mine, (mine,), True),
        (theirs, (mine, theirs), True),  # it was handed over
        (theirs, (), False),
        (None, (), False),
    ):
        ledger = SimpleNamespace(
            identity="0" * 32,
            owner=lambda _, owner=owner: owner,
            successors=lambda *_, successors=successors: successors,
        )
        if allowed:
            obeyed(rules, "ward", ledger)
        else:
            with pytest.raises(ValueError, match="signed with the key a"):
                obeyed(rules, "ward", ledger)
