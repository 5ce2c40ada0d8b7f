"""Environments of an ensemble in the form of the class ``VecEnv`` of Stable-Baselines3.

At the end of an episode, the dictionary of information has two entries: the last observation
(``terminal_observation``), and ``TimeLimit.truncated``, which is True if the episode was truncated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

from discreet.envs.world_env import VectorWorld

Indices = int | Sequence[int] | None


class SB3World(VecEnv):
    """Many environments for Stable-Baselines3. See ``WorldModel.vector_env`` with ``sb3=True``.

    Parameters
    ----------
    world : VectorWorld
        The same environments for Gymnasium. No other code may step them.
    """

    def __init__(self, world: VectorWorld) -> None:
        self.world = world
        super().__init__(world.num_envs, world.single_observation_space, world.single_action_space)
        self._actions: NDArray[Any] = np.zeros(0, np.int64)

    def reset(self) -> NDArray[Any]:
        """Begin an episode in every environment. Returns the first observations.

        A seed that was set by ``seed`` is used once.
        """
        seen, _ = self.world.reset(seed=self._seeds[0])
        self._reset_seeds()
        self._reset_options()
        return seen

    def step_async(self, actions: NDArray[Any]) -> None:
        """Store the (n,) actions for ``step_wait``."""
        self._actions = actions

    def step_wait(self) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Take the actions of ``step_async``. Returns observations, rewards, ends and information.

        Raises ``ValueError`` if an action does not exist, or if ``reset`` was never called.
        """
        seen, rewards, terminated, truncated, info = self.world.step(self._actions)
        ends = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for i in np.flatnonzero(ends):
            infos[i] = {
                "terminal_observation": info["final_obs"][i],
                "TimeLimit.truncated": bool(truncated[i]),
            }
        return seen, rewards.astype(np.float32), ends, infos

    def close(self) -> None:
        """Close nothing, because no process or file is open."""

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Return an attribute of the common :class:`VectorWorld`, once for each environment.

        attr_name : name of the attribute. indices : environments; None: all.

        Raises ``AttributeError`` if the attribute does not exist.
        """
        return [getattr(self.world, attr_name)] * self._count(indices)

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Set an attribute of the common :class:`VectorWorld`.

        attr_name : name of the attribute. value : new value. indices : not used.
        """
        setattr(self.world, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of the common :class:`VectorWorld` once.

        Returns the result, once for each environment. method_name : name of the method. method_args,
        method_kwargs : arguments of the method. indices : environments; None: all.

        Raises ``AttributeError`` if the method does not exist.
        """
        return [getattr(self.world, method_name)(*method_args, **method_kwargs)] * self._count(indices)

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Indices = None) -> list[bool]:
        """Return False for each environment, because no environment is wrapped.

        wrapper_class : class of the wrapper. indices : environments; None: all.
        """
        return [False] * self._count(indices)

    def _count(self, indices: Indices) -> int:
        return len(list(self._get_indices(indices)))
