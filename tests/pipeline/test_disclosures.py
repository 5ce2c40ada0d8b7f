"""Documents for people outside are made only from folders that verify."""

import json
import shutil
from pathlib import Path

import pytest

import discreet as dr
from discreet.core.layout import Layout
from discreet.data.row_batches import open_source
from discreet.data.schema import Schema
from discreet.learners.offline.apvi import DPAPVI
from discreet.ledger.ledger import Ledger
from discreet.pipeline.disclosures import crosswalk, registry_record
from discreet.pipeline.learn import learn, replan
from discreet.pipeline.synthetic_data import write_made_up

pytestmark = pytest.mark.usefixtures("figures_are_sketched")
TOLD = {"controller": "Hospital", "purpose": "care", "region": "Austria", "authors": "A. Smith"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("disclosures")
    schema = Schema("ward", "patient", Layout(3, 2, 2), declared=TOLD)
    write_made_up(schema, 60, here / "rows.parquet", seed=1)
    with Ledger.open(here / "ledger.sqlite") as ledger:
        private = dr.Central(epsilon=1.0, delta=1e-6)
        learn(
            open_source(here / "rows.parquet", schema),
            DPAPVI(),
            here / "out",
            privatizer=private,
            ledger=ledger,
        )
        learn(
            open_source(here / "rows.parquet", schema),
            DPAPVI(),
            here / "late",
            privatizer=private,
            ledger=ledger,
        )
    replan(here / "out" / "release.parquet", DPAPVI(c1=0.3), here / "again")
    return here


@pytest.mark.parametrize("name", ["out", "again", "late"])
def test_folders_that_verify(folder: Path, name: str) -> None:
    doc = json.loads((folder / name / "statement.json").read_text("utf-8"))
    with Ledger.open(folder / "ledger.sqlite") as ledger:
        record, page = registry_record(folder / name, ledger=ledger), crosswalk(folder / name, ledger=ledger)
    for text in (record, page):
        assert doc["fingerprint"] in text
    assert ("Later releases in the ledger, which are not counted: 1." in record) == (name != "late")
    assert 'status: "Pending"' in registry_record(folder / name, status="Pending")
    assert all(one.ok for one in dr.verify(folder / name))


def test_a_changed_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "out", tmp_path / "out")
    path = tmp_path / "out" / "schema.toml"
    path.write_text(path.read_text("utf-8").replace("Austria", "Norway"), "utf-8")
    for make in (registry_record, crosswalk):
        with pytest.raises(
            ValueError, match=r"does not verify \(files: schema.toml\), and nothing was written"
        ):
            make(tmp_path / "out")
        with pytest.raises(ValueError, match="must be a folder that `discreet learn` made"):
            make(tmp_path)
