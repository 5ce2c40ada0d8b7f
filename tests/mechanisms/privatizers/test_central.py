"""Central privacy: options that reports cannot heed are refused."""

from __future__ import annotations

import pytest

from discreet.mechanisms.privatizers.central import Central


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 1.0, "delta": 1e-6}, "pure epsilon; give epsilon and no delta"),
        ({"rho": 1.0}, "pure epsilon"),
        ({"epsilon": 1.0, "noise": "laplace"}, "noise = 'laplace'"),
        ({"epsilon": 1.0, "weights": (0.5, 0.5)}, "weights = "),
        ({"epsilon": 1.0, "leaf": "user"}, "leaf = 'user'"),
        ({"epsilon": 1.0, "calibration": "published"}, "must be 'tree' with calibration 'published'"),
        ({"epsilon": 1.0, "decay": 0.5}, "decay = 0.5"),
    ],
)
def test_options_that_reports_cannot_heed_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Central(release="reports", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clocks": "rows"}, r"clocks = 'rows': must be 'common', version 0\.2 was the last"),
        ({"clock_growth": 0.5}, r"clock_growth = 0\.5: must be 0\.0, version 0\.2 was the last"),
    ],
)
def test_schedules_of_single_pairs_were_removed(options, message):
    with pytest.raises(ValueError, match=message):
        Central(epsilon=1.0, **options)
    assert Central(epsilon=1.0, clocks="common", clock_growth=0.0) == Central(epsilon=1.0)
