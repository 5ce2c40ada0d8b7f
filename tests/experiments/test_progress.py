"""What notebooks are given: pictures, tables, and one bar. No kernel is needed: these are its protocols."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import discreet as dr
from discreet.experiments import progress
from discreet.experiments.progress import shown


def test_a_figure_is_a_picture(make_result: Callable[..., dr.Result], tmp_path: Path) -> None:
    figure = make_result().plot()
    picture = figure._repr_png_()
    assert picture.startswith(b"\x89PNG")
    width = int.from_bytes(picture[16:20], "big")
    assert width == 700  # seven inches
    copied = pickle.loads(pickle.dumps(figure))
    assert copied._repr_png_().startswith(b"\x89PNG")


def test_a_result_and_a_comparison_are_tables(
    make_result: Callable[..., dr.Result], private: Callable[..., Any]
) -> None:
    result = make_result(guarantee=private(), label="<b>mine</b>")
    text = result._repr_html_()
    assert text.startswith("<table><tr>")
    assert "&lt;b&gt;mine&lt;/b&gt;" in text
    assert "joint DP, ε = 1" in text
    assert result.guarantee.statement[:40] in text
    compared = dr.compare([result, make_result(slope=2.0)])
    assert isinstance(compared, list)
    table = compared._repr_html_()
    assert table.count("<tr>") == 3
    assert "<th>learner</th>" in table
    assert "Differences are paired by seed" in table


@pytest.fixture
def in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    import rich.console

    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)


@pytest.mark.usefixtures("in_a_notebook")
def test_without_ipywidgets_there_is_one_plain_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    with shown(True, "dp-ucbvi", 200) as report:
        assert report is not None
        for users in range(0, 101, 10):
            report(0, users)
            report(1, users)
    said = capsys.readouterr()
    assert said.out == ""
    assert "ipywidgets" not in said.err
    assert said.err.count("\n") == 1  # one line, rewritten
    assert said.err.rstrip().endswith("█ 100 %")
    assert said.err.count("\r") <= 101


@pytest.mark.usefixtures("in_a_notebook")
def test_a_whole_simulation_in_a_notebook(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    world = dr.make("riverswim", horizon=4)
    dr.simulate(world, dr.DPUCBVI(), dr.NoPrivacy(), 50, seeds=2, workers=1, progress=True, label="ours")
    assert capsys.readouterr().err.rstrip().endswith("100 %")


def test_no_bar_and_a_function() -> None:
    with shown(False, "x", 1) as report:
        assert report is None
    heard: list[tuple[int, int]] = []
    with shown(lambda run, users: heard.append((run, users)), "x", 1) as report:
        assert report is not None
        report(3, 4)
    assert heard == [(3, 4)]
