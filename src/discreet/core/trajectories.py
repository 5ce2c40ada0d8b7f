"""Trajectories: what people did and what happened to them. Raw user data.

The trusted core checks every record before it adds it: an unchecked reward of 1.2 or a missing
step would break the sensitivity that the noise is calibrated to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core.layout import Layout
from discreet.core.shown import brief


@dataclass(frozen=True)
class Trajectory:
    """One user's episode.

    states : (H + 1,) int64 in [0, S); actions : (H,) int64 in [0, A); rewards : (H,) float64 in [0, 1].
    """

    __repr__ = brief

    states: NDArray[np.int64]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float64]


@dataclass(frozen=True)
class Trajectories:
    """Episodes of n users: ``states (n, H + 1)``, ``actions (n, H)``, ``rewards (n, H)``."""

    __repr__ = brief

    states: NDArray[np.int64]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float64]

    def __len__(self) -> int:
        return int(self.states.shape[0])

    def __getitem__(self, index: int) -> Trajectory:
        return Trajectory(self.states[index], self.actions[index], self.rewards[index])

    def __iter__(self) -> Iterator[Trajectory]:
        return (self[i] for i in range(len(self)))


def _copied(
    name: str, given: Trajectory | Trajectories, users: tuple[int, ...], horizon: int
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Copies of the right shapes and kinds of numbers.

    Copies first, checks on the copies: what is added is what was checked, whatever happens outside.
    """
    parts = np.array(given.states), np.array(given.actions), np.array(given.rewards)
    for part, value, steps, kinds in zip(
        ("states", "actions", "rewards"), parts, (horizon + 1, horizon, horizon), ("iu", "iu", "iufb"),
        strict=True,
    ):  # fmt: skip
        shape = (*users, steps)
        if value.shape != shape:
            raise ValueError(f"{name}.{part} has shape {value.shape}: must be {shape}")
        if value.dtype.kind not in kinds:
            allowed = "integer" if kinds == "iu" else "real numbers"
            raise ValueError(f"{name}.{part} has dtype {value.dtype}: must be {allowed}")
    return parts


def copied_many(trajectories: Trajectories, users: int, layout: Layout) -> Trajectories:
    """Copies with exact dtypes of the trajectories of ``users`` people, or ``ValueError``; ranges are not
    checked yet: who adds them checks every record by the rules of :func:`checked` first.
    """
    states, actions, rewards = _copied("trajectories", trajectories, (users,), layout.horizon)
    # an unsigned integer above 2^63 becomes a negative one, which is as much out of range
    return Trajectories(
        np.ascontiguousarray(states, np.int64),
        np.ascontiguousarray(actions, np.int64),
        np.ascontiguousarray(rewards, np.float64),
    )


def checked(trajectory: Trajectory, layout: Layout) -> Trajectory:
    """Return the trajectory with exact dtypes, or raise ``ValueError`` with the first broken record.

    Checks shapes against the horizon, indices against S and A, admissibility against the mask, and
    rewards: finite, in [0, 1]. Nothing is clipped.
    """
    states, actions, rewards = _copied("trajectory", trajectory, (), layout.horizon)
    for name, array, size in (("states", states, layout.states), ("actions", actions, layout.actions)):
        bad = np.flatnonzero((array < 0) | (array >= size))
        if bad.size:
            raise ValueError(
                f"trajectory.{name}[{bad[0]}] = {array[bad[0]]}: must be an integer in [0, {size - 1}]"
            )
    states, actions = np.ascontiguousarray(states, np.int64), np.ascontiguousarray(actions, np.int64)
    if layout.mask is not None:
        bad = np.flatnonzero(~layout.mask[states[:-1], actions])
        if bad.size:
            raise ValueError(
                f"trajectory.actions[{bad[0]}] = {actions[bad[0]]}: not admissible in state {states[bad[0]]}"
            )
    rewards = np.ascontiguousarray(rewards, np.float64)
    bad = np.flatnonzero(~((rewards >= 0) & (rewards <= 1)))
    if bad.size:
        raise ValueError(f"trajectory.rewards[{bad[0]}] = {rewards[bad[0]]}: must be in [0, 1]")
    return Trajectory(states, actions, rewards)
