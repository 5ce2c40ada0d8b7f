"""The search for defaults: it descends, it is declared, and the defaults are points of its grids."""

import numpy as np
import pytest

import discreet as dr
from benchmarks.studies import tuning
from discreet.core.layout import Layout
from discreet.learners.online.noise_aware import defaults_for
from discreet.mechanisms.interfaces import ProblemSpec


def test_the_search_goes_knob_by_knob() -> None:
    search = tuning.Search({}, {"a": 3, "b": 0}, {"a": (1, 2, 3), "b": (0, 1)})
    asked = []

    def score(setting: tuning.Setting) -> float:
        asked.append((setting["a"], setting["b"]))
        return 1.0 + abs(setting["a"] - 2) + 2.0 * setting["b"]

    assert tuning.descend(search, score) == ({"a": 2, "b": 0}, 1.0)
    assert asked == [(3, 0), (1, 0), (2, 0), (2, 1)]


def test_a_gain_within_noise_moves_nothing() -> None:
    search = tuning.Search({}, {"a": 0}, {"a": (0, 1)})
    for step, where in ((0.5, 0), (2.0, 1)):
        setting, _ = tuning.descend(search, lambda s, d=step: 1.0 - s["a"] * d * tuning.LEAST_GAIN)
        assert setting == {"a": where}


@pytest.mark.parametrize("kind", sorted(tuning.SEARCHES))
def test_searches_start_inside_their_grids_and_defaults_are_points_of_them(kind: str) -> None:
    search = tuning.SEARCHES[kind]
    for privatizer in search.budgets.values():
        spec = ProblemSpec(Layout(6, 2, 20), 20_000, budget=privatizer.budget)
        defaults = {**defaults_for(spec), "consistent": dr.NoiseAwareUCBVI().consistent}
        for knob, values in search.grid.items():
            assert search.start[knob] in values
            assert defaults[knob] in values


def test_shares_are_of_what_the_uniform_policy_loses() -> None:
    world = dr.make("random", seed=100)
    found = tuning.shares({"replan_growth": 1.5}, dr.Central(epsilon=1e-4, delta=1e-6), [world], 300, 2)
    assert found == pytest.approx([1.0], abs=0.5)  # nothing can be learned
    assert np.isfinite(found).all()
