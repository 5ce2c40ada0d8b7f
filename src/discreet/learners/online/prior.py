"""Public prior model of a learner: transition probabilities and mean rewards known before the first user.

A prior costs no privacy budget and does not change the query or the guarantee of a run. The learner estimates
the error of the prior from its releases (:mod:`discreet.learners.online.prior_kernels`).
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.families import CENTERED_REWARDS, REWARDS, TRANSITIONS
from discreet.core.guarantee import Guarantee
from discreet.core.layout import Layout
from discreet.core.releases import Release
from discreet.utils.pinned_file import pinned

Floats = NDArray[np.float64]

DEFAULT_STRENGTH = 100.0
LEAST_STRENGTH = 2.0  # A pair with a smaller strength has no prior.
_MOST_STATES, _MOST_CELLS = 10**6, 2 * 10**8  # Limits for a table.
_MOST_STRENGTH = 1000.0  # Largest strength of a pair from an earlier release.
_SUM_ERROR = 1e-9


@dataclass(frozen=True, eq=False)
class Prior:
    """Public model with which the default learner starts.

    The guarantee of a run does not cover the people whose data the prior contains.

    Parameters
    ----------
    model : TabularMDP, or a pair of arrays (S, A, S) and (S, A)
        Transition probabilities and mean rewards. If all probabilities of a pair are 0, the pair has no
        prior. If a TabularMDP differs from step to step, its average over steps is used.
    strength : float, or (S, A) array
        Strength of the prior of each pair, as a number of visits, at least 2. In an array, a value below 2
        means that the pair has no prior.
    transitions, rewards : bool
        False: ignore this part of the prior.
    origin : str
        Text that states the source of the prior, for the record of a run.
    guarantee : Guarantee, optional
        Privacy guarantee of the release from which the prior was computed.

    Raises
    ------
    ValueError
        If a shape, a row, a reward or a strength is invalid.
    """

    model: Any
    strength: Any = DEFAULT_STRENGTH
    transitions: bool = True
    rewards: bool = True
    origin: str = "a public model"
    guarantee: Guarantee | None = None
    table: Floats = field(init=False, repr=False)
    means: Floats = field(init=False, repr=False)
    weights: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name in ("transitions", "rewards"):
            put(self, name, checks.flag(name, getattr(self, name)))
        if not isinstance(self.origin, str):
            raise ValueError(f"origin = {checks.said(self.origin)}: must be a text")
        if self.guarantee is not None:
            checks.exactly("guarantee", self.guarantee, Guarantee)
        if not self.transitions and not self.rewards:
            raise ValueError("rewards = False: must be true when transitions is false")
        table, means = _arrays(self.model)
        weights = _strengths(self.strength, means.shape)
        known = np.asarray(table.any(axis=2))
        _check_rows(table, known)
        _check_rewards(means, known)
        if np.ndim(self.strength) == 2:
            lost = np.argwhere((weights >= LEAST_STRENGTH) & ~known)
            if lost.size:
                raise ValueError(f"strength{lost[0].tolist()}: must be below 2, the model has no row for it")
        weights = np.where(known & (weights >= LEAST_STRENGTH), weights, 0.0)
        for name, value in (("table", table), ("means", means), ("weights", weights)):
            value.flags.writeable = False
            put(self, name, value)
        put(self, "model", (self.table, self.means))
        put(self, "strength", self.strength if np.ndim(self.strength) == 0 else self.weights)

    @cached_property
    def digest(self) -> str:
        """Hash of all numbers of the prior, as sixteen hexadecimal digits."""
        found = hashlib.sha256(f"{self.table.shape} {self.transitions} {self.rewards}".encode())
        for value in (self.table, self.means, self.weights):
            found.update(np.ascontiguousarray(value).tobytes())
        return found.hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Prior):
            return NotImplemented
        return (self.digest, self.origin) == (other.digest, other.origin)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        pairs = int((self.weights > 0.0).sum())
        return f"Prior({self.origin}: {pairs} pairs, {self.digest})"

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self.transitions, self.rewards, self.origin, self.guarantee)
        return Prior, ((self.table, self.means), self.weights, *parts)

    @property
    def statement(self) -> str:
        """Sentences for the privacy statement of a run that uses the prior."""
        if self.guarantee is None:
            return (
                f"The learner starts from a prior ({self.origin}), which is taken as public. The guarantee "
                "does not cover the people that the prior was made from. For a person who is in both data "
                "sets, privacy losses add up."
            )
        if self.guarantee.epsilon is None:
            return (
                f"The learner starts from a prior ({self.origin}) that was made from exact sums. No "
                "guarantee covers the people that the prior was made from."
            )
        return (
            f"The learner starts from a prior ({self.origin}). The guarantee of that release still covers "
            "its users; this guarantee does not. For a person who is in both data sets, the two guarantees "
            "compose, and the ledger must add them. The guarantee of that release: "
            f"{self.guarantee.statement}"
        )

    def packed(self, layout: Layout) -> Floats:
        """Return the prior as an array for compiled code, for the pairs of a layout.

        The order of the floats is that of :class:`~discreet.learners.online.prior_kernels.Given`. Raises
        ``ValueError`` if the numbers of states or actions differ, or if the layout lacks a pair of the prior.
        """
        if self.means.shape != (layout.states, layout.actions):
            sizes = (layout.states, layout.actions)
            raise ValueError(f"prior has {self.means.shape} states and actions: must have {sizes}")
        lost = np.argwhere((self.weights > 0.0) & (layout.row_index < 0))
        if lost.size:
            s, a = lost[0].tolist()
            raise ValueError(f"prior has a row for state {s}, action {a}: the action must be admissible")
        strength = layout.to_rows(self.weights[None])[0]
        none = np.zeros(layout.rows)
        return np.concatenate([
            strength if self.transitions else none,
            strength if self.rewards else none,
            layout.to_rows(self.means[None])[0],
            layout.to_rows(self.table[None])[0].ravel(),
        ])  # fmt: skip

    # ------------------------------------------------------------------------------------ makers
    @classmethod
    def from_table(
        cls,
        frame: Mapping[str, Any],
        strength: float = DEFAULT_STRENGTH,
        *,
        states: int | None = None,
        actions: int | None = None,
        transitions: bool = True,
        rewards: bool = True,
        origin: str = "a table",
    ) -> Prior:
        """Return the prior defined by a table with one line for each state, action and next state.

        Parameters
        ----------
        frame : DataFrame, or mapping from column names to sequences
            The columns are ``state``, ``action`` and ``next`` (integers), ``probability`` and ``reward``. The
            reward must be equal in all lines of a pair. An optional column ``visits`` is the strength of the
            pair. A pair without lines has no prior.
        strength : float
            Strength of all pairs if there is no column ``visits``.
        states, actions : int
            Numbers of states and actions. By default, they are the smallest numbers that contain all lines.
        transitions, rewards, origin
            See :class:`Prior`.

        Raises
        ------
        ValueError
            If a column is missing or unknown, a number is invalid, a line is repeated, or ``reward`` or
            ``visits`` differs between lines of a pair.
        """
        return cls(
            *_read_columns(frame, strength, states, actions), transitions=transitions, rewards=rewards,
            origin=origin,
        )  # fmt: skip

    @classmethod
    def from_simulator(
        cls,
        env: Any,
        users: int = 10_000,
        seed: int = 0,
        *,
        transitions: bool = True,
        rewards: bool = True,
    ) -> Prior:
        """Return the prior estimated from simulated users who take uniformly random actions.

        Parameters
        ----------
        env : TabularMDP, or Gymnasium environment with discrete spaces
            The simulator. Rewards of a Gymnasium environment must be in [0, 1].
        users : int
            Number of simulated users.
        seed : int
            Seed of the simulation.
        transitions, rewards : bool
            See :class:`Prior`.

        Raises
        ------
        ValueError
            If ``env`` has another type, a reward is outside [0, 1], or ``users`` or ``seed`` is invalid.
        """
        users, seed = checks.integer("users", users, 1), checks.integer("seed", seed, 0)
        draws = np.random.default_rng(seed)
        play = _play_model if hasattr(env, "layout") else _play_environment
        counts, sums = play(env, users, draws)
        visits = counts.sum(axis=2)
        table = counts / np.maximum(visits, 1.0)[:, :, None]
        means = np.clip(sums / np.maximum(visits, 1.0), 0.0, 1.0)
        return cls(
            (table, means), visits, transitions=transitions, rewards=rewards,
            origin=f"a simulator, {users} users",
        )  # fmt: skip

    @classmethod
    def from_release(
        cls, source: str | Path | Release, *, transitions: bool = True, rewards: bool = True
    ) -> Prior:
        """Return the prior estimated from an earlier release of counts.

        The strength of a pair is n^2 / (S s^2 + n), at most 1000. Here n is the estimated number of visits,
        and s is the standard deviation of the noise in one of the S transition counts.

        Parameters
        ----------
        source : str, Path or Release
            A release of a session, or the path of a file. The file is ``release.parquet`` from ``discreet
            learn``, or ``.json`` with the response of an online service to ``GET /releases/N``.
        transitions, rewards : bool
            See :class:`Prior`.

        Raises
        ------
        ValueError
            If the file cannot be read, is not a release of counts, or has no rewards although ``rewards`` is
            True.
        """
        if isinstance(source, Release):
            found = _sums_of_online(_tables_of(source), source.users, "the release")
            guarantee: Guarantee | None = source.guarantee
        elif Path(source).suffix == ".json":
            found, guarantee = _sums_of_online(*_read_answer(Path(source))), None
        else:
            found, guarantee = _sums_of_stored(source)
        layout, counts, sums, std, users = found
        if rewards and sums is None:
            raise ValueError(f"{source}: the release has no rewards: give rewards = False")
        visits = np.maximum(counts.sum(axis=1), 0.0)
        strength = np.minimum(_MOST_STRENGTH, visits**2 / np.maximum(layout.states * std**2 + visits, 1e-9))
        base = np.maximum(visits, 1.0)
        means = np.zeros(layout.rows)
        if rewards and sums is not None:
            means = np.clip(sums / base + 0.5, 0.0, 1.0)
        rows = _on_simplex(counts / base[:, None])
        table, means, strength = (layout.from_rows(one[None])[0] for one in (rows, means, strength))
        return cls(
            (table, means), strength, transitions=transitions, rewards=rewards,
            origin=f"a release of {users} users", guarantee=guarantee,
        )  # fmt: skip

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        strength: float = DEFAULT_STRENGTH,
        *,
        states: int | None = None,
        actions: int | None = None,
    ) -> Prior:
        """Return the prior stored in a file: a release, or a table (``.csv``).

        Parameters
        ----------
        path : str or Path
            Path of the file. A table has the columns of :meth:`from_table`. A release is ``.parquet`` or
            ``.json`` (:meth:`from_release`).
        strength, states, actions
            See :meth:`from_table`. A release defines its own strengths, so ``strength`` must be the default.

        Raises
        ------
        ValueError
            If the file cannot be read, or its content is not valid.
        """
        path = Path(path)
        if path.suffix in (".parquet", ".json"):
            if strength != DEFAULT_STRENGTH:
                raise ValueError(
                    f"strength = {checks.said(strength)}: must be {DEFAULT_STRENGTH:g}, the default, for a "
                    "release, which has strengths of its own"
                )
            return cls.from_release(path)
        if path.suffix != ".csv":
            raise ValueError(
                f"prior = {str(path)!r}: must be a .csv table, or the .parquet or .json file of a release"
            )
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                names, *lines = list(csv.reader(file)) or [[]]
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise ValueError(f"prior = {str(path)!r}: must be a readable table ({error})") from None
        names = [name.strip() for name in names]
        if len(set(names)) < len(names):
            raise ValueError(f"{path}, line 1: has columns {names}: must name each column once")
        wrong = [i for i, line in enumerate(lines, 2) if len(line) != len(names)]
        if wrong:
            raise ValueError(f"{path}, line {wrong[0]}: must have {len(names)} values")
        columns = {name: _numbers(path, name, [line[i] for line in lines]) for i, name in enumerate(names)}
        return cls.from_table(
            columns, strength, states=states, actions=actions, origin=f"the table {path.name}"
        )


# ------------------------------------------------------------------------------ files in options
@lru_cache(maxsize=8)
def read_pinned(text: str, strength: float, layout: Layout) -> Prior:
    """Load the prior from the file that an option names, for the sizes of ``layout``.

    text : file name and hash (:func:`~discreet.utils.pinned_file.pinned`). Raises ``ValueError`` as
    :meth:`Prior.from_file` does, or if the file has changed.
    """
    prior = Prior.from_file(
        pinned("prior", text).partition("#")[0], strength, states=layout.states, actions=layout.actions
    )
    return replace(prior, origin=f"{prior.origin}, {text.partition('#')[2]}")


_Sums: TypeAlias = tuple[Layout, Floats, Floats | None, float, int]
"""Sums over steps: layout, transitions (R, S), centred rewards (R,) or None, noise, number of users."""


def _sums_of_stored(path: str | Path) -> tuple[_Sums, Guarantee]:
    """Return the sums stored in a file of ``discreet learn``, and the guarantee of the release."""
    from discreet.learners.offline.release_files import read_release

    release = read_release(path)
    layout, std = release.layout, 0.0
    counts, sums, paid = np.zeros((layout.rows, layout.states)), np.zeros(layout.rows), True
    for h in range(release.facts.slots):
        step = release.step(h)
        counts += step.transitions
        std = float(np.hypot(std, release.laws[TRANSITIONS].std()))
        paid = paid and step.rewards is not None
        if step.rewards is not None:
            sums += step.rewards
    return (layout, counts, sums if paid else None, std, release.users), release.guarantee


def _sums_of_online(tables: Mapping[str, tuple[Floats, float]], users: int, name: str) -> _Sums:
    """Return the sums of an online release.

    tables : value and standard deviation of the noise of each family. users : number of users. name : text
        for messages.
    """
    if TRANSITIONS not in tables:
        raise ValueError(f"{name} holds {', '.join(tables) or 'nothing'}: must hold {TRANSITIONS}")
    moves, std = tables[TRANSITIONS]
    if moves.ndim != 4 or moves.shape[1] != moves.shape[3] or 0 in moves.shape:
        raise ValueError(f"{name}: {TRANSITIONS} has shape {moves.shape}: must be (T, S, A, S)")
    layout, sums = Layout(moves.shape[1], moves.shape[2], 1), None
    for family, shift in ((CENTERED_REWARDS, 0.0), (REWARDS, 0.5)):
        if family in tables:
            if tables[family][0].shape != moves.shape[:3]:
                raise ValueError(f"{name}: {family} has shape {tables[family][0].shape}: must be (T, S, A)")
            centred = tables[family][0] - shift * moves.sum(axis=3)
            sums = layout.to_rows(centred.sum(axis=0)[None])[0]
    counts = layout.to_rows(moves.sum(axis=0)[None])[0]
    return layout, counts, sums, std * float(np.sqrt(moves.shape[0])), users


def _tables_of(release: Release) -> dict[str, tuple[Floats, float]]:
    return {name: (np.asarray(e.value), float(e.law.std())) for name, e in release.estimates.items()}


def _read_answer(path: Path) -> tuple[dict[str, tuple[Floats, float]], int, str]:
    """Return the tables, the number of users and the name in a service's response to ``GET /releases/N``."""
    try:
        answer = json.loads(path.read_text(encoding="utf-8"))
        tables = {
            name: (
                checks.floats(f"{path}: {name}", one["value"], tuple(one["shape"])),
                checks.real(f"{path}: {name}: noise_std", one["noise_std"], 0.0),
            )
            for name, one in answer["sums"].items()
        }
        return tables, checks.integer(f"{path}: users", answer["users"], 0), str(path)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: must be an answer to GET /releases/N ({error!r})") from None


