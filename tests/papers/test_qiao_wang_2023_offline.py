"""The tabular panel against another code's means."""

import json
import math
from pathlib import Path

import pytest

from papers.qiao_wang_2023_offline import tabular as panel
from papers.study import Job

WORLDS = [panel.instance(i) for i in range(12)]


@pytest.mark.parametrize("users", [300, 3000, 30_000])
@pytest.mark.parametrize("name", panel.REFERENCE)
def test_cells_of_the_table(name: str, users: int) -> None:
    """Within 5 combined standard errors of an independent code's means over other instances."""
    learner, privatizer = panel.rows()[name]
    mean, error = panel.cell(learner, privatizer, users, WORLDS, runs=2)
    wanted = panel.REFERENCE[name][panel.USERS.index(users)]
    assert abs(mean - wanted) <= 5 * math.hypot(error, panel.REFERENCE_ERROR)


def test_what_the_panel_says() -> None:
    """As printed nothing is learned; the defaults learn, and beat smaller constants."""
    rows = panel.rows()
    one, other = (panel.cell(*rows["DP-APVI as printed, rho=1"], n, WORLDS) for n in (100, 30_000))
    assert one == other
    at = {name: panel.cell(*rows[name], 3000, WORLDS, runs=2)[0] for name in rows if "as printed" not in name}
    assert at["DP-APVI, default, rho=1"] < at["DP-APVI, c1=.2 c2=.0003 c3=.02, rho=1"] < one[0] / 5
    assert at["DP-APVI, default, rho=1"] < 1.5 * at["APVI, default"]
    assert at["APVI, c1=.2 c3=.02"] <= at["APVI, c1=.2 c3=.02, threshold of rho=1"]


def test_the_panel_is_written(tmp_path: Path) -> None:
    lines: list[str] = []
    job = Job(tmp_path, say=lines.append)
    document = panel.tabular_panel(job, instances=2, runs=1, users=(100, 250))
    assert json.loads((tmp_path / "data" / "tabular-panel.json").read_text()) == document
    assert len(lines) / 2 == len(document["rows"]) == len(panel.rows())
    assert document["rows"]["APVI, theory"]["reference"] == [1.31, None]
