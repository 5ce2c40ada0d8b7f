"""Statements of earlier versions: what an older library wrote is read, and verified, by this one.

``version_4`` holds what version 4 wrote: a whole folder, statements of other kinds with the hashes of their
pages, and guarantees as tables.
"""

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from discreet.accounting.serialization import of_guarantee, same_up_to_rounding
from discreet.accounting.text.earlier_sentences import SENTENCES
from discreet.accounting.text.sentence_templates import NOW
from discreet.core.guarantee import Guarantee
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.data.row_batches import open_source
from discreet.data.schema import Groups, Schema, read_schema
from discreet.experiments.results import _same_guarantee
from discreet.learners.offline.decision_points import DecisionPoints
from discreet.learners.offline.release_files import read_tables
from discreet.mechanisms.privatizers.central import Central
from discreet.pipeline.learn import Run, learn, replan
from discreet.pipeline.learned_files import LearnConfig, kind_of, write_plan
from discreet.pipeline.synthetic_data import write_made_up
from discreet.pipeline.verify import verify
from discreet.reports import statement
from discreet.reports.earlier_report import EarlierReport
from discreet.reports.rule_files import read_rule
from discreet.reports.statement import (
    PAGES,
    RunFacts,
    Statement,
    file_hash,
    fingerprint_of,
    make_statement,
    write_statement,
)
from discreet.reports.statement_schema import violations
from discreet.utils.document import text_of

HERE = Path(__file__).parents[1] / "version_4"
STATEMENTS = json.loads((HERE / "statements.json").read_text("utf-8"))
GUARANTEES = json.loads((HERE / "guarantees.json").read_text("utf-8"))


def test_a_folder_of_version_4_is_verified():
    found = verify(HERE / "folder")
    assert [check for check in found if not check.ok] == []
    assert len(found) > 900


def test_a_folder_of_version_5_is_verified():
    assert [check for check in verify(HERE.with_name("version_5") / "folder") if not check.ok] == []


def test_a_changed_folder_of_version_4_is_found(tmp_path):
    shutil.copytree(HERE / "folder", tmp_path / "folder")
    place = tmp_path / "folder" / "statement.json"
    document = json.loads(place.read_text("utf-8"))
    document["guarantee"]["epsilon"] *= 0.5
    document["fingerprint"] = fingerprint_of(document)
    place.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", "utf-8")
    wrong = {check.name for check in verify(tmp_path / "folder") if not check.ok}
    assert "statement.guarantee.epsilon" in wrong


@pytest.mark.parametrize("name", STATEMENTS)
def test_pages_of_version_4_are_rendered_as_they_were(name):
    document = STATEMENTS[name]["document"]
    assert list(violations(document)) == []
    for page, digest in STATEMENTS[name]["pages"].items():
        assert hashlib.sha256(text_of(PAGES[page](document)).encode()).hexdigest() == digest


@pytest.mark.parametrize("name", GUARANTEES)
def test_guarantees_of_version_4_are_read(name):
    found = Guarantee.from_dict(GUARANTEES[name])
    assert found.epsilon == GUARANTEES[name]["epsilon"]


@pytest.mark.parametrize("name", GUARANTEES)
def test_guarantees_of_version_4_are_written_as_they_were(name):
    found = Guarantee.from_dict(GUARANTEES[name])
    assert same_up_to_rounding(of_guarantee(found, 4), GUARANTEES[name])
    assert Guarantee.from_dict(json.loads(found.to_json())) == found
    sentence = {**GUARANTEES[name], "statement": found.statement}
    if found.epsilon is not None:
        with pytest.raises(ValueError, match="statement = "):  # of another version
            Guarantee.from_dict(sentence)


def test_other_numbers_are_not_rounding():
    text = "epsilon = 0.195913699728484 at delta 1e-06"
    assert same_up_to_rounding(text, "epsilon = 0.1959136997284327 at delta 1e-06")
    assert not same_up_to_rounding(text, "epsilon = 0.195913697 at delta 1e-06")
    assert not same_up_to_rounding(text, "epsilon = 0.195913699728484 at delta 1e-07")
    assert not same_up_to_rounding([1.0, 2], [1.0, 3])
    assert not same_up_to_rounding({"a": None}, {"a": 0.0})
    assert same_up_to_rounding(np.float64(0.5), 0.5)  # a number of NumPy and what JSON gives back
    assert not same_up_to_rounding(1, True)
    assert not same_up_to_rounding(10**12, 10**12 + 1)
    assert not same_up_to_rounding("1.0", 1.0)


@pytest.mark.parametrize("name", GUARANTEES)
def test_results_under_an_earlier_sentence_are_continued(name):
    """The guarantee of a folder of results is the same one, whichever version put it into words."""
    found = Guarantee.from_dict(GUARANTEES[name])
    for table in (None, GUARANTEES[name], found.to_dict()):
        _same_guarantee(Path("results"), table, found)
    with pytest.raises(ValueError, match="another guarantee"):
        _same_guarantee(Path("results"), {**GUARANTEES[name], "episodes": 7}, found)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("report.json", '"better": false', '"better": true'),
        ("report.json", "Not shown to be better", "Shown to be better"),
        ("report.json", '"better": false', '"verdict_kind": "shown",\n "better": false'),
        ("report.md", "no release can test that", "as was tested"),
        ("policy.csv", ",value,", ",value_low,"),
    ],
)
def test_a_changed_report_of_version_4_is_found(tmp_path, name, old, new):
    """With hashes and fingerprint that fit: the report that version 4 wrote is made again."""
    folder = tmp_path / "folder"
    shutil.copytree(HERE / "folder", folder)
    text = (folder / name).read_text("utf-8")
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1), "utf-8", newline="\n")
    document = json.loads((folder / "statement.json").read_text("utf-8"))
    document["files"][name] = file_hash(folder / name)
    write_statement(folder, Statement({**document, "fingerprint": fingerprint_of(document)}))
    wrong = {check.name for check in verify(folder) if not check.ok}
    assert any(check.startswith(f"{name} made again") for check in wrong)