def _numbers(path: Path, name: str, values: list[str]) -> Floats:
    try:
        return np.array(values, dtype=np.float64)
    except ValueError as error:
        raise ValueError(f"{path}, column {name!r}: must hold numbers ({error})") from None


def _on_simplex(rows: Floats) -> Floats:
    """Return the Euclidean projection of each row of an (R, S) array onto the probability simplex."""
    states = rows.shape[1]
    ordered = -np.sort(-rows, axis=1)
    excess = (np.cumsum(ordered, axis=1) - 1.0) / np.arange(1, states + 1)
    last = (ordered > excess).sum(axis=1) - 1
    kept = np.maximum(rows - excess[np.arange(rows.shape[0]), last][:, None], 0.0)
    projected: Floats = kept / kept.sum(axis=1, keepdims=True)
    return projected


# --------------------------------------------------------------------------------------- checks
def _arrays(model: Any) -> tuple[Floats, Floats]:
    """Return copies of the rows (S, A, S) and mean rewards (S, A) of a model."""
    if hasattr(model, "layout"):
        table, means = model.transitions.mean(axis=0), model.rewards.mean(axis=0)
        return (
            checks.floats("model.transitions", table, np.shape(table)),
            checks.floats("model.rewards", means, np.shape(means)),
        )
    if not isinstance(model, tuple | list) or len(model) != 2:
        raise ValueError(f"model = {checks.said(model)}: must be a TabularMDP, or two arrays")
    shape = np.shape(model[0])
    if len(shape) != 3 or shape[0] != shape[2] or min(shape) < 1:
        raise ValueError(f"model: the first array has shape {shape}: must be (S, A, S)")
    return checks.floats("model: the first array", model[0], shape), checks.floats(
        "model: the second array", model[1], shape[:2]
    )


