"""The report: its first line, its numbers, its files."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.studies.value_intervals import Drawn, Setting, draw, setting_of
from discreet.learners.offline.apvi import DPAPVI, OfflinePolicy
from discreet.reports.policy_report import Report, make_report


def made(users: int, epsilon: float | None, seed: int = 1) -> tuple[Setting, Drawn, OfflinePolicy]:
    setting = setting_of("random", users, epsilon)
    drawn = draw(setting, seed)
    return setting, drawn, DPAPVI(visits="released").learn(drawn.release, setting.spec)


@pytest.fixture(scope="module")
def good() -> Report:
    setting, drawn, learned = made(100_000, 1.0)
    return make_report(drawn, learned, setting.spec)


def test_the_first_line_is_the_verdict(good: Report) -> None:
    assert good.better
    assert (
        good.to_markdown()
        .splitlines()[0]
        .startswith(
            "**If no unrecorded cause drives both action and outcome, which this release cannot test, "
        )
    )
    setting, drawn, learned = made(300, 0.2)
    bad = make_report(drawn, learned, setting.spec)
    assert not bad.better
    first = bad.to_markdown().splitlines()[0]
    assert first.startswith("**Not shown to be better than what people did: the lower bound does not exceed")
    assert f"{bad.values['learned'].lower:.3f}" in first


def test_a_policy_like_behaviour_is_not_called_better() -> None:
    setting, drawn, learned = made(100_000, 1.0)
    nobody = replace(learned, supported=np.zeros_like(learned.supported))
    report = make_report(drawn, nobody, setting.spec)
    assert not report.better
    assert report.changed_share == 0.0
    assert not report.changes
    assert report.unsupported_pairs == 1.0
    assert report.unsupported_share == pytest.approx(1.0, abs=0.02)
    everywhere = make_report(drawn, nobody, setting.spec, unsupported="policy")
    assert everywhere.better
    assert "learned everywhere" not in everywhere.values


def test_it_is_plain_json_and_short(good: Report) -> None:
    table = json.loads(json.dumps(good.to_dict(), allow_nan=False))
    assert table["verdict"] == good.verdict
    assert set(table["values"]) >= {"learned", "behaviour", "uniform"}
    assert table["differences"]["learned less behaviour"]["lower"] > 0
    assert len(good.to_markdown().splitlines()) < 90


def test_shares_are_those_of_the_people() -> None:
    """Without noise: recomputed from the exact counts."""
    setting, drawn, learned = made(20_000, None)
    layout = drawn.layout
    report = make_report(drawn, learned, setting.spec, unsupported="policy")
    visits = layout.from_rows(drawn.tables["visits"])
    own = np.take_along_axis(visits, learned.policy[..., None], axis=2).sum()
    assert report.changed_share == pytest.approx(1.0 - own / visits.sum())
    top = report.changes[0]
    at = visits[top.step, int(top.state)]
    assert int(top.usual) == at.argmax() != int(top.action)
    assert top.visits == at.sum()
    assert top.action_share == pytest.approx(at[int(top.action)] / at.sum())
    assert report.noise["visits"] == 0.0
    assert report.unsupported_deviation == 0.0


def test_labels_name_states_and_actions() -> None:
    setting, drawn, learned = made(20_000, None)
    labels = {"states": [f"ward | {i}" for i in range(5)], "actions": ["none", "some", "much"]}
    report = make_report(drawn, learned, setting.spec, labels=labels)
    later = make_report(drawn, learned, setting.spec, labels=labels, first_step=1)
    assert [one.step for one in later.changes] == [one.step + 1 for one in report.changes]
    assert [one.step for one in later.gaps] == [one.step + 1 for one in report.gaps]
    assert report.changes[0].state.startswith("ward / ")
    assert report.changes[0].action in labels["actions"]
    with pytest.raises(ValueError, match="labels"):
        make_report(drawn, learned, setting.spec, labels={"states": ["one"]})
    with pytest.raises(ValueError, match="unsupported = 'ask'"):
        make_report(drawn, learned, setting.spec, unsupported="ask")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"learned\.policy"):
        make_report(drawn, replace(learned, policy=learned.policy[1:]), setting.spec)


def test_figures_are_written_and_alike(good: Report, tmp_path: Path) -> None:
    files = good.figures(tmp_path / "a")
    again = good.figures(tmp_path / "b")
    assert [path.name for path in files] == ["values.png", "values.svg", "support.png", "support.svg"]
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == sorted(p.name for p in files)
    for one, other in zip(files, again, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert one.stat().st_size > 1000
