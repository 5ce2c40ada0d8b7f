"""Stages of elimination: sizes, widths and models of the specification."""

import dataclasses
import math

import numpy as np
import pytest

from discreet.learners.online.elimination_schedule import StageModel, stage_sizes, value_widths


def test_stage_sizes():
    assert stage_sizes(1000, 12, "doubling", 4, False) == (4, 8, 16, 32)
    assert stage_sizes(1000, 12, "doubling", 4, True) == (4, 8, 16, 32, (999 - 720) // 12)
    assert stage_sizes(12, 12, "doubling", 1, True) == ()
    assert stage_sizes(13, 12, "doubling", 1, False) == (1,)
    million = stage_sizes(10**6, 24, "squaring", 1, False)
    assert million == tuple(int(2 * (10.0**6) ** (1 - 0.5**b) / 24) for b in (1, 2, 3))
    assert stage_sizes(10**6, 24, "squaring", 1, True)[:-1] == million
    assert stage_sizes(100, 24, "squaring", 1, False) == (1, 2)  # T^(1) = 10 reaches nobody: one each


@pytest.mark.parametrize("known", [False, True])
def test_widths_are_those_of_the_specification(problem, known):
    one = problem(seed=2)
    h, s = one.layout.horizon, one.layout.states
    spec = dataclasses.replace(one.spec, users=5000)
    model = StageModel.of(one.release(), spec, 0.1, False)
    e1, e2, e3, _ = one.errors
    width = 4 * max(e1, e3)
    assert model.width == width
    d = model.denominators
    many = one.layout.rows * h * 5000
    l_r = max(1.0, math.sqrt(0.5 * math.log(2 * many / 0.01)))
    l_p = math.sqrt(2 * s * math.log(2 * many / 0.01))
    later = np.arange(h - 1, -1, -1.0)[:, None]
    w = 0.5 * later * (l_p / np.sqrt(d) + (s + 3) / 2 * width / d)
    if not known:
        w = w + l_r / np.sqrt(d) + (width + e2) / d
    most = later + (0.0 if known else 1.0)
    found = value_widths(model, spec, 0.02, known, 1.0)
    np.testing.assert_allclose(found, np.minimum(w, most), rtol=1e-12)
    scaled = value_widths(model, spec, 0.02, known, 1e-6)
    np.testing.assert_allclose(scaled, np.where(d > width, 1e-6 * w, most), rtol=1e-12)
    assert (d <= width).any()


def test_models_without_noise(problem):
    one = problem(seed=3)
    for ignore in (False, True):
        model = StageModel.of(one.release(quiet=True), one.spec, 0.1, ignore)
        assert model.width == 0.0
        visits = one.layout.to_rows(one.visits)
        np.testing.assert_array_equal(model.seen, visits > 0)
        n3 = one.layout.to_rows(one.visits[..., None] * one.transitions)
        np.testing.assert_allclose(model.counts, n3, atol=1e-9)
        full = model.completed()
        np.testing.assert_allclose(full.sum(axis=-1), 1.0, atol=1e-12)
        np.testing.assert_array_equal(full[visits == 0], 1.0 / one.layout.states)


def test_noise_ignored_is_still_a_model(problem):
    one = problem(seed=4, errors=(50.0, 50.0, 50.0, 100.0), most=40.0)
    model = StageModel.of(one.release(), one.spec, 0.1, True)
    assert (model.transitions >= 0).all()
    assert (model.transitions.sum(axis=-1) <= 1.0 + 1e-12).all()
    assert model.width == 0.0