def _strengths(strength: Any, shape: tuple[int, ...]) -> Floats:
    if np.ndim(strength) == 0:
        return np.full(shape, checks.real("strength", strength, LEAST_STRENGTH))
    weights = checks.floats("strength", strength, shape)
    if weights.min() < 0.0:
        raise ValueError(f"strength holds {weights.min():g}: must be at least 0")
    return weights


def _check_rows(table: Floats, known: NDArray[np.bool_]) -> None:
    """Raise ``ValueError`` if a row is not a probability distribution."""
    wrong = (table < 0.0).any(axis=2) | (known & (np.abs(table.sum(axis=2) - 1.0) > _SUM_ERROR))
    if wrong.any():
        s, a = np.argwhere(wrong)[0].tolist()
        row = table[s, a]
        raise ValueError(
            f"model: the probabilities of state {s}, action {a} have the sum {row.sum():.12g} and the "
            f"minimum {row.min():.12g}: must have the sum 1 and be at least 0"
        )


def _check_rewards(means: Floats, known: NDArray[np.bool_]) -> None:
    wrong = known & ((means < 0.0) | (means > 1.0))
    if wrong.any():
        s, a = np.argwhere(wrong)[0].tolist()
        raise ValueError(
            f"model: the mean reward of state {s}, action {a} is {means[s, a]:g}: must be in [0, 1]"
        )


