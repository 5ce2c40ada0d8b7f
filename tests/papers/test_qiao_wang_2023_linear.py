"""The curves of Figure 1: their budgets, their references, and a tiny run that is not repeated."""

import math
from pathlib import Path

import numpy as np
import pytest

from discreet.envs import synthetic_linear_mdp
from discreet.learners.offline.linear_pevi import DPVAPVI, PEVI
from papers.qiao_wang_2023_offline import linear
from papers.study import Job

TINY = linear.Size((25,), instances=2, runs=1, tuning_instances=2, tuning_runs=1, grid=(0.005, 0.1))


def test_every_reference_belongs_to_a_curve() -> None:
    curves = {curve.name: curve for curve in linear.curves()}
    assert set(linear.REFERENCE) <= set(curves)
    assert all(len(means) == len(linear.USERS) for means in linear.REFERENCE.values())
    assert len(curves) == len(linear.curves())


@pytest.mark.parametrize(("raw", "rho"), [(True, 23.18), (False, 0.52)])
def test_what_the_printed_noise_costs_by_the_table_of_features(raw: bool, rho: float) -> None:
    """Specification, section 9 (v): enumeration of the 200 public features."""
    mdp = synthetic_linear_mdp(seed=0, raw_features=raw)
    found = linear.enumerated_rho(DPVAPVI(rho=1.0, preset="figure-1"), mdp.layout, mdp.features)
    assert found == pytest.approx(rho, abs=0.005)


def test_a_hundredth_of_the_noise_is_ten_thousand_times_the_budget() -> None:
    curves = {curve.name: curve for curve in linear.curves()}
    mdp = synthetic_linear_mdp(seed=0, raw_features=True)
    one = curves["DP-VAPVI, printed features, ρ = 5"].learner
    other = curves["DP-VAPVI, printed features, noise ÷ 100, ρ = 5"].learner
    for a, b in zip(
        one.questions(mdp.layout, mdp.features), other.questions(mdp.layout, mdp.features), strict=True
    ):
        assert a.mu is not None
        assert b.mu == pytest.approx(100 * a.mu)


def test_errors_of_means() -> None:
    found = np.array([[1.0, 3.0], [3.0, 5.0], [2.0, 4.0], [2.0, 4.0]])
    assert linear.error(found) == pytest.approx(np.std([2, 4, 3, 3], ddof=1) / 2)
    # within 2 a run; between max(2/3 - 1, 0) = 0: sqrt((0 + 1) / 10), and the rounding to .01
    assert linear.reference_error(found) == pytest.approx(math.sqrt(0.1 + 1e-4 / 12))


def test_a_constant_goes_to_the_right_knob() -> None:
    pevi = linear.with_constant(linear.Curve("PEVI, own best c", PEVI()), 0.3).learner
    assert isinstance(pevi, PEVI)
    assert pevi.c == 0.3
    for curve in linear.tunable()[1:]:
        assert linear.with_constant(curve, 0.3).learner.C == 0.3  # type: ignore[attr-defined]


def test_a_run_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some, tuned = linear.curves()[3:6], linear.tunable()[:2]
    monkeypatch.setattr(linear, "curves", lambda: some)
    monkeypatch.setattr(linear, "tunable", lambda: tuned)
    job = Job(tmp_path, say=lambda _: None)
    first = linear.run(job, TINY)
    assert [row["curve"] for row in first["rows"]][:3] == [curve.name for curve in linear.curves()]
    assert [row["constant"] for row in first["rows"]][:3] == [None] * 3
    assert all(row["constant"] in TINY.grid for row in first["rows"][3:])
    assert first["rows"][2]["rho"] == pytest.approx(0.1 * 0.884, rel=0.01)
    assert all(0 <= mean <= 20 for row in first["rows"] for mean in row["mean"])

    def no(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(linear, "gaps", no)
    assert linear.run(job, TINY) == first
