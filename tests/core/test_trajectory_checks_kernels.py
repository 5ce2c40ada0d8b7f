"""The compiled check of records names the first broken number of the first broken user."""

import math

import numpy as np
import pytest

from discreet.core.trajectory_checks_kernels import first_broken

ROWS = np.array([[0, 1], [2, -1], [3, 4]])


@pytest.mark.parametrize(
    ("table", "where", "value", "code"),
    [
        ("states", (1, 3), 3, 0),
        ("states", (1, 0), -1, 0),
        ("actions", (1, 1), 2, 1),
        ("actions", (1, 2), -1, 1),
        ("actions", (1, 0), 1, 2),  # not admissible in state 1
        ("rewards", (1, 2), 1.0000001, 3),
        ("rewards", (1, 2), -1e-300, 3),
        ("rewards", (1, 0), math.nan, 3),
    ],
)
def test_one_broken_number_is_found(table: str, where: tuple[int, int], value: float, code: int) -> None:
    tables = {
        "states": np.array([[0, 1, 2, 0]] * 2 + [[9] * 4]),
        "actions": np.zeros((3, 3), np.int64),
        "rewards": np.full((3, 3), 0.5),
    }
    tables["states"][1] = [1, 0, 2, 0]
    assert first_broken(*(one[:2] for one in tables.values()), ROWS) == (-1, 0, 0)
    tables[table][where] = value
    assert first_broken(*tables.values(), ROWS) == (where[0], code, where[1])
