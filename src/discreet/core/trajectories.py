"""Trajectories: what people did and what happened to them. Raw user data.

The trusted core checks every record before it adds it: an unchecked reward of 1.2 or a missing
step would break the sensitivity that the noise is calibrated to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, overload

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


@overload
def checked(given: Trajectory, layout: Layout) -> Trajectory: ...
@overload
def checked(given: Trajectories, layout: Layout, users: int) -> Trajectories: ...
def checked(given: Any, layout: Layout, users: int | None = None) -> Any:
    """Copies with exact dtypes of one user's trajectory, or of so many users', or ``ValueError``.

    Checks shapes against the horizon, indices against S and A, admissibility against the mask, and
    rewards: finite, in [0, 1]. Nothing is clipped. The error names the first number that is broken. Copies
    first, checks on the copies: what is added is what was checked, whatever happens outside.
    """
    name, many = "trajectory" if users is None else "trajectories", () if users is None else (users,)
    states, actions, rewards = np.array(given.states), np.array(given.actions), np.array(given.rewards)
    for part, array, steps, kinds in (
        ("states", states, layout.horizon + 1, "iu"),
        ("actions", actions, layout.horizon, "iu"),
        ("rewards", rewards, layout.horizon, "iufb"),
    ):
        if array.shape != (*many, steps):
            raise ValueError(f"{name}.{part} has shape {array.shape}: must be {(*many, steps)}")
        if array.dtype.kind not in kinds:
            allowed = "integer" if kinds == "iu" else "real numbers"
            raise ValueError(f"{name}.{part} has dtype {array.dtype}: must be {allowed}")
    for part, array, size in (("states", states, layout.states), ("actions", actions, layout.actions)):
        if (at := _first((array < 0) | (array >= size))) is not None:
            raise ValueError(_broken(name, part, array, at) + f"must be an integer in [0, {size - 1}]")
    if layout.mask is not None and (at := _first(~layout.mask[states[..., :-1], actions])) is not None:
        raise ValueError(_broken(name, "actions", actions, at) + f"not admissible in state {states[at]}")
    if (at := _first(~((rewards >= 0) & (rewards <= 1)))) is not None:  # also NaN
        raise ValueError(_broken(name, "rewards", rewards, at) + "must be in [0, 1]")
    kind: Any = Trajectory if users is None else Trajectories  # whatever the caller's own class
    return kind(
        np.ascontiguousarray(states, np.int64),
        np.ascontiguousarray(actions, np.int64),
        np.ascontiguousarray(rewards, np.float64),
    )


def _first(broken: NDArray[np.bool_]) -> tuple[int, ...] | None:
    """Where the first is that is true."""
    return tuple(map(int, np.argwhere(broken)[0])) if broken.any() else None


def _broken(name: str, part: str, array: NDArray[Any], at: tuple[int, ...]) -> str:
    """The number at this place, as an error begins: of many users with hers first."""
    *user, step = at
    return f"{name}{user or ''}.{part}[{step}] = {array[at]}: "
