"""The check of language: which sentences it reads, what it finds, and a baseline that only falls."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plain_english", ROOT / "tools" / "plain_english.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def names(check: ModuleType, text: str, first: bool = False) -> set[str]:
    return {name for name, _ in check.Rules.read().broken(check.Sentence("x.md", 1, "page", text, first))}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("Who is late is absent.", "who-start"),
        ("Tested are the limits by a real server.", "inversion"),
        ("The noise of a crowd of one is large.", "image"),
        ("The chance is .38 in this row.", "decimal"),
        ("The table is of no use to a reader, that is sure.", "comma-that"),
        ("The user keeps her record in this file.", "gender"),
        ("It adds all numbers " + "again and " * 20 + "stops.", "long"),
        ("A, b, c, d, e, f, g and nothing else.", "commas"),
        ("A row that is one which has what a user whose name is known asks.", "clauses"),
    ],
)
def test_a_sentence_is_found(check: ModuleType, text: str, rule: str) -> None:
    assert rule in names(check, text)


def test_openings_are_of_docstrings_alone(check: ModuleType) -> None:
    assert "opening" in names(check, "Whether the ledger has room for it.", first=True)
    assert "opening" not in names(check, "Whether the ledger has room is checked first.")
    assert not names(check, "Return the noise variance of each cell.", first=True)


def test_what_is_read_of_python(check: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text(
        '"""Return the first sentence. Return a second sentence here."""\n'
        "x = 1  # a comment that runs\n"
        "# over two lines of text\n"
        "y = 2  # noqa: E501 is not a sentence\n"
    )
    found = list(check.read([str(file)]))
    assert [(one.kind, one.line, one.first) for one in found] == [
        ("docstring", 1, True), ("docstring", 1, False), ("comment", 2, False),
    ]  # fmt: skip
    assert found[-1].text == "a comment that runs over two lines of text"


def test_what_is_not_read_of_a_page(check: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A title of several words\n\n```\ncode that nobody reads here\n```\n\n"
        "| a table cell of words |\n\nThe call `nobody of one` is [a link](x.md) here.\n"
        "<!-- a comment that nobody reads -->\n"
    )
    assert [one.text for one in check.read([str(page)])] == ["The call CODE is a link here."]


def test_a_baseline_only_falls(check: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.above(Counter(a=2, b=1), {"a": 2}) == ["b: 1 findings, 0 allowed"]
    assert check.lowered(Counter(a=3, b=1, c=1), {"a": 2, "b": 4, "gone": 5}) == {"a": 2, "b": 1}
    page, allowed = tmp_path / "page.md", tmp_path / "allowed.json"
    page.write_text("Nobody knows the answer.\n")
    allowed.write_text(json.dumps({page.as_posix(): 1}))
    command = [str(page), "--baseline", str(allowed)]
    assert check.main(command) == 0
    page.write_text("Nobody knows the answer.\n\nAnybody may ask the question.\n")
    assert check.main(command) == 1
    assert "2 findings, 1 allowed" in capsys.readouterr().out


def test_the_baseline_names_files_that_exist() -> None:
    allowed = json.loads((ROOT / "tools" / "english.json").read_text("utf-8"))
    assert all((ROOT / path).is_file() and count > 0 for path, count in allowed.items())
