"""The page beside legal texts: it repeats numbers, names sources, judges nothing, and has a version."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

import discreet as dr
from discreet.accounting.text.guarantee_sentences import up
from discreet.core.layout import Layout
from discreet.data.row_batches import open_source
from discreet.data.schema import Schema
from discreet.learners.offline.apvi import APVI, DPAPVI
from discreet.ledger.ledger import Ledger
from discreet.pipeline.learn import learn
from discreet.pipeline.synthetic_data import write_made_up
from discreet.reports import crosswalk
from discreet.reports.crosswalk import crosswalk_markdown, crosswalk_texts

pytestmark = pytest.mark.usefixtures("figures_are_sketched")

VERSIONS = {1: "f748159d93347088f473ccd33d937c6962b6f69a0b362536590b592e402a6015"}
"""SHA-256 of crosswalk.toml in each version. A changed text needs a new version."""
VERDICTS = re.compile(
    r"complian|complies|conform|lawful|legal\b|anonym|satisf|sufficien|insignificant|very small|safe"
)


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Statements: first and second in one ledger, pure without a ledger, and exact."""
    here = tmp_path_factory.mktemp("crosswalk")
    schema = Schema("ward | *3*", "patient", Layout(4, 2, 3))
    write_made_up(schema, 60, here / "rows.parquet", seed=1)
    source = open_source(here / "rows.parquet", schema)
    with Ledger.open(here / "ledger.sqlite") as ledger:
        for name in ("first", "second"):
            learn(
                source, DPAPVI(), here / name, privatizer=dr.Central(epsilon=1.0, delta=1e-6), ledger=ledger
            )
    learn(source, DPAPVI(), here / "pure", privatizer=dr.Central(epsilon=1.0), ledger=None)
    learn(source, APVI(), here / "exact", ledger=None)
    return {path.parent.name: json.loads(path.read_text("utf-8")) for path in here.glob("*/statement.json")}


def rows_of(page: str) -> list[list[str]]:
    """Cells of the tables beside legal texts."""
    return [
        line.strip("| ").split(" | ") for line in page.split("\n") if line.endswith("For you to judge. |")
    ]


def test_the_text_has_a_version() -> None:
    text = Path(str(crosswalk.__file__)).with_suffix(".toml").read_bytes()
    assert VERSIONS[crosswalk_texts()["version"]] == hashlib.sha256(text).hexdigest()
    for one in crosswalk_texts()["text"]:
        for name, address in one.get("sources", ()):
            assert name
            assert address.startswith("https://")


@pytest.mark.parametrize("name", ["first", "second", "pure"])
def test_every_row_repeats_and_no_row_judges(docs: dict[str, Any], name: str) -> None:
    page = crosswalk_markdown(docs[name], {})
    rows = rows_of(page)
    assert len(rows) == 4 + 3 + 14 + 2 + 1
    for cells in rows:
        assert len(cells) == 3
        assert not VERDICTS.search(cells[2].lower()), cells[2]
    assert not re.search(r"complian|complies", page)
    assert "{" not in page
    assert page.index("## Limits of an attacker") < page.index("## EDPB")
    assert page.count("\n## ") == 1 + 5 + 1
    assert docs[name]["fingerprint"] in page
    assert r"# What the numbers mean for texts that regulators read: ward \| \*3\*" in page


def test_numbers_are_those_of_all_releases(docs: dict[str, Any]) -> None:
    doc, other = docs["second"], docs["first"]
    page = crosswalk_markdown(doc, {"retention": "ten years"})
    assert doc["alone"] is not None
    for value, there in ((doc["attacker"], True), (other["attacker"], False)):
        assert (f"at most {up(100 * value['advantage'], 3)} %. True positive" in page) == there
    assert "ledger up to this one: 2; NO LIMIT IS SET." in page
    assert "Declared retention: ten years." in page
    assert "Declared recipients: not declared." in page
    assert f"plus {up(doc['ledger']['together']['delta'], 3)}. The raw record" in page
    assert (
        f"loss is above this release's ε is at most {up(doc['guarantee']['exceeds']['at_most'], 3)}." in page
    )
    pure = crosswalk_markdown(docs["pure"], {})
    assert "No ledger was kept, so other releases" in pure
    assert "person's. The raw record" in pure


def test_earlier_statements_and_exact_sums(docs: dict[str, Any]) -> None:
    doc = json.loads(json.dumps(docs["first"]))
    del doc["guarantee"]["exceeds"]  # version 4 does not have it
    del doc["files"]["release.csv"]
    doc["population"]["groups"] = {"column": "sex", "labels": ["a", "b"]}
    page = crosswalk_markdown(doc, {})
    assert "whose loss is above" not in page
    assert "records with noise (release.parquet). Other" in page
    assert r"state, action, reward, next\_state, sex. 60 records" in page
    with pytest.raises(ValueError, match="exact sums were released"):
        crosswalk_markdown(docs["exact"], {})