# --------------------------------------------------------------------------------------- tables
_COLUMNS = ("state", "action", "next", "probability", "reward")


def _read_columns(
    frame: Mapping[str, Any], strength: float, states: int | None, actions: int | None
) -> tuple[tuple[Floats, Floats], Any]:
    """Return the arrays that a table defines, and the strengths of its pairs."""
    if not hasattr(frame, "keys"):
        raise ValueError(f"frame = {checks.said(frame)}: must be a data frame, or a mapping of columns")
    names = list(frame)
    for name in names:
        if name not in (*_COLUMNS, "visits"):
            raise ValueError(f"column {name!r}: must be one of {', '.join((*_COLUMNS, 'visits'))}")
    lost = [name for name in _COLUMNS if name not in names]
    if lost:
        raise ValueError(f"column {lost[0]!r}: is missing")
    lines = len(frame["state"])
    values = {name: checks.floats(f"column {name!r}", np.asarray(frame[name]), (lines,)) for name in names}
    if not lines:
        raise ValueError("frame: must have at least one line")
    whole = {name: _whole(name, values[name]) for name in ("state", "action", "next")}
    states = _size("states", states, 1 + int(max(whole["state"].max(), whole["next"].max())))
    actions = _size("actions", actions, 1 + int(whole["action"].max()))
    if states * actions * states > _MOST_CELLS:
        raise ValueError(f"states = {states}, actions = {actions}: a table has at most {_MOST_CELLS} cells")
    place = (whole["state"], whole["action"], whole["next"])
    table, means, visits = np.zeros((states, actions, states)), np.zeros((states, actions)), None
    again = np.zeros(table.shape, np.int64)
    np.add.at(again, place, 1)
    if again.max() > 1:
        s, a, k = np.argwhere(again > 1)[0].tolist()
        raise ValueError(f"frame: state {s}, action {a}, next {k} has {again[s, a, k]} lines: must have one")
    table[place] = values["probability"]
    _spread("reward", place, values["reward"], means)
    if "visits" not in names:
        return (table, means), strength
    visits = np.zeros(means.shape)
    _spread("visits", place, values["visits"], visits)
    return (table, means), visits


