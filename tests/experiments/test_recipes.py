"""Recipes: a run of named parts is a configuration, a run of objects says which of them no file repeats."""

import numpy as np

import discreet as dr
from discreet.experiments.recipes import recipe
from discreet.experiments.simulate import Setup


def test_named_parts_are_a_configuration_with_their_options() -> None:
    setup = Setup(
        dr.make("riverswim", horizon=4), dr.DPUCBVI(bonus_scale=0.5), dr.Central(epsilon=0.7), 60, "auto"
    )
    found = recipe(setup, 3, 2)
    assert found.environment.startswith("riverswim")
    assert {name: found.table[name] for name in ("epsilon", "episodes", "seed", "seeds")} == {
        "epsilon": 0.7, "episodes": 60, "seed": 3, "seeds": 2,
    }  # fmt: skip
    assert found.options["learner.bonus_scale"] == 0.5
    assert "privatizer.epsilon" not in found.options


def test_objects_are_named_as_the_parts_that_no_file_repeats() -> None:
    transitions = np.full((2, 2, 2), 0.5)
    world = dr.TabularMDP(transitions, np.zeros((2, 2)), [1.0, 0.0], horizon=3, name="mine")
    found = recipe(Setup(world, dr.DPUCBVI(), dr.Central(epsilon=0.7), 60, "auto"), 3, 2)
    assert found.table["own"] == ["environment"]
    assert found.table["environment"] == found.environment == "mine"
    assert found.table["note"].startswith("This file does not repeat the run")
    assert found.table["optimal_value"] == 0.0
