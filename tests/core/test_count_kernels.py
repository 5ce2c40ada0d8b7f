"""Kernels of counts: scales whose losses floats cannot square are refused."""

import numpy as np
import pytest

from discreet.core.count_mechanism import CountMechanism, Stated
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.noise.noises import GAUSSIAN, LAPLACE, AdditiveNoise
from discreet.core.strategies import Batches
from discreet.mechanisms.interfaces import Schedule

LAYOUT = Layout(3, 2, 4)


QUERY = CountQuery(LAYOUT)


SCHEDULE = Schedule(100, times=np.array([0, 10, 20, 40]))


STATED = Stated(1e-6, 1.0)


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN])
@pytest.mark.parametrize("scale", [1e-160, 9e-101, 1e-100, 1e100, 2e100, 1e160, 1e161])
def test_scales_whose_losses_floats_do_not_square_are_refused(noise: AdditiveNoise, scale: float) -> None:
    """At 1e161 squares lose their digits, and mu came out half a per cent too small."""
    made = CountMechanism(QUERY, SCHEDULE, "seeded", Batches(), noise, np.full(3, scale), stated=STATED)
    if not 1e-100 <= scale <= 1e100:
        with pytest.raises(ValueError, match="scales.*: must be a number in"):
            _ = made.records
    else:
        most = 24.0 if noise == LAPLACE else 24.0**0.5
        assert made.records[0].loss == pytest.approx(most / scale, rel=1e-14)