def _whole(name: str, values: Floats) -> NDArray[np.int64]:
    wrong = values[(values < 0.0) | (values != np.floor(values)) | (values >= _MOST_STATES)]
    if wrong.size:
        raise ValueError(f"column {name!r} holds {wrong[0]:g}: must be an integer in [0, {_MOST_STATES})")
    return values.astype(np.int64)


def _size(name: str, given: int | None, least: int) -> int:
    return least if given is None else checks.integer(name, given, least)


def _spread(name: str, place: tuple[NDArray[np.int64], ...], values: Floats, table: Floats) -> None:
    """Write one value for each pair into ``table``. Raises ``ValueError`` if lines of a pair differ."""
    table[place[:2]] = values
    wrong = np.flatnonzero(table[place[:2]] != values)
    if wrong.size:
        s, a = place[0][wrong[0]], place[1][wrong[0]]
        raise ValueError(f"column {name!r}: the lines of state {s}, action {a} differ: must be equal")


# ------------------------------------------------------------------------------------ simulators
def _play_model(model: Any, users: int, draws: np.random.Generator) -> tuple[Floats, Floats]:
    """Return transition counts (S, A, S) and reward sums (S, A) of uniform actions in a known model."""
    layout = model.layout
    admissible = (layout.row_index >= 0).astype(np.float64)
    shares = admissible / admissible.sum(axis=1, keepdims=True)
    counts = np.zeros((layout.states, layout.actions, layout.states))
    sums = np.zeros((layout.states, layout.actions))
    here = draws.multinomial(users, model.initial)
    for h in range(layout.horizon):
        pairs = draws.multinomial(here, shares)
        rows = model.transitions[h]
        moved = draws.multinomial(pairs, np.where(admissible[:, :, None] > 0.0, rows, 1.0 / layout.states))
        counts += moved
        sums += pairs * model.rewards[h]
        here = moved.sum(axis=(0, 1))
    return counts, sums


def _play_environment(env: Any, users: int, draws: np.random.Generator) -> tuple[Floats, Floats]:
    """Return transition counts and reward sums of uniformly random actions in a Gymnasium environment."""
    spaces = [getattr(env, f"{name}_space", None) for name in ("observation", "action")]
    if any(getattr(space, "n", None) is None for space in spaces) or not hasattr(env, "step"):
        raise ValueError(
            f"env = {checks.said(env)}: must be a TabularMDP or a Gymnasium environment with discrete spaces"
        )
    states, actions = (int(space.n) for space in spaces)  # type: ignore[union-attr]
    counts, sums = np.zeros((states, actions, states)), np.zeros((states, actions))
    for user in range(users):
        state, _ = env.reset(seed=int(draws.integers(2**31))) if user == 0 else env.reset()
        ended = False
        while not ended:
            action = int(draws.integers(actions))
            after, reward, terminated, truncated, _ = env.step(action)
            sums[state, action] += checks.real("env: a reward", float(reward), 0.0, 1.0)
            counts[state, action, after] += 1.0
            state, ended = after, terminated or truncated
    return counts, sums
