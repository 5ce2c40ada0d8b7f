"""Conversion of Gymnasium's tabular environments to finite-horizon MDPs, and the reverse.

Rewards are mapped affinely to [0, 1]. The map takes the smallest interval that contains 0 and all original
rewards onto [0, 1]. In the MDP, every step after the end of an episode has the mapped value of the original
reward
0. Therefore returns over H steps are mapped affinely too: mapped return = H offset + scale * original return.
   The
The map preserves the order of policies by value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.envs.mdp.tabular import RewardMap, TabularMDP
from discreet.utils.system import optional

if TYPE_CHECKING:
    import gymnasium


class _Table(NamedTuple):
    """Entries of a transition table as parallel arrays.

    Entry i means: the pair (state[i], action[i]) leads to successor[i] with probability[i] and reward[i].
    """

    state: NDArray[np.int64]
    action: NDArray[np.int64]
    probability: NDArray[np.float64]
    successor: NDArray[np.int64]
    reward: NDArray[np.float64]


def from_gymnasium(
    env_id: str | gymnasium.Env[Any, Any],
    *,
    horizon: int | None = None,
    is_slippery: bool | None = None,
    map_name: str | None = None,
) -> TabularMDP:
    """Return a Gymnasium environment with a transition table ``P`` as a stationary :class:`TabularMDP`.

    Parameters
    ----------
    env_id : str or gymnasium.Env
        Name such as ``"FrozenLake-v1"``, ``"Taxi-v4"`` or ``"CliffWalking-v1"``, or any environment (wrapped
        or not) with two attributes. The first is ``P[s][a] = [(probability, next state, reward, ended),
        ...]``, where ``P`` and ``P[s]`` are lists or mappings. The second is ``initial_state_distrib`` (S,).
        An action that is missing in ``P[s]`` is not admissible in s. Episodes end in a state without actions.
    horizon : int, optional
        Number of steps H. None: the environment's limit of steps, if it has one.
    is_slippery, map_name : optional
        Arguments for ``gymnasium.make``; None: not passed.

    Returns
    -------
    TabularMDP
        MDP with the map of rewards in its field ``reward_map``. If episodes can end in a state that has
        further transitions in the table, an absorbing last state is added for their end.

    Raises
    ------
    ValueError
        If the environment is unknown, has no transition table or initial distribution, or has an invalid
        table.
    ImportError
        If Gymnasium is not installed.
    """
    env = _made(env_id, {"is_slippery": is_slippery, "map_name": map_name})
    inner: Any = env.unwrapped
    label = env_id if isinstance(env_id, str) else type(inner).__name__
    _check_tabular(inner, label)
    horizon = _limit(env, label) if horizon is None else horizon
    initial = np.asarray(inner.initial_state_distrib, dtype=np.float64)
    table, states, terminal = _read(inner.P, _size(getattr(env, "observation_space", None)))
    actions = max(int(table.action.max()) + 1, _size(getattr(env, "action_space", None)))
    transitions = np.zeros((states, actions, states))
    np.add.at(transitions, (table.state, table.action, table.successor), table.probability)
    mask = np.zeros((states, actions), bool)
    mask[table.state, table.action] = True
    low, high = float(min(table.reward.min(), 0)), float(max(table.reward.max(), 0))
    width = high - low if high > low else 1.0
    if isinstance(env_id, str):
        env.close()
    return TabularMDP(
        transitions,
        initial=np.pad(initial, (0, states - initial.size)),
        horizon=horizon,
        mask=None if mask.all() else mask,
        terminal=terminal,
        name=f"gym:{label}",
        reward_map=RewardMap(scale=1.0 / width, offset=(0.0 - low) / width),
        **_rewards(table._replace(reward=(table.reward - low) / width), transitions),
    )


def _check_tabular(env: Any, label: str) -> None:
    """Raise ``ValueError`` unless the environment has a transition table and an initial distribution."""
    for attribute in ("P", "initial_state_distrib"):
        if not hasattr(env, attribute):
            raise ValueError(
                f"env_id = {label!r}: must be a tabular environment with a transition table; this one has "
                f"no attribute {attribute!r} (P[s][a] = [(probability, next state, reward, ended), ...] and "
                "initial_state_distrib, (S,), are read)"
            )


def _limit(env: Any, label: str) -> Any:
    """Return the environment's largest number of steps per episode. Raises ``ValueError`` if it has none."""
    horizon = None if env.spec is None else env.spec.max_episode_steps
    if horizon is None:
        raise ValueError(f"horizon = None: must be given, since {label} has no limit of steps")
    return horizon


def to_gymnasium(mdp: TabularMDP, seed: int | None = None) -> gymnasium.Env[np.int64, np.int64]:
    """Return ``mdp`` as a ``gymnasium.Env`` with Discrete spaces and rewards in [0, 1].

    Episodes are truncated after H steps. Episodes terminate earlier in a terminal state with reward 0. The
    dict ``info`` has two entries: ``step``, which is h, and ``action_mask`` (A,) int8. An inadmissible action
    raises ``ValueError``. ``seed`` is used if the first call of ``reset`` has no seed.
    """
    _gymnasium()
    from discreet.envs.to_gymnasium import TabularEnv

    return TabularEnv(mdp, seed)


