"""Names and options of learners in a folder: they come back as they were."""

from dataclasses import replace

import pytest

from discreet.core.layout import Layout
from discreet.data.schema import Schema
from discreet.learners.offline.apvi import DPAPVI
from discreet.learners.offline.decision_points import DecisionPoints
from discreet.pipeline.learned_files import default_algorithm, learner_of, name_of, options_of

SCHEMA = Schema("ward", "patient", Layout(3, 2, 4))


@pytest.mark.parametrize("learner", [DecisionPoints(caution=2.0, most_changes=3), DPAPVI()])
def test_a_learner_comes_back_from_its_name_and_options(learner: DecisionPoints | DPAPVI) -> None:
    again = learner_of(name_of(learner), options_of(learner))
    assert type(again) is type(learner)
    assert options_of(again) == options_of(learner)


def test_the_default_learner_follows_from_the_schema() -> None:
    assert default_algorithm(SCHEMA) == name_of(DPAPVI()) == "dp-apvi"
    assert default_algorithm(replace(SCHEMA, stationary=True)) == name_of(DecisionPoints())


def test_unknown_names_and_options_are_refused() -> None:
    assert name_of(object()) == "object"
    with pytest.raises(ValueError, match="algorithm = 'apvy'"):
        learner_of("apvy", {})
    with pytest.raises(TypeError, match="patience"):
        learner_of("decision-points", {"patience": 1})
