"""A user's contribution by its definition and by the compiled code: the same numbers."""

from typing import Any

import numpy as np
import pytest

from discreet.audit.one_user_sums import summand
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.raw_encoder import add_records, family_begins
from discreet.core.trajectories import Trajectories, Trajectory

LAYOUT = Layout(3, 2, 4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stationary": True},
        {"stationary": True, "first": True},
        {"visits": False, "center_rewards": True},
        {"pooled": "all"},
        {"pooled": "first"},
        {"step": 2},
        {"known_rewards": True},
    ],
)
def test_the_compiled_sums_are_those_of_the_definition(options: dict[str, Any]) -> None:
    query, rng = CountQuery(LAYOUT, **options), np.random.default_rng(4)
    begins = family_begins(query)
    for _ in range(20):
        record = Trajectory(rng.integers(3, size=5), rng.integers(2, size=4), rng.integers(9, size=4) / 8)
        cells = np.zeros(query.cells)
        add_records(query, begins, Trajectories.of(record), cells)
        np.testing.assert_array_equal(cells, query.to_cells(summand(query, record, 0, None)))
