"""Trajectories: raw user data, with the states, actions and rewards of users.

The trusted kernel checks every record before the record is added. An unchecked reward of 1.2 or a missing
step would violate the sensitivity bound that determines the noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from discreet.core.layout import Layout
from discreet.core.short_repr import brief


@dataclass(frozen=True)
class Trajectory:
    """Episode of one user with H steps. A trajectory is raw data. Only sessions read it, after checks.

    states : (H + 1,) int64 in [0, S); the last entry is the state after the episode.

    actions : (H,) int64 in [0, A).

    rewards : (H,) float64 in [0, 1].

    ``session.submit`` raises ``ValueError`` for other values.
    """

    __repr__ = brief

    states: NDArray[np.int64]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float64]


@dataclass(frozen=True)
class Trajectories:
    """Episodes of n users, with one row for each user as in :class:`Trajectory`.

    states : (n, H + 1) int64 in [0, S).

    actions : (n, H) int64 in [0, A).

    rewards : (n, H) float64 in [0, 1].

    Indexing returns one :class:`Trajectory`, and ``len`` returns n. ``session.submit_many`` raises
    ``ValueError`` for other values and then adds no user.
    """

    __repr__ = brief

    states: NDArray[np.int64]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float64]

    @classmethod
    def of(cls, record: Trajectory) -> Trajectories:
        """Return one record as the trajectories of one user."""
        return cls(record.states[None], record.actions[None], record.rewards[None])

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
    """Check one trajectory, or the trajectories of ``users`` users, and return copies with the exact dtypes.

    The function checks shapes against the horizon, indices against S and A, and admissibility against the
    mask. Rewards must be finite and in [0, 1]. Nothing is clipped. The ``ValueError`` names the first invalid
    number. Data are copied first, and the copies are checked. The added data are therefore the checked data,
    even if the original changes.
    """
    from discreet.core import trajectory_checks_kernels as trajectories_kernels

    name, many = "trajectory" if users is None else "trajectories", () if users is None else (users,)
    copies: list[NDArray[Any]] = []
    for part, steps, dtype in (
        ("states", layout.horizon + 1, np.int64),
        ("actions", layout.horizon, np.int64),
        ("rewards", layout.horizon, np.float64),
    ):
        value = np.array(getattr(given, part))
        if value.shape != (*many, steps):
            raise ValueError(f"{name}.{part} has shape {value.shape}: must be {(*many, steps)}")
        if value.dtype.kind not in ("iu" if part != "rewards" else "iufb"):
            allowed = "integer" if part != "rewards" else "real numbers"
            raise ValueError(f"{name}.{part} has dtype {value.dtype}: must be {allowed}")
        # An unsigned integer above 2^63 becomes negative, which is also out of range.
        copies.append(np.ascontiguousarray(value, dtype))
    states, actions, rewards = map(np.atleast_2d, copies)
    user, code, step = trajectories_kernels.first_broken(states, actions, rewards, layout.row_index)
    if user >= 0:
        part, array, must = (
            ("states", states, f"must be an integer in [0, {layout.states - 1}]"),
            ("actions", actions, f"must be an integer in [0, {layout.actions - 1}]"),
            ("actions", actions, f"not admissible in state {states[user, step]}"),
            ("rewards", rewards, "must be in [0, 1]"),
        )[code]
        whose = "" if users is None else f"[{user}]"
        raise ValueError(f"{name}{whose}.{part}[{step}] = {array[user, step]}: {must}")
    return Trajectory(*copies) if users is None else Trajectories(*copies)
