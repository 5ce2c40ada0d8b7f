"""Gymnasium environments of an ensemble of tabular MDPs: one environment, or many with a common step.

Each episode uses one member of the ensemble, which is drawn when the episode begins. If the last action is
declared as "as before", the behaviour policy chooses the action (:mod:`discreet.pipeline.world_model`).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from discreet.core import checks
from discreet.core.releases import Floats, Ints
from discreet.envs import world_env_kernels as kernels
from discreet.envs.world_env_kernels import WorldState, WorldTables
from discreet.utils.random_streams_kernels import run_key

_MODES = getattr(gymnasium.vector, "AutoresetMode", None)  # Gymnasium 1.0 does not have it
_SAME_STEP = _MODES.SAME_STEP if _MODES else "SameStep"


def world_tables(
    members: Iterable[Floats],
    possible: NDArray[np.bool_],
    action_row: Ints,
    rewards: tuple[Floats, Floats],
    ended: NDArray[np.bool_],
    initial: Floats,
    horizon: int,
) -> WorldTables:
    """Return the tables that the compiled step reads.

    - members : iterable of (T, R, S) transition rows.
    - possible : (T, R, S) mask of all next states that a member can have.
    - action_row : (T, S, A') row in [0, R) for each action of a state. The next state is drawn from this row.
    - rewards : (T', R) rewards of rows, and (S,) rewards on arrival, with T' = 1 or H.
    - ended : (S,) mask of terminal states. initial : (S,) distribution of the first state. horizon : H.
    """
    slots, rows, _ = possible.shape
    count = possible.sum(axis=-1).ravel()
    pointer = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    at = np.nonzero(possible)
    row, last = np.repeat(np.arange(count.size), count), pointer[1:] - 1
    cumulative = []
    for member in members:
        values = member[at]
        whole = np.cumsum(values)
        whole -= np.concatenate([[0.0], whole[last[:-1]]])[row]
        found = np.minimum(whole / whole[last][row], 1.0)
        found[last] = 1.0
        cumulative.append(found)
    start = np.cumsum(initial) / np.sum(initial)
    start[np.flatnonzero(initial)[-1] :] = 1.0
    return WorldTables(
        np.ascontiguousarray(action_row, np.int64), pointer, at[-1].astype(np.int64),
        np.concatenate(cumulative), np.array(rewards[0], np.float64), np.array(rewards[1], np.float64),
        np.array(ended, bool), start, rows if slots > 1 else 0, int(horizon),
    )  # fmt: skip


def observations(states: int, observation: str | ArrayLike) -> NDArray[np.float32] | None:
    """Return the (S, d) float32 table of observations by state, or None if the state's index is observed.

    observation : "index", "one-hot", or (S, d) readings. Raises ``ValueError`` for any other value.
    """
    if isinstance(observation, str):
        checks.choice("observation", observation, ("index", "one-hot"))
        return None if observation == "index" else np.eye(states, dtype=np.float32)
    table = np.asarray(observation, np.float32)
    if table.ndim != 2 or table.shape[0] != states or not table.shape[1] or not np.isfinite(table).all():
        raise ValueError(f"observation has shape {table.shape}: must be ({states}, d) finite readings")
    return table


def _space(states: int, table: NDArray[np.float32] | None, timed: bool) -> gymnasium.Space[Any]:
    if table is None:
        return gymnasium.spaces.Discrete(states)
    low, high = table.min(axis=0), table.max(axis=0)
    if timed:
        low, high = np.append(low, 0.0), np.append(high, 1.0)
    return gymnasium.spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)


class VectorWorld(VectorEnv):
    """Many environments with a common compiled step. See ``WorldModel.vector_env``.

    When an episode ends, the next episode begins in the same step (``AutoresetMode.SAME_STEP``). Where the
    mask ``info["_final_obs"]`` is True, ``info["final_obs"]`` has the last observation of the old episode.

    Parameters
    ----------
    tables : WorldTables
        Transitions and rewards.
    n : int
        Number of environments, at least 1.
    table : (S, d) float32, optional
        Observation of each state. None: the index of the state is observed. States without a row have
        readings 0.
    time : bool
        True: observations have one more entry, the elapsed share of the horizon, and the horizon terminates
        episodes. False: the horizon truncates episodes.
    made_from : mapping
        Origin of the ensemble: hash of the release, part and share.
    """

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": _SAME_STEP, "render_modes": []}

    def __init__(
        self,
        tables: WorldTables,
        n: int,
        table: NDArray[np.float32] | None,
        time: bool,
        made_from: Mapping[str, Any],
    ) -> None:
        self.num_envs = n = checks.integer("n", n, 1)
        if checks.flag("time", time) and table is None:
            raise ValueError("time = True: must be used with observation = 'one-hot' or with readings")
        self.tables, self.made_from = tables, dict(made_from)
        states, actions = tables.action_row.shape[1:]
        if table is not None and len(table) < states:  # the last state is that of unsupported actions
            table = np.pad(table, ((0, states - len(table)), (0, 0)))
        self._table, self._time = table, time
        self.single_observation_space = _space(states, table, time)
        self.single_action_space = gymnasium.spaces.Discrete(actions)
        self.observation_space = batch_space(self.single_observation_space, n)
        self.action_space = batch_space(self.single_action_space, n)
        self._now = WorldState(
            np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros((n, 4), np.uint64),
            np.zeros(n), np.zeros(n, bool), np.zeros(n, bool), np.zeros(n, np.int64),
        )  # fmt: skip
        self._begun = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin an episode in every environment. Returns the first observations and an empty ``info``.

        seed : seed that makes all following episodes reproducible. None: continue the random streams, which
        the operating system seeds at first. options : not used.

        Raises ``ValueError`` if the seed is negative.
        """
        if seed is not None or not self._begun:
            seed = secrets.randbits(64) if seed is None else checks.integer("seed", seed, 0)
            kernels.seed_environments(run_key(seed), self._now)
        self._begun = True
        kernels.begin_episodes(self.tables, self._now)
        return self._observed(self._now.state, self._now.step), {}

    def step(
        self, actions: ArrayLike
    ) -> tuple[NDArray[Any], Floats, NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Take one action in every environment.

        actions : (n,) integers in [0, A'). Returns copies of observations, rewards, terminated, truncated and
        ``info``.

        Raises ``ValueError`` if an action does not exist, or if :meth:`reset` was never called.
        """
        if not self._begun:
            raise ValueError("step: no episode has begun; call reset first")
        chosen = np.ascontiguousarray(actions)
        if chosen.shape != (self.num_envs,) or chosen.dtype.kind not in "iu":
            raise ValueError(
                f"actions of shape {chosen.shape} and type {chosen.dtype}: must be {self.num_envs} integers"
            )
        now = self._now
        steps = now.step + 1
        wrong = kernels.step_environments(self.tables, chosen.astype(np.int64, copy=False), self._time, now)
        if wrong >= 0:
            most = self.tables.action_row.shape[2] - 1
            raise ValueError(f"actions[{wrong}] = {chosen[wrong]}: must be in [0, {most}]")
        ends = now.terminated | now.truncated
        info: dict[str, Any] = {}
        if ends.any():
            info = {"final_obs": self._observed(now.final, steps), "_final_obs": ends}
        return (
            self._observed(now.state, now.step), now.reward.copy(), now.terminated.copy(),
            now.truncated.copy(), info,
        )  # fmt: skip

    def _observed(self, states: Ints, steps: Ints) -> NDArray[Any]:
        if self._table is None:
            return states.copy()
        found = self._table[states]
        if not self._time:
            return found
        share = (steps / self.tables.horizon).astype(np.float32)
        return np.concatenate([found, share[:, None]], axis=1)


class WorldEnv(gymnasium.Env[Any, np.int64]):
    """One environment. :class:`VectorWorld` describes the parameters."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(
        self,
        tables: WorldTables,
        table: NDArray[np.float32] | None,
        time: bool,
        made_from: Mapping[str, Any],
    ) -> None:
        self._inner = VectorWorld(tables, 1, table, time, made_from)
        self.observation_space = self._inner.single_observation_space
        self.action_space = self._inner.single_action_space
        self._waiting: NDArray[Any] | None = None  # first observation of an episode that has begun
        self._open = False

        self.spec = EnvSpec(
            "discreet/PrivateWorld-v0", entry_point=partial(WorldEnv, tables, table, time),
            kwargs={"made_from": self._inner.made_from}, disable_env_checker=True, order_enforce=False,
        )  # fmt: skip

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode. Returns its first observation and an empty ``info``.

        seed : seed that makes all following episodes reproducible. options : not used.

        Raises ``ValueError`` if the seed is negative.
        """
        super().reset(seed=seed)
        first, self._waiting = self._waiting, None
        if first is None or seed is not None:
            first = self._inner.reset(seed=seed)[0]
        self._open = True
        return first[0], {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one action. Returns (observation, reward, terminated, truncated, info).

        Raises ``ValueError`` if the action does not exist, or if the episode has ended.
        """
        if not self._open:
            raise ValueError("step: the episode has ended or not begun; call reset first")
        after, reward, terminated, truncated, info = self._inner.step(np.array([action]))
        if info:
            self._open, self._waiting, after = False, after, info["final_obs"]
        return after[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}
