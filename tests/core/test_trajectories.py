"""Trajectories: one broken record and nothing is added, and what is added is what was checked."""

from typing import Any

import numpy as np
import pytest

from discreet.core.trajectories import Trajectories

from .session.test_submit_many import people, start

N = 50


def broken(field: str, index: Any, value: Any) -> Trajectories:
    records = people()
    getattr(records, field)[index] = value
    return records


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (broken("rewards", (49, 3), 1.2), r"trajectories\[49\].rewards\[3\] = 1.2: must be in \[0, 1\]"),
        (broken("rewards", (7, 0), np.nan), r"trajectories\[7\].rewards\[0\] = nan"),
        (broken("rewards", (7, 0), -1e-300), r"trajectories\[7\].rewards\[0\] = -1e-300"),
        (broken("states", (3, 4), 2), r"trajectories\[3\].states\[4\] = 2: must be an integer in \[0, 1\]"),
        (broken("states", (0, 0), -1), r"trajectories\[0\].states\[0\] = -1: must be an integer in \[0, 1\]"),
        (broken("actions", (9, 1), 3), r"trajectories\[9\].actions\[1\] = 3: must be an integer in \[0, 2\]"),
        (
            broken("actions", (9, 1), -1),
            r"trajectories\[9\].actions\[1\] = -1: must be an integer in \[0, 2\]",
        ),
        *(
            (
                broken(field, (9, 1), value),
                rf"trajectories\[9\].{field}\[1\] = {value}: must be an integer in \[0, {most}\]",
            )
            for field, most in (("states", 1), ("actions", 2))
            for value in (-7, most + 1, most + 2, 10**9)
        ),
        *(
            (
                broken("rewards", (9, 3), value),
                rf"trajectories\[9\].rewards\[3\] = {value}: must be in \[0, 1\]",
            )
            for value in (-2.5, 7.0, np.inf, -np.inf)
        ),
        (broken("states", (9, slice(None)), 1), "actions"),
        (people(N + 1), r"len\(trajectories\) = 51: must be an integer in \[1, 50\]"),
        (people(0), r"len\(trajectories\) = 0"),
        (Trajectories(*(np.zeros((2, 4)) for _ in range(3))), r"states has shape \(2, 4\): must be \(2, 5\)"),  # type: ignore[arg-type]
        (Trajectories(np.zeros((2, 5)), np.zeros((2, 4)), np.zeros((2, 4))), "states has dtype float64"),  # type: ignore[arg-type]
        (
            Trajectories(np.full((1, 5), 2**64 - 1, np.uint64), np.zeros((1, 4), int), np.zeros((1, 4))),  # type: ignore[arg-type]
            r"trajectories\[0\].states\[0\]",
        ),
        (Trajectories(np.zeros((1, 5), int), np.zeros((1, 4), int), np.full((1, 4), 1j)), "dtype complex"),  # type: ignore[arg-type]
        ([people()[0]], "must be Trajectories"),
    ],
)
def test_one_broken_record_and_nothing_is_added(records: Any, message: str) -> None:
    if message == "actions":
        records.actions[9] = 1  # not admissible in state 1
        message = r"trajectories\[9\].actions\[0\] = 1: not admissible in state 1"
    session = start()
    with pytest.raises(ValueError, match=message):
        session.submit_many(records, 1)
    assert session.users == 0
    session.absent(N)
    assert all((e.value == 0).all() for e in session.release().estimates.values())


def test_what_is_added_is_what_was_checked() -> None:
    """An array that changes after its first reading is read once."""

    class Turns:
        reads = 0

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            self.reads += 1
            return np.full((1, 4), 0.5 if self.reads == 1 else 1e9)

    session = start(users=1)
    turns = Turns()
    session.submit_many(Trajectories(np.zeros((1, 5), int), np.zeros((1, 4), int), turns), 1)  # type: ignore[arg-type]
    assert turns.reads == 1
    assert session.state["cells"].max() <= 1.0
