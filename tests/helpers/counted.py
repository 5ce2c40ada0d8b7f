"""Counts of checked rows, cell by cell in NumPy: what tests of readers and checks compare."""

from typing import NamedTuple

import numpy as np

from discreet.data.validate import episodes


class Counted(NamedTuple):
    """transitions (H, R, S), reward_sums (H, R) on a grid of 2^-20, and how many people and episodes."""

    transitions: np.ndarray
    reward_sums: np.ndarray
    users: int
    episodes: int


def count(source, **how):
    """Check and count all rows of a source; ``how`` is handed to :func:`discreet.data.validate.episodes`."""
    layout = source.schema.layout
    moves = np.zeros((layout.horizon, layout.rows, layout.states))
    sums = np.zeros((layout.horizon, layout.rows))
    users = found = 0
    for part in episodes(source, **how):
        got = part.trajectories
        rows, steps = layout.row_index[got.states[:, :-1], got.actions], np.arange(layout.horizon)
        np.add.at(moves, (steps, rows, got.states[:, 1:]), 1.0)
        np.add.at(sums, (steps, rows), np.rint(got.rewards * 2**20) / 2**20)
        users, found = int(part.user[-1]) + 1, found + len(got)
    return Counted(moves, sums, users, found)
