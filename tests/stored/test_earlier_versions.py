"""Statements of earlier versions: what an older library wrote is read, and verified, by this one.

``version_4`` holds what version 4 wrote: a whole folder, statements of other kinds with the hashes of their
pages, and guarantees as tables.
"""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from discreet.core.guarantee import Guarantee
from discreet.stored.pages import text_of
from discreet.stored.statement import PAGES, fingerprint_of
from discreet.stored.statement_schema import violations
from discreet.stored.verification import verify

HERE = Path(__file__).parent / "version_4"
STATEMENTS = json.loads((HERE / "statements.json").read_text("utf-8"))
GUARANTEES = json.loads((HERE / "guarantees.json").read_text("utf-8"))


def test_a_folder_of_version_4_is_verified():
    found = verify(HERE / "folder")
    assert [check for check in found if not check.ok] == []
    assert len(found) > 900


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
