"""Parts of a folder for others: the query, the release as text, entries of the ledger."""

import hashlib
import json

import numpy as np
import pytest
from fixed_bytes import fixed_bytes

import discreet as dr
from discreet.core.guarantee import MechanismRecord
from discreet.data.row_batches import open_source
from discreet.data.schema import Schema
from discreet.learners.offline.release_files import read_tables
from discreet.ledger.ledger import Ledger
from discreet.pipeline.learn import learn, replan
from discreet.reports import checkable_files
from discreet.reports.checkable_files import csv_room, ledger_lines, stated_query, write_csv

pytestmark = pytest.mark.usefixtures("figures_are_sketched", "drawn_from_a_seed")
RECORD = MechanismRecord("counts", "discrete_laplace", {"v": 2.0}, {"v": 1.0}, 0.5, 2)


@pytest.fixture
def drawn_from_a_seed():
    with fixed_bytes(1):
        yield


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "people.csv"
    rng = np.random.default_rng(0)
    rows = [
        f"u{u},0,{h},{rng.integers(0, 3)},{rng.integers(0, 2)},1,{rng.integers(0, 3)}"
        for u in range(9)
        for h in (0,)
    ]
    path.write_text("user,episode,step,state,action,reward,next_state\n" + "\n".join(rows) + "\n", "utf-8")
    return open_source(path, Schema("ward", "person", dr.Layout(3, 2, 1), stationary=True))


@pytest.mark.parametrize(
    ("learner", "privatizer", "kind"),
    [(dr.DPAPVI(), dr.Central(rho=1.0), "counts"), (dr.DecisionPoints(), dr.Central(rho=1.0), "first visits"),
     (dr.DPPEVI(rho=1.0), None, "linear sums")],
)  # fmt: skip
def test_the_query_and_the_release_as_text(tmp_path, source, learner, privatizer, kind):
    out = learn(source, learner, tmp_path / "run", ledger=None, privatizer=privatizer).folder
    tables = read_tables(out / "release.parquet")
    query = stated_query(tables)
    assert query["kind"] == kind
    assert json.loads((out / "statement.json").read_text("utf-8"))["query"] == query
    lines = [line.split(",") for line in (out / "release.csv").read_text("utf-8").splitlines()[6:]]
    assert [float(line[-1]) for line in lines] == [
        value for name, step, _ in tables.shapes() for value in tables.table(name, step).ravel().tolist()
    ]
    assert {name: sum(line[0] == name for line in lines) for name in query["families"]} == {
        name: one["cells"] for name, one in query["families"].items()
    }
    assert (out / "release.csv").stat().st_size <= csv_room((out / "release.parquet").stat().st_size)


def test_a_large_release_is_not_written_as_text(tmp_path, source, monkeypatch):
    out = learn(source, dr.DPAPVI(), tmp_path / "run", ledger=None, privatizer=dr.Central(rho=1.0)).folder
    monkeypatch.setattr(checkable_files, "_MOST_CELLS", 5)
    (tmp_path / "other").mkdir()
    write_csv(read_tables(out / "release.parquet"), tmp_path / "other")
    assert not list((tmp_path / "other").iterdir())


def test_entries_of_the_ledger(tmp_path, source):
    """Other datasets are named by hash only; a folder that is planned again has the same entries."""
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.reserve("elsewhere", [RECORD], delta=1e-4, purpose="secret")
        out = learn(
            source, dr.DPAPVI(), tmp_path / "run", ledger=ledger, privatizer=dr.Central(rho=0.1)
        ).folder
        text = (out / "ledger.jsonl").read_text("utf-8")
        assert text == ledger_lines(ledger.entries(), "ward", 3)
    rows = [json.loads(line) for line in text.splitlines()]
    assert ["text" in row for row in rows] == [True, False, True]
    assert "secret" not in text
    assert all(
        hashlib.sha256(row["text"].encode()).hexdigest() == row["hash"] for row in rows if "text" in row
    )
    again = replan(out / "release.parquet", dr.DPAPVI(c1=0.5), tmp_path / "again").folder
    assert (again / "ledger.jsonl").read_text("utf-8") == text
