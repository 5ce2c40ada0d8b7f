"""Gymnasium interface of a :class:`TabularMDP`."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np

from discreet.core import checks
from discreet.envs.mdp.tabular import TabularMDP


class TabularEnv(gymnasium.Env[np.int64, np.int64]):
    """Gymnasium environment of a tabular MDP. See :func:`discreet.envs.to_gymnasium`."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, mdp: TabularMDP, seed: int | None = None) -> None:
        self.mdp = mdp
        self.observation_space = gymnasium.spaces.Discrete(mdp.states)
        self.action_space = gymnasium.spaces.Discrete(mdp.actions)
        self._seed = seed
        self._mask = mdp.mask.astype(np.int8)
        # If an episode ends in a terminal state, the rewards of the remaining steps are omitted. Therefore
        # episodes end early only in terminal states with reward 0.
        self._ends = {s for s in mdp.terminal if not mdp.row_rewards[:, mdp.layout.state_ptr[s]].any()}
        self._state = self._step = -1

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        """Start an episode. Returns its first state and ``info``.

        A seed makes this episode and all following episodes reproducible.
        """
        if seed is None:
            seed, self._seed = self._seed, None
        super().reset(seed=seed)
        self._step = 0
        self._state = self._drawn(self.mdp.row_ptr.size - 2)[1]
        return np.int64(self._state), self._info()

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        """Take one action. Returns (state, reward, terminated, truncated, info)."""
        mdp, h = self.mdp, self._step
        if not 0 <= h < mdp.horizon or self._state in self._ends:
            raise ValueError("step: the episode has ended or not begun; call reset first")
        if not self.action_space.contains(action) or not self._mask[self._state, action]:
            allowed = np.flatnonzero(self._mask[self._state]).tolist()
            raise ValueError(
                f"action = {checks.said(action)} in state {self._state}: must be one of {allowed}"
            )
        rows = mdp.layout.rows
        row = int(mdp.layout.row_index[self._state, action])
        entry, after = self._drawn((h if mdp.transition_slots > 1 else 0) * rows + row)
        reward_row = (h if mdp.row_rewards.shape[0] > 1 else 0) * rows + row
        reward = self._reward(reward_row if mdp.entry_rewards is None else entry)
        self._state, self._step = after, h + 1
        return np.int64(after), reward, after in self._ends, self._step == mdp.horizon, self._info()

    def _drawn(self, row: int) -> tuple[int, int]:
        """Draw an entry of transition row ``row``."""
        first, last = self.mdp.row_ptr[row : row + 2]
        entry = int(self.np_random.choice(np.arange(first, last), p=self.mdp.probability[first:last]))
        return entry, int(self.mdp.successor[entry])

    def _reward(self, index: int) -> float:
        mdp = self.mdp
        if mdp.reward_support is not None and mdp.outcome_probabilities is not None:
            return float(self.np_random.choice(mdp.reward_support, p=mdp.outcome_probabilities[index]))
        mean = mdp.row_rewards.ravel()[index] if mdp.entry_rewards is None else mdp.entry_rewards[index]
        if mdp.reward_law == "bernoulli":
            return float(self.np_random.random() < mean)
        return float(mean)

    def _info(self) -> dict[str, Any]:
        return {"step": self._step, "action_mask": self._mask[self._state].copy()}