def _gymnasium() -> Any:
    return optional("gymnasium", "gymnasium", "a Gymnasium environment")


def _made(env_id: Any, options: dict[str, Any]) -> Any:
    """Return ``env_id`` if it is an environment. Otherwise create the environment with this name."""
    gymnasium = _gymnasium()
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(env_id, gymnasium.Env):
        if given:
            raise ValueError(f"{', '.join(given)}: must be left out unless env_id is a name")
        return env_id
    if not isinstance(env_id, str):
        raise ValueError(
            f"env_id = {env_id!r}: must be the name of a Gymnasium environment or an environment"
        )
    try:
        return gymnasium.make(env_id, **given)
    except (gymnasium.error.Error, TypeError) as unknown:
        options_ = f" with {', '.join(f'{k} = {v!r}' for k, v in given.items())}" if given else ""
        raise ValueError(
            f"env_id = {env_id!r}{options_}: must be an environment that Gymnasium can make ({unknown})"
        ) from unknown


def _size(space: Any) -> int:
    """Return the number of values of a ``Discrete`` space, and 0 for any other space."""
    return int(getattr(space, "n", 0)) if np.ndim(getattr(space, "n", 0)) == 0 else 0


def _entries(table: Any) -> Iterator[tuple[int, int, float, int, float, bool]]:
    """Yield ``(s, a, p, s', r, ended)`` for every outcome with p > 0 in a transition table.

    The table is ``P[s][a] = [(p, s', r, ended), ...]``. Raises ``ValueError`` if an outcome has another form,
    or if the probabilities of a pair do not sum to 1.
    """
    for s, actions in _items(table):
        for a, outcomes in _items(actions):
            total = 0.0
            for outcome in outcomes:
                try:
                    p, after, r, ended = outcome
                    one = s, a, float(p), int(after), float(r), bool(ended)
                except (TypeError, ValueError):
                    raise ValueError(
                        f"P[{s}][{a}] holds {checks.said(outcome)}: must be (probability, next state, "
                        "reward, ended)"
                    ) from None
                total += one[2]
                if one[2] > 0:
                    yield one
            if not math.isclose(total, 1.0, abs_tol=1e-9):
                raise ValueError(f"P[{s}][{a}]: probabilities sum to {total:g}: must sum to 1")


def _items(table: Any) -> Iterable[tuple[int, Any]]:
    return sorted(table.items()) if isinstance(table, Mapping) else enumerate(table)


def _read(table: Any, declared: int) -> tuple[_Table, int, list[int]]:
    """Return the entries of a Gymnasium table ``P``, the number of states, and the list of terminal states.

    States without actions get absorbing transitions with reward 0.
    """
    rows = [*_entries(table)]
    if not rows:
        raise ValueError("P: must have an action in at least one state")
    s, a, p, after, r, ended = (np.array(column) for column in zip(*rows, strict=True))
    states = max(declared, len(table), int(s.max()) + 1, int(after.max()) + 1)
    goals, actions = np.unique(after[ended]), np.unique(a)
    empty = np.setdiff1d(np.arange(states), s)
    goes_on = np.isin(after, empty) & ~ended
    if goes_on.any():
        raise ValueError(
            f"P[{after[goes_on][0]}]: must have an action, because {s[goes_on][0]} can lead there without "
            "ending the episode"
        )
    moves_on = np.isin(s, goals) & ((after != s) | (r != 0))
    if moves_on.any():
        # Episodes end in a state with transitions in the table, so ended episodes need a new state.
        after = np.where(ended, states, after)
        empty, goals = np.append(empty, states), np.array([states])
        states += 1
    stay, any_action = (x.ravel() for x in np.meshgrid(empty, actions, indexing="ij"))
    entries = _Table(
        np.append(s, stay).astype(np.int64),
        np.append(a, any_action).astype(np.int64),
        np.append(p, np.ones(stay.size)),
        np.append(after, stay).astype(np.int64),
        np.append(r, np.zeros(stay.size)),
    )
    return entries, states, [int(goal) for goal in goals]


def _rewards(table: _Table, transitions: NDArray[np.float64]) -> dict[str, Any]:
    """Return the arguments of :class:`TabularMDP` that define the rewards.

    Rewards are an array if (s, a) or (s, a, s') determines them, and otherwise discrete distributions.
    """
    s, a, p, after, r = table
    support, outcome = np.unique(r, return_inverse=True)
    law = np.zeros((*transitions.shape, support.size))
    np.add.at(law, (s, a, after, outcome), p)
    if ((law > 0).sum(axis=-1) > 1).any():
        possible = np.where(transitions > 0, transitions, 1.0)[..., None]
        return {
            "rewards": None,
            "reward_law": "discrete",
            "reward_support": support,
            "reward_probabilities": (law / possible)[None],
        }
    reached = transitions > 0
    by_successor = support[law.argmax(axis=-1)]
    most, least = (f(np.where(reached, by_successor, b), -1) for f, b in ((np.max, 0.0), (np.min, 1.0)))
    one_each = (most == least)[reached.any(axis=-1)].all()
    return {"rewards": most if one_each else by_successor}
