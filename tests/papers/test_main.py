"""``python -m papers``: the names it knows, and what it refuses."""

from typer.testing import CliRunner

import papers
from papers.__main__ import app


def test_it_lists_the_studies() -> None:
    found = CliRunner().invoke(app, ["list"])
    assert found.exit_code == 0
    assert found.output.split() == list(papers.NAMES)


def test_an_unknown_study_is_one_line_with_the_known_ones() -> None:
    found = CliRunner().invoke(app, ["reproduce", "no-such-paper"])
    assert found.exit_code == 2
    assert found.stderr.count("\n") == 1
    assert "paper = 'no-such-paper': must be one of bai-2024, chowdhury-zhou-2021, luyo-2021" in found.stderr
    assert "qiao-wang-2023-offline, shariff-sheffet-2018, price-of-privacy" in found.stderr
