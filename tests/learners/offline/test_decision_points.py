"""Options of decision points, and releases that they cannot read."""

import math
from typing import Any

import numpy as np
import pytest

import discreet as dr
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.releases import Schedule
from discreet.core.rng import Seeded
from discreet.learners.offline.decision_points import DecisionPoints
from discreet.mechanisms.interfaces import ProblemSpec

LAYOUT = Layout(3, 2, 4)


@pytest.mark.parametrize(
    "options",
    [
        {"caution": -0.1},
        {"caution": math.nan},
        {"most_changes": 0},
        {"most_changes": 1.5},
        {"hidden_cause": 0.9},
        {"hidden_cause": 51.0},
    ],
)
def test_options_out_of_range_are_refused_by_name(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=f"{name} = "):
        DecisionPoints(**options)


def test_one_release_after_all_users_of_a_stationary_environment() -> None:
    learner = DecisionPoints()
    assert learner.schedule(50).release_times.tolist() == Schedule.one_shot(50).release_times.tolist()
    assert learner.schedule(50).plans == "stochastic"
    initial = np.array([1.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="stationary"):
        learner.query(ProblemSpec(LAYOUT, 50, initial=initial))


def test_a_release_of_a_stream_is_refused() -> None:
    release = dr.Central(epsilon=1.0).start(CountQuery(LAYOUT), Schedule(5), Seeded(1)).release()
    with pytest.raises(ValueError, match="must be that of offline data"):
        DecisionPoints().learn(release, ProblemSpec(LAYOUT, 5, stationary=True))
