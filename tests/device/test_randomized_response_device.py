"""Devices of randomized response: what does not hide is stated."""

import dataclasses
import math

import pytest

import discreet as dr
from discreet.core.rng import Secure
from discreet.device.count_device import CountDevice
from discreet.device.randomized_response_device import GRID, ReportDevice
from discreet.mechanisms.interfaces import Schedule

from .test_message_guarantee import COUNTS


def test_a_form_whose_noise_does_not_hide_states_that() -> None:
    """The numbers are of the form that a device was given, not of what its server says elsewhere."""
    query = COUNTS["raw"]
    local = dr.Local(epsilon=3.0, randomizer="laplace")
    with local.start(query, Schedule(9), Secure()) as made:
        device: CountDevice = made.device  # type: ignore[attr-defined]
    weak = dataclasses.replace(device, families=tuple((name, scale / 50) for name, scale in device.families))
    assert weak.guarantee.epsilon == pytest.approx(150.0, rel=1e-9)
    with dr.Local(epsilon=3.0, randomizer="krr").start(query, Schedule(9), Secure()) as other:
        reports: ReportDevice = other.device  # type: ignore[attr-defined]
    sure = tuple(dataclasses.replace(one, own=GRID) for one in reports.moves)
    shown = dataclasses.replace(reports, moves=sure).guarantee  # type: ignore[arg-type]
    assert (shown.epsilon, shown.shows) == (math.inf, 1.0)