@pytest.mark.parametrize(
    ("said", "edit", "options"),
    [
        ("groups", {"groups": Groups("sex", ("f", "m"))}, {}),
        ("censored ends", {"terminal": (1, 2), "outcomes": {1: 1.0}, "censored": 2}, {}),
        ("rules to compare with", {"terminal": (1, 2), "outcomes": {1: 1.0}}, {"compare": 1}),
    ],
)
def test_what_version_4_did_not_know_is_no_statement_of_it(tmp_path, said, edit, options):
    """Somebody writes all files of a new run as version 4 would have, whose report does not speak of this."""
    schema = Schema("ward", "patient", Layout(3, 2, 2), stationary=True, **edit)
    write_made_up(schema, 60, tmp_path / "people.parquet", seed=1)
    rules = ()
    if "compare" in options:
        (tmp_path / "rule.csv").write_text("state,action\n0,1\n")
        rules = (read_rule(tmp_path / "rule.csv", schema),)
    folder = tmp_path / "folder"
    settings = LearnConfig(compare=rules)
    learn(
        open_source(tmp_path / "people.parquet", schema), DecisionPoints(), folder, ledger=None,
        privatizer=Central(epsilon=3.0, delta=1e-6), randomness=Seeded(3), settings=settings,
    )  # fmt: skip
    assert [check for check in verify(folder) if not check.ok] == []
    for path in folder.iterdir():
        if path.suffix not in (".parquet", ".toml") and not path.name.startswith("rule"):
            path.unlink()
    run = Run.of(folder / "release.parquet", schema)
    planned = kind_of(schema, DecisionPoints()).again(folder / "release.parquet", settings)
    write_plan(folder, planned, run.guarantee, settings, replanned=False, version=4)
    facts = RunFacts(
        schema=schema, algorithm="decision-points",
        options=read_tables(folder / "release.parquet").facts.options,
        files={path.name: file_hash(path) for path in folder.iterdir()}, **vars(run),
    )  # fmt: skip
    with pytest.raises(ValueError, match=f"version = 4: must be at least 5 for a run with {said}"):
        make_statement(facts, 4)
    with pytest.MonkeyPatch.context() as patch:  # he changes that line
        patch.setattr(statement, "_GROUPED", 0)
        write_statement(folder, make_statement(facts, 4))
    assert [check.name for check in verify(folder) if not check.ok] == ["statement"]


def test_what_version_4_called_shown():
    """Its sentences, of a gain whose interval lies above 0; today's numbers stand below them."""
    schema = read_schema(HERE / "folder" / "schema.toml")
    planned = kind_of(schema, DecisionPoints()).again(HERE / "folder" / "release.parquet", LearnConfig())
    gain = dataclasses.replace(planned.report.gain, estimate=0.25, low=0.125, high=0.5)
    behaviour = dataclasses.replace(planned.report.behaviour, estimate=0.5)
    report = dataclasses.replace(planned.report, gain=gain, behaviour=behaviour, states_changed=2, ended=0.9)
    found = EarlierReport.of(report).to_dict()
    assert found["better"] is True
    assert found["version"] == 1
    assert "hidden_cause" not in found
    assert found["verdict"] == (
        "Changing what is done in 2 states is shown to be better than what people did, if that depends on "
        "the state and not on the time (10.0 % of the episodes are cut off at the last step): it gains 0.250 "
        "(95 % interval 0.125 to 0.500) over what people did, 0.500."
    )
    none = EarlierReport.of(dataclasses.replace(report, states_changed=0))
    assert none.verdict.startswith("Nothing is changed: ")


def test_sentences_of_another_version_are_found(tmp_path):
    """A folder of version 4 with a sentence of today's is not what version 4 wrote."""
    shutil.copytree(HERE / "folder", tmp_path / "folder")
    place = tmp_path / "folder" / "statement.json"
    document = json.loads(place.read_text("utf-8"))
    document["covered"] = [
        text.replace(SENTENCES[4]["attackers"], NOW["attackers"]) for text in document["covered"]
    ]
    document["fingerprint"] = fingerprint_of(document)
    place.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", "utf-8")
    wrong = {check.name for check in verify(tmp_path / "folder") if not check.ok}
    assert "statement.covered[1]" in wrong
    assert NOW["attackers"] in document["covered"][1]


def test_a_new_statement_is_made_of_an_old_release(tmp_path):
    """Planned again, free of budget: sentences of the newest version, of a release from before."""
    outcome = replan(HERE / "folder" / "release.parquet", DecisionPoints(), tmp_path / "again")
    document = json.loads((outcome.folder / "statement.json").read_text("utf-8"))
    assert (document["version"], set(document["guarantee"]["exceeds"])) == (6, {"epsilon", "at_most"})
    assert document["verdict"]["kind"] == "not shown"
    assert document["verdict"]["contrasts_p"] is None  # rewards are not paid by rule
    assert [check for check in verify(outcome.folder) if not check.ok] == []
