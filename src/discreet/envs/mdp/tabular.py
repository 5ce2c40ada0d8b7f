"""Tabular finite-horizon MDPs: transition rows, rewards and an initial distribution.

Only the positive transition probabilities of admissible pairs are stored, once if the MDP is stationary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import checks
from discreet.core.layout import Layout
from discreet.core.releases import Floats, Ints
from discreet.envs.mdp import tabular_kernels as world_kernels
from discreet.envs.mdp.tabular_kernels import World
from discreet.mechanisms.features import Features, MixtureFeatures, fitting_features
from discreet.mechanisms.interfaces import Sized

RewardLaw = Literal["deterministic", "bernoulli", "discrete"]

_LAWS = ("deterministic", "bernoulli", "discrete")
_NORMALISED = 1e-12  # a row is normalised only if its sum differs from 1 by more than this


@dataclass(frozen=True)
class RewardMap:
    """Affine map of original rewards into [0, 1]: mapped = offset + scale * original."""

    scale: float = 1.0
    offset: float = 0.0

    def original_return(self, value: float, steps: int) -> float:
        """Convert a mapped return (or value) over ``steps`` steps to original units."""
        return (value - steps * self.offset) / self.scale


@dataclass(frozen=True, eq=False, init=False, repr=False)
class TabularMDP(Sized):
    """A finite-horizon MDP with S states, A actions, H steps and rewards in [0, 1].

    Parameters
    ----------
    transitions : (S, A, S) or (1, S, A, S), stationary; or (H, S, A, S)
        Transition probabilities P_h(s' | s, a). Every row must sum to 1 within 1e-9 and is then normalised.
        Rows of inadmissible pairs are not read.
    rewards : (S, A), (1, S, A) or (H, S, A); or per successor (S, A, S), (1, S, A, S), (H, S, A, S)
        Mean rewards in [0, 1]. Deterministic rewards equal their means. With rewards per successor, the
        distribution of the reward depends on s' too. If H = S = A, an array with three axes is read as (H, S,
        A); to give rewards per successor, add a leading axis of length 1. None if ``reward_law="discrete"``.
    initial : int or (S,)
        The first state, or its distribution.
    horizon : int, optional
        H; required if neither transitions nor rewards have H slots.
    mask : (S, A) bool, optional
        Admissible actions, which are public. None: all actions.
    reward_law : "deterministic", "bernoulli" or "discrete"
        Distribution of a reward with a given mean. Given (s, a), rewards are independent of s' unless they
        are given per successor.
    reward_support, reward_probabilities : (M,) in [0, 1], and (T, S, A, M) or (T, S, A, S, M)
        Possible values of discrete rewards, and their probabilities for each (s, a) or each (s, a, s'), with
        T = 1 or H.
    terminal : states
        Absorbing states in which episodes stay after their end, which are public. Each has one constant
        reward (usually 0).
    name : str
        Name in labels.
    reward_map : RewardMap
        Map that was applied to the original rewards, if they were mapped into [0, 1].
    features : Features or MixtureFeatures, optional
        Public features in which the MDP is linear.
    true_rewards : (S, A), (1, S, A) or (H, S, A), optional
        Means in [0, 1] of the rewards before clipping, for rewards that devices clip. Regret is computed from
        these means. None: devices do not clip rewards.

    Raises
    ------
    ValueError
        If a shape, probability, reward, state or mask is invalid.

    Notes
    -----
    An MDP is stationary if the arrays of transitions and of rewards have one slot. If an array is given as
    (H, ...), the MDP counts as non-stationary even if all slots are equal.

    The fields from ``row_ptr`` to ``entry_rewards`` are the sparse storage. R is the number of admissible
    pairs. Row t R + r contains the successors of pair r at slot t, sorted by decreasing probability. The last
    row is the initial distribution.
    """

    layout: Layout
    name: str
    reward_law: RewardLaw
    reward_map: RewardMap
    terminal: tuple[int, ...]
    initial: Floats
    row_ptr: Ints
    successor: Ints
    probability: Floats
    row_rewards: Floats
    entry_rewards: Floats | None
    reward_support: Floats | None
    outcome_probabilities: Floats | None
    features: Features | MixtureFeatures | None
    true_rewards: Floats | None

    def __init__(
        self,
        transitions: ArrayLike,
        rewards: ArrayLike | None,
        initial: int | ArrayLike = 0,
        *,
        horizon: int | None = None,
        mask: ArrayLike | None = None,
        reward_law: RewardLaw = "deterministic",
        reward_support: ArrayLike | None = None,
        reward_probabilities: ArrayLike | None = None,
        terminal: Iterable[int] = (),
        name: str = "tabular",
        reward_map: RewardMap | None = None,
        features: Features | MixtureFeatures | None = None,
        true_rewards: ArrayLike | None = None,
    ) -> None:
        table = _transition_table(transitions)
        slots, states, actions = table.shape[:3]
        checks.choice("reward_law", reward_law, _LAWS)
        if horizon is not None:
            horizon = checks.integer("horizon", horizon, 1)
        values, by_successor, support = _reward_table(
            rewards, reward_law, reward_support, reward_probabilities, (horizon or slots, states, actions)
        )
        horizon = _horizon(horizon, {"transitions": slots, "rewards": values.shape[0]})
        layout = Layout(states, actions, horizon, _mask(mask, states, actions))
        rows = _checked_rows(layout.to_rows(table).reshape(-1, states), layout)
        values = _checked_rewards(layout.to_rows(values), support, layout)
        start = _initial(initial, states)
        if by_successor and values.shape[0] > slots:
            rows = np.tile(rows, (horizon, 1))
        ptr, successor, probability = _sparse(np.concatenate([rows, start[None]]))
        if by_successor:  # select the rewards of the stored transitions: (entries,) or (entries, M)
            row = _entry_rows(ptr)
            at = row if values.shape[0] * layout.rows == ptr.size - 2 else row % layout.rows
            values = values.reshape(-1, *values.shape[2:])[at, successor[: row.size]]
        if support is not None:
            values = _normalised("reward_probabilities", values.reshape(-1, support.size))
        means = values if support is None else np.minimum(values @ support, 1.0)  # rounding can exceed 1
        entry_means = means if by_successor else None
        if by_successor:
            weights = probability[: row.size] * means
            means = np.minimum(np.bincount(row, weights, minlength=ptr.size - 2), 1.0)
        self.__dict__.update(
            layout=layout,
            name=str(name),
            reward_law=reward_law,
            reward_map=RewardMap() if reward_map is None else reward_map,
            initial=start,
            row_ptr=ptr,
            successor=successor,
            probability=probability,
            row_rewards=np.array(means.reshape(-1, layout.rows)),
            entry_rewards=entry_means,
            reward_support=support,
            outcome_probabilities=None if support is None else np.array(values),
            features=fitting_features(features, layout),
            true_rewards=None if true_rewards is None else _array("true_rewards", true_rewards),
        )
        self.__dict__["terminal"] = self._checked_terminal(terminal)
        self._freeze()
        _ = self.judge  # raises ValueError if true_rewards do not fit

    # ------------------------------------------------------------------ public views

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Return an (S, A) mask that is True for admissible actions."""
        return self.layout.row_index >= 0

    @property
    def transition_slots(self) -> int:
        """Return 1 if the same transition rows are used at every step; otherwise return H."""
        return (self.row_ptr.size - 2) // self.layout.rows

    @property
    def stationary(self) -> bool:
        """Return True if transitions and rewards were given with one slot for all steps."""
        return self.transition_slots == 1 and self.row_rewards.shape[0] == 1

    @cached_property
    def judge(self) -> TabularMDP:
        """Return the MDP whose mean rewards define regret: ``true_rewards`` if they are given."""
        if self.true_rewards is None:
            return self
        table, mask, horizon = self._compact_transitions, self.mask, self.horizon
        return TabularMDP(table, self.true_rewards, self.initial, horizon=horizon, mask=mask, name=self.name)

    @cached_property
    def _compact_transitions(self) -> Floats:
        return self._dense(self.probability[: self._entries])

    @property
    def transitions(self) -> Floats:
        """Return the read-only (H, S, A, S) array of P_h(s' | s, a), which is 0 at inadmissible pairs."""
        return self._broadcast(self._compact_transitions)

    @property
    def rewards(self) -> Floats:
        """Return the read-only (H, S, A) mean rewards, 0 at inadmissible pairs."""
        return self._broadcast(self.layout.from_rows(self.row_rewards))

    @property
    def successor_rewards(self) -> Floats | None:
        """Return the read-only (H, S, A, S) mean rewards per successor.

        Returns None if rewards do not depend on s'.
        """
        return None if self.entry_rewards is None else self._broadcast(self._dense(self.entry_rewards))

    @cached_property
    def world(self) -> World:
        """Return the MDP as the arrays that the compiled kernels read."""
        ratio, threshold, alias = _tables(self.row_ptr, self.probability)
        values = self.row_rewards.ravel() if self.entry_rewards is None else self.entry_rewards
        support, law = np.empty(0), np.empty((0, 1))
        if self.reward_law == "bernoulli":
            support, law = np.array([1.0, 0.0]), np.stack([values, 1.0 - values], axis=-1)
        elif self.reward_support is not None and self.outcome_probabilities is not None:
            support, law = self.reward_support, self.outcome_probabilities
        law_ptr = np.arange(0, law.size + 1, law.shape[1], dtype=np.int64)
        reward_ratio, reward_threshold, reward_alias = _tables(law_ptr, law.ravel())
        rows = self.layout.rows
        return World(
            states=self.states,
            rows=rows,
            horizon=self.horizon,
            transition_stride=rows if self.transition_slots > 1 else 0,
            reward_stride=rows if self.row_rewards.shape[0] > 1 else 0,
            reward_outcomes=support.size,
            reward_by_entry=self.entry_rewards is not None,
            state_ptr=_own(self.layout.state_ptr),
            row_ptr=_own(self.row_ptr),
            successor=_own(self.successor),
            probability=_own(self.probability),
            ratio=ratio,
            threshold=threshold,
            alias=alias,
            mean_reward=_own(self.row_rewards.ravel()),
            reward_value=_own(values),
            reward_support=_own(support),
            reward_ratio=reward_ratio,
            reward_threshold=reward_threshold,
            reward_alias=reward_alias,
        )

    def __repr__(self) -> str:
        kind = "stationary" if self.stationary else "non-stationary"
        return (
            f"TabularMDP({self.name!r}, S={self.states}, A={self.actions}, H={self.horizon}, {kind}, "
            f"{self.reward_law} rewards)"
        )

    # --------------------------------------------------------------------- internals

    @property
    def _entries(self) -> int:
        """Return the number of stored transition probabilities, without the initial distribution."""
        return int(self.row_ptr[-2])

    def _dense(self, entries: Floats) -> Floats:
        """Return a (T, S, A, S) array with ``entries`` at the stored transitions, and 0 elsewhere.

        entries : one number for each stored transition probability, in the order of storage.
        """
        dense = np.zeros((self.row_ptr.size - 2, self.states))
        dense[_entry_rows(self.row_ptr), self.successor[: self._entries]] = entries
        return self.layout.from_rows(dense.reshape(-1, self.layout.rows, self.states))

    def _broadcast(self, table: Floats) -> Floats:
        return np.broadcast_to(table, (self.horizon, *table.shape[1:]))

    def _checked_terminal(self, terminal: Iterable[int]) -> tuple[int, ...]:
        found = sorted({checks.integer("terminal", s, 0, self.states - 1) for s in terminal})
        for s in found:
            rows = np.arange(*self.layout.state_ptr[s : s + 2])
            at = (np.arange(self.transition_slots)[:, None] * self.layout.rows + rows).ravel()
            stays = (np.diff(self.row_ptr)[at] == 1) & (self.successor[self.row_ptr[at]] == s)
            if not stays.all() or np.ptp(self.row_rewards[:, rows]) > 0 or self._random_reward(rows, at):
                raise ValueError(
                    f"terminal state {s}: must be absorbing, with one constant reward under every action"
                )
        return tuple(found)

    def _random_reward(self, rows: Ints, at: Ints) -> bool:
        """Return True if the reward of at least one of the given rows, each with one successor, is random.

        rows : indices of the rows within a slot. at : indices of the same rows in all slots of the transition
        storage.
        """
        if self.reward_law == "bernoulli":
            return not bool(np.isin(self.row_rewards[:, rows], (0, 1)).all())
        if self.outcome_probabilities is None:
            return False
        slots = np.arange(self.row_rewards.shape[0])[:, None]
        cells = (slots * self.layout.rows + rows).ravel() if self.entry_rewards is None else self.row_ptr[at]
        return bool((self.outcome_probabilities[cells].max(axis=1) < 1).any())

    def _freeze(self) -> None:
        for value in self.__dict__.values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    def __getstate__(self) -> dict[str, Any]:
        """Return only the fields of the dataclass, without cached properties."""
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._freeze()


# -------------------------------------------------------------------- checks of arguments


def _array(name: str, value: ArrayLike) -> Floats:
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: must be an array of numbers ({error})") from error


def _slots(name: str, array: Floats, ndim: int) -> Floats:
    """Return the array with ``ndim`` axes. A missing leading slot axis is added with length 1."""
    if array.ndim == ndim - 1:
        array = array[None]
    if array.ndim != ndim or 0 in array.shape:
        raise ValueError(f"{name} has shape {array.shape}: must have {ndim - 1} or {ndim} axes, none empty")
    return array


def _transition_table(transitions: ArrayLike) -> Floats:
    table = _slots("transitions", _array("transitions", transitions), 4)
    if table.shape[3] != table.shape[1]:
        raise ValueError(
            f"transitions has shape {np.shape(transitions)}: must be (S, A, S), (1, S, A, S) or (H, S, A, S)"
        )
    return table


def _horizon(horizon: int | None, slots: dict[str, int]) -> int:
    longest = max(slots.values())
    if horizon is None:
        if longest == 1:
            raise ValueError(
                "horizon = None: must be given, since neither transitions nor rewards have H slots"
            )
        horizon = longest
    for name, count in slots.items():
        if count not in (1, horizon):
            raise ValueError(f"{name} has {count} slots: must be 1 or the horizon, {horizon}")
    return horizon


def _mask(mask: ArrayLike | None, states: int, actions: int) -> NDArray[np.bool_] | None:
    if mask is None:
        return None
    array = np.asarray(mask)
    if array.dtype != np.bool_ and not np.isin(array, (0, 1)).all():
        raise ValueError("mask holds values other than true and false")
    if array.shape != (states, actions):
        raise ValueError(f"mask has shape {array.shape}: must be {(states, actions)}")
    return array.astype(bool)


def _reward_table(
    rewards: ArrayLike | None,
    law: str,
    support: ArrayLike | None,
    probabilities: ArrayLike | None,
    sizes: tuple[int, int, int],
) -> tuple[Floats, bool, Floats | None]:
    """Return the reward table, True if it is per successor, and the reward support (None unless discrete).

    The table is (T, S, A) or (T, S, A, S) mean rewards.

    ``sizes``: the number of steps (1 while it is not known), S and A.
    """
    steps, states, actions = sizes
    if law == "discrete":
        if rewards is not None:
            raise ValueError(f"rewards: must be None with reward_law={law!r} (the means follow from the law)")
        if support is None or probabilities is None:
            raise ValueError(
                f"reward_support and reward_probabilities: both are needed with reward_law={law!r}"
            )
        return _outcome_table(_array("reward_support", support), probabilities, states, actions)
    if support is not None or probabilities is not None:
        raise ValueError(f"reward_support, reward_probabilities: must be None with reward_law={law!r}")
    if rewards is None:
        raise ValueError(f"rewards = None: must be given with reward_law={law!r}")
    array = _array("rewards", rewards)
    by_pair = array.ndim in (2, 3) and array.shape[-2:] == (states, actions)
    by_successor = array.ndim in (3, 4) and array.shape[-3:] == (states, actions, states)
    if by_pair and by_successor and steps > 1:
        by_pair = array.shape[0] == steps
    if by_pair:
        return _slots("rewards", array, 3), False, None
    if by_successor:
        return _slots("rewards", array, 4), True, None
    raise ValueError(
        f"rewards has shape {array.shape}: must be (S, A) or (H, S, A), or per successor (S, A, S) or "
        f"(H, S, A, S), with S = {states}, A = {actions}"
    )


def _outcome_table(
    support: Floats, probabilities: ArrayLike, states: int, actions: int
) -> tuple[Floats, bool, Floats]:
    if support.ndim != 1 or support.size == 0 or not ((support >= 0) & (support <= 1)).all():
        raise ValueError(f"reward_support = {support}: must be a list of rewards in [0, 1]")
    table = _array("reward_probabilities", probabilities)
    per_pair, per_successor = (states, actions, support.size), (states, actions, states, support.size)
    if table.shape[1:] not in (per_pair, per_successor) or table.shape[0] == 0:
        raise ValueError(
            f"reward_probabilities has shape {table.shape}: must be (T, *{per_pair}) or "
            f"(T, *{per_successor}), T = 1 or H"
        )
    return table, table.ndim == 5, np.array(support)


def _where(layout: Layout, row: int) -> str:
    slot, row = divmod(int(row), layout.rows)
    return f"[{slot}, {layout.row_state[row]}, {layout.row_action[row]}]"


def _checked_rows(rows: Floats, layout: Layout) -> Floats:
    """Return transition rows (T R, S) that sum to 1, after a check that all entries are probabilities."""
    for bad, what in ((~np.isfinite(rows), "finite"), (rows < 0, "at least 0")):
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise ValueError(
                f"transitions{_where(layout, row)} holds {rows[row, column]}: probabilities must be {what}"
            )
    return _normalised("transitions", rows, layout)


def _normalised(name: str, rows: Floats, layout: Layout | None = None) -> Floats:
    sums = rows.sum(axis=-1)
    worst = int(np.abs(sums - 1).argmax())
    if abs(sums[worst] - 1) > 1e-9:
        where = "" if layout is None else _where(layout, worst)
        raise ValueError(f"{name}{where} sums to {sums[worst]}: must sum to 1")
    off = np.abs(sums - 1) > _NORMALISED
    if not off.any():
        return rows
    return np.asarray(np.where(off[:, None], rows / sums[:, None], rows))


def _checked_rewards(values: Floats, support: Floats | None, layout: Layout) -> Floats:
    """Return the reward table (T, R, ...). Raises ``ValueError`` unless all of its numbers are in [0, 1]."""
    bad = ~((values >= 0) & (values <= 1))
    name = "rewards" if support is None else "reward_probabilities"
    if bad.any():
        at = np.argwhere(bad)[0]
        where = _where(layout, at[0] * layout.rows + at[1])
        raise ValueError(f"{name}{where} holds {values[tuple(at)]}: must be in [0, 1]")
    return values


def _initial(initial: int | ArrayLike, states: int) -> Floats:
    if np.ndim(initial) == 0:
        start = np.zeros(states)
        start[checks.integer("initial", initial, 0, states - 1)] = 1.0
        return start
    start = checks.floats("initial", _array("initial", initial), (states,))
    if (start < 0).any():
        raise ValueError(f"initial holds {start.min()}: probabilities must be at least 0")
    return _normalised("initial", start[None])[0]


# ------------------------------------------------------------------------------- storage


def _sparse(rows: Floats) -> tuple[Ints, Ints, Floats]:
    """Return the sparse form of ``rows``: row pointers, column indices and values of the positive entries."""
    row, column = np.nonzero(rows)
    values = rows[row, column]
    order = np.lexsort((column, -values, row))
    ptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows.shape[0]))])
    return ptr.astype(np.int64), column[order].astype(np.int64), values[order]


def _entry_rows(ptr: Ints) -> Ints:
    """Return, for each stored transition probability, the index t R + r of its row."""
    return np.repeat(np.arange(ptr.size - 2), np.diff(ptr)[:-1])


def _tables(ptr: Ints, probability: Floats) -> tuple[Floats, NDArray[np.uint64], Ints]:
    ratio = np.empty(probability.size)
    threshold = np.empty(probability.size, np.uint64)
    alias = np.empty(2 * probability.size, np.int64)
    world_kernels.build_tables(_own(ptr), _own(probability), ratio, threshold, alias)
    return ratio, threshold, alias


def _own(array: NDArray[Any]) -> NDArray[Any]:
    """Return a writeable C-contiguous copy."""
    return np.array(array, order="C")
