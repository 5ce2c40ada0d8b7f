"""The exact sums of disjoint people for one count query: raw data, which protects nobody.

A :class:`PartialAggregate` is what lies between people and a release. Many machines can each count the people whom they
hold, and send their tallies to the one that draws the noise; a data set can be counted once, and released
later. It states no guarantee, since it has none: whoever reads one reads exact counts. It is to be kept, sent
and deleted as the trajectories themselves are.

What it holds. Of every step that is counted (of all together, where steps are pooled), how often each pair
was followed by each state, and the sum of its rewards, in units of 1 / ``grid``. All of that is integer, so
that sums depend neither on the order of people nor on which of them were counted where: two tallies of the
same people are equal bit for bit, and so are two releases of them with the same noise
(:meth:`OneShotSession.submit_tally
<discreet.mechanisms.dataset.dataset_release.OneShotSession.submit_tally>`). Visits, and counts pooled over
steps, are sums of these. Returns of groups, cut rewards and counts of first visits are not, but for first
visits alone (``query.first``), of which whole trajectories are counted here.

Rewards. On a ``grid``, a power of two, a reward that is no multiple of 1 / grid is rounded at random to one,
without bias, by the operating system's source; with ``grid = None`` it is rounded to the nearest multiple of
2^-20. Both keep rewards in [0, 1], so that no sensitivity grows.

Disjoint people. Nobody may be in two tallies that are merged: her part of the sums would be twice what the
noise is calibrated to. A tally is born with a random mark, takes over the marks of those that it merges, and
keeps them in its file: two that share a mark hold people in common, and are refused, be it a tally and
itself, a file read twice, or two continuations of one file. Whether two machines counted the same person
apart from each other is known to their keepers alone. In whatever order tallies are merged, who comes after
that has a number above all that any of them has seen, or is the last of these and has what is left of her
episodes (where two end with one number: what is left if both are hers).

Limits. Counts are 32-bit and rewards are summed exactly in float64: what could exceed either is refused
before anything is added. People are counted before their records are added, so that an interrupt loses
records, and never adds uncounted ones.

A file (the layout of :mod:`discreet.mechanisms.saved_state.state_file`, under another name) is written beside
its target and renamed, with mode 0600, and overwrites nothing. What is read from bytes is checked: sizes and
kinds of all tables, as many records at each step as there are episodes, as many people leaving a state as
came into it, rewards inside what so many visits can bring, no more episodes than the people may have.
"""

from __future__ import annotations

import io
import os
import re
import secrets
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import checks
from discreet.core.count_query import POOLED_TRANSITIONS, TRANSITIONS, VISITS, CountQuery
from discreet.core.releases import Floats, Ints
from discreet.core.rng import SecureRng, checked_on_grid
from discreet.core.trajectories import Trajectories, checked
from discreet.mechanisms.saved_state import state_file as saved_state
from discreet.mechanisms.saved_state.save import CLASSES

__all__ = ["PartialAggregate", "same_sums"]

NEAREST = 2**20  # grid of rewards that are rounded to the nearest multiple
_LAYOUT = saved_state.FileLayout(b"\x89discreet-tally\n", 2, "a tally")  # 1: tables whole, also empty ones
_RAW = "exact sums of people's data: raw, private to them, and protected by nothing"
_MOST_COUNT = 2**32 - 1  # of a cell
_MOST_UNITS = 2**51  # of all rewards in a cell: beside noise they must add up exactly
_BLOCK = 2**12  # episodes added at once: they stay in the cache from step to step
_MANY = 2**12  # episodes that are worth threads
_SHARES = ("reward_share", "pooled_share", "return_share")  # of the budget: they say nothing about sums
_MARK = re.compile("[0-9a-f]{32}")


def same_sums(one: CountQuery, other: CountQuery) -> bool:
    """Do two queries sum the same of the same people? (Their shares of a budget are no part of that.)"""
    return all(
        getattr(one, field.name) == getattr(other, field.name)
        for field in fields(CountQuery)
        if field.name not in _SHARES
    )


class PartialAggregate:
    """The exact sums of disjoint people for one count query. **Raw data: it protects nobody.**

    Parameters
    ----------
    query : CountQuery
        What is summed; without groups, cut rewards and pooled first visits. At most ``query.episodes``
        episodes of each person are taken.
    grid : int, optional
        Rewards are rounded at random, without bias, to multiples of 1 / grid, a power of two up to 2^20, as
        under :class:`~discreet.core.rng.Secure`; None: to the nearest multiple of 2^-20, for
        simulations. A release takes tallies of its own grid or a coarser one.

    Raises
    ------
    ValueError
        On a query that a tally cannot hold, and from all that adds: on broken records, unequal queries,
        people counted twice, and more than fits. Then nothing is added.

    Examples
    --------
    >>> import numpy as np, discreet as dr
    >>> query = dr.mechanisms.CountQuery(dr.Layout(2, 1, 1), center_rewards=True)
    >>> here, there = dr.mechanisms.PartialAggregate(query), dr.mechanisms.PartialAggregate(query)
    >>> here.add(dr.Trajectories(np.array([[0, 1]]), np.array([[0]]), np.array([[1.0]])))
    >>> there.absent(2)
    >>> here + there
    <Tally of 3 people: raw data, not private>
    """

    _BOUND, _STATE = ("_query", "_grid"), ("_people", "_episodes", "_last", "_marks", "_counts", "_sums")

    def __init__(self, query: CountQuery, grid: int | None = 1024) -> None:
        if type(query) is not CountQuery:  # a subclass could sum anything
            raise ValueError(f"query = {checks.said(query)}: must be a CountQuery, and no subclass of it")
        if query.groups or query.cut or query.pooled == "first":
            raise ValueError(
                "query: must have groups = 0, cut = 0 and pooled 'none' or 'all': a tally knows no plan, and "
                "no trajectory as a whole"
            )
        if grid is not None:
            grid = checks.integer("grid", grid, 2, NEAREST)
            if grid & (grid - 1):
                raise ValueError(f"grid = {grid}: must be a power of two")
        self._query, self._grid = query.copy(), grid
        layout, steps = query.layout, query.counted
        pooled = (query.stationary and not query.first) or query.pooled == "all"
        in_a_cell = query.counted_steps if pooled else 1  # records of an episode, at most
        self._most = min(_MOST_COUNT, _MOST_UNITS // self.grid) // in_a_cell
        # of each slot: the first of its steps, and how many they are
        self._steps = (
            [(steps.start, query.counted_steps)] if query.slots == 1 else [(h, 1) for h in range(query.slots)]
        )
        self._people = 0
        self._episodes = 0  # private: how many the people have
        self._last: tuple[int, int] | None = None  # the last person and how many of the episodes are hers
        self._marks = [secrets.token_hex(16)]
        self._counts = [np.zeros(layout.rows * layout.states, np.uint32) for _ in self._steps]
        self._sums = np.zeros((query.slots, 0 if query.known_rewards else layout.rows))

    # -------------------------------------------------------------------------------- what it is
    @property
    def query(self) -> CountQuery:
        """What is summed (a copy)."""
        return self._query.copy()

    @property
    def grid(self) -> int:
        """Rewards are summed in units of 1 / grid."""
        return NEAREST if self._grid is None else self._grid

    @property
    def people(self) -> int:
        """How many people it holds, those without an episode among them."""
        return self._people

    def __repr__(self) -> str:
        return f"<Tally of {self._people} people: raw data, not private>"

    def __eq__(self, other: object) -> bool:
        """The same sums of as many people? (Marks and people's numbers are no part of that.)"""
        if not isinstance(other, PartialAggregate):
            return NotImplemented
        return (
            same_sums(self._query, other._query)
            and (self.grid, self._people, self._episodes) == (other.grid, other._people, other._episodes)
            and all(np.array_equal(a, b) for a, b in zip(self._counts, other._counts, strict=True))
            and np.array_equal(self._sums, other._sums)
        )

    __hash__ = None  # type: ignore[assignment]  # it changes

    # -------------------------------------------------------------------------------- people
    def add(self, trajectories: Trajectories, user: ArrayLike | None = None) -> None:
        """Add many episodes: every record is checked before any is added.

        Parameters
        ----------
        trajectories : Trajectories
            n episodes: ``states (n, H + 1)``, ``actions (n, H)``, ``rewards (n, H)`` in [0, 1].
        user : (n,) int, optional
            Whose episode it is; never falls, also from call to call: a person's episodes lie together. None,
            where ``query.episodes`` is 1: each is of somebody new.

        Raises
        ------
        ValueError
            And adds nothing: on a broken record, a user below the one before, more than ``query.episodes``
            episodes of a user, or more episodes than can be summed exactly. The message is private.
        """
        from discreet.mechanisms.dataset import partial_aggregate_kernels as tally_kernels
        from discreet.utils.system import processors

        if not isinstance(trajectories, Trajectories):
            raise ValueError(f"trajectories is a {type(trajectories).__name__}: must be Trajectories")
        n = checks.integer("len(trajectories)", len(trajectories), 1)
        self._check_room(f"len(trajectories) = {n}", n)
        own = None if user is None else _copied_users(user, n)
        query, layout = self._query, self._query.layout
        records = checked(trajectories, layout, n)
        new, last = self._followed(own, n)
        rewards = self._on_grid(records.rewards)
        self._people, self._episodes, self._last = self._people + new, self._episodes + n, last

        def count(slots: range) -> None:
            for begin in range(0, n, _BLOCK):
                part = slice(begin, begin + _BLOCK)
                for slot in slots:
                    first, steps = self._steps[slot]
                    tally_kernels.add_stored(
                        records.states[part], records.actions[part], rewards[part], layout.row_index, first,
                        steps, query.first, query.reward_shift, self._counts[slot], self._sums[slot],
                    )  # fmt: skip

        # a slot's sums are one thread's alone: they do not depend on how many there are
        threads = min(processors(), len(self._steps)) if n >= _MANY else 1
        shares = [range(first, len(self._steps), threads) for first in range(threads)]
        if threads == 1:
            count(shares[0])
            return
        with ThreadPoolExecutor(threads - 1) as pool:
            others = pool.map(count, shares[1:])  # which begins
            count(shares[0])
            for _ in others:
                pass

    def absent(self, people: int = 1) -> None:
        """Count ``people`` who are in the data set without an episode: the null contribution.

        Raises ``ValueError`` unless ``people`` is an integer from 1 on.
        """
        self._people += checks.integer("people", people, 1, 2**62 - self._people)

    def _check_room(self, said: str, episodes: int) -> None:
        if self._episodes + episodes > self._most:
            raise ValueError(f"{said}: sums of more than {self._most} episodes are not exact")

    def _followed(self, user: Ints | None, n: int) -> tuple[int, tuple[int, int] | None]:
        """(how many new people, the last one and how many episodes are hers)."""
        from discreet.mechanisms.dataset import dataset_release_kernels as one_shot_kernels

        most = self._query.episodes
        if user is None:
            if most > 1:
                raise ValueError(f"user = None: must be given where a person may have {most} episodes")
            return n, self._last
        before, held = self._last or (0, 0)
        kind, at, new, episodes = one_shot_kernels.check_users(
            user, self._last is not None, before, held, most
        )
        if kind == one_shot_kernels.FALLS:
            one = int(user[at - 1]) if at else before
            raise ValueError(f"user[{at}] = {user[at]}: must not be below the user before it, {one}")
        if kind:
            said = f"{most} episode{'s' if most > 1 else ''}"
            raise ValueError(f"user[{at}] = {user[at]}: must have at most {said} (query.episodes)")
        return new, (int(user[-1]), episodes)

    def _on_grid(self, rewards: Floats) -> Floats:
        if self._query.known_rewards:
            return rewards
        units = np.rint(rewards * self.grid)
        if self._grid is None:
            return units / self.grid
        if (units == rewards * self.grid).all():
            return rewards
        return SecureRng().rounded(rewards, self._grid)

    # -------------------------------------------------------------------------------- merging
    def merge(self, other: PartialAggregate) -> None:
        """Take in everybody of ``other``, which stays as it is.

        Numbers of users that come later are above those of both. Raises ``ValueError``, and takes in nobody,
        unless it is of an equal query and of the same grid or a coarser one, holds nobody who is here
        already, and fits.
        """
        if type(other) is not PartialAggregate:
            raise ValueError(f"other = {checks.said(other)}: must be a Tally")
        if not same_sums(self._query, other._query):
            raise ValueError("other.query: must sum the same as query, of the same layout")
        if self.grid % other.grid:
            raise ValueError(f"other.grid = {other.grid}: must be {self.grid} or a coarser one")
        if common := set(self._marks) & set(other._marks):
            raise ValueError(
                f"other: holds people who are in this tally already, counted together as {min(common)}; "
                "nobody may be counted twice"
            )
        self._check_room(f"other: has {other._people} people", other._episodes)
        checks.integer("other.people", other._people, 0, 2**62 - self._people)
        marks, last = sorted((*self._marks, *other._marks)), self._later(other)
        # one statement, no call, and before the sums
        self._marks, self._last, self._people, self._episodes = (
            marks, last, self._people + other._people, self._episodes + other._episodes,
        )  # fmt: skip
        for mine, theirs in zip(self._counts, other._counts, strict=True):
            mine += theirs
        self._sums += other._sums

    def _later(self, other: PartialAggregate) -> tuple[int, int] | None:
        """The last person of both, by her number, and the most episodes that may be hers."""
        ends = [end for end in (self._last, other._last) if end is not None]
        if not ends:
            return None
        last = max(user for user, _ in ends)
        return last, min(self._query.episodes, sum(held for user, held in ends if user == last))

    def __add__(self, other: PartialAggregate) -> PartialAggregate:
        """Another tally, of the people of both."""
        if not isinstance(other, PartialAggregate):
            return NotImplemented
        new = self._copy()
        new.merge(other)
        return new

    def _copy(self) -> PartialAggregate:
        state = saved_state.state_of(self)
        state |= {"_counts": [counts.copy() for counts in self._counts], "_sums": self._sums.copy()}
        new = PartialAggregate(self._query, self._grid)
        saved_state.resume(new, state)
        return new

    # -------------------------------------------------------------------------------- its sums
    def emptied(self) -> PartialAggregate:
        """Another one that says how many people this one holds, and holds nothing of them."""
        new = PartialAggregate(self._query, self._grid)
        new._people, new._marks, new._counts, new._sums = self._people, self._marks, [], np.zeros((0, 0))
        return new

    def pop(self, slot: int) -> tuple[NDArray[np.uint32], Floats]:
        """(R S,) counts and (R,) rewards of a slot, which are here no more: for who draws their noise."""
        counts, self._counts[slot] = self._counts[slot], np.zeros(0, np.uint32)
        sums = self._sums[slot].copy()
        self._sums[slot] = 0.0
        return counts, sums

    def check_on_grid(self, grid: int) -> None:
        """Raise ``RuntimeError`` unless all rewards are multiples of 1 / ``grid``; counts are integers."""
        checked_on_grid(self._sums, grid)

    def cells(self) -> Floats:
        """(cells,) all families of the query, in its order: exact."""
        rows, states = self._query.layout.rows, self._query.layout.states
        moves = np.stack(self._counts).reshape(-1, rows, states).astype(np.float64)
        parts = []
        for name in self._query.row_families:
            table = moves if name in (TRANSITIONS, POOLED_TRANSITIONS) else self._sums
            if name == VISITS:
                table = moves.sum(axis=-1)
            parts.append((table.sum(axis=0) if "pooled" in name else table).ravel())
        return np.concatenate(parts)

    # -------------------------------------------------------------------------------- as integers
    def units(self) -> NDArray[np.int64]:
        """All of it as integers: people, episodes, every slot's counts, every slot's rewards in 1 / grid.

        **Raw data.** Those of tallies that could be merged add up to those of the merged one.
        """
        told = np.array([self._people, self._episodes], np.int64)
        sums = (checked_on_grid(self._sums, self.grid) * self.grid).astype(np.int64)
        return np.concatenate([told, *(counts.astype(np.int64) for counts in self._counts), sums.ravel()])

    @classmethod
    def of_units(cls, query: CountQuery, grid: int, units: NDArray[np.int64]) -> PartialAggregate:
        """The tally of ``query`` that the integers ``units``, of 1 / ``grid``, are of.

        Raises ``ValueError`` if they are of none.
        """
        new = cls(query, grid)
        cells = new._counts[0].size
        told, counts, sums = np.split(units, [2, 2 + cells * len(new._counts)])
        if units.dtype != np.int64 or units.shape != (2 + cells * len(new._counts) + new._sums.size,):
            raise ValueError("units: must be as many 64-bit integers as the query has cells, and two more")
        if not ((counts >= 0) & (counts <= _MOST_COUNT)).all():
            raise ValueError("units: counts must be 32-bit integers")
        new._people, new._episodes = int(told[0]), int(told[1])
        new._counts = list(counts.astype(np.uint32).reshape(len(new._counts), cells))
        new._sums = sums.reshape(new._sums.shape) / grid
        new.check()
        return new

    # -------------------------------------------------------------------------------- as bytes
    def to_bytes(self) -> bytes:
        """All of it: **raw data**. :meth:`from_bytes` reads it."""
        file = io.BytesIO()
        saved_state.write_content(file, self._marks[0], self._values(), CLASSES, _LAYOUT)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> PartialAggregate:
        """The tally in ``content``. Raises ``ValueError`` if they are damaged, or no tally of people."""
        content = bytes(content)
        found = saved_state.read_content(io.BytesIO(content), len(content), "content", CLASSES, _LAYOUT)
        return cls._of("content", found[1])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a new file, mode 0600: **raw data**, to be kept where the trajectories may be.

        Raises ``ValueError`` if ``path`` exists or its folder does not.
        """
        draft = saved_state.Draft(path, _LAYOUT)
        try:
            draft.write(self._marks[0], self._values(), CLASSES)
            draft.publish()
        except BaseException:
            if not draft.published:
                draft.withdraw()
            raise

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PartialAggregate:
        """The tally in the file at ``path``, which stays.

        Raises ``ValueError`` if it is damaged, or no tally of people.
        """
        found = saved_state.read(path, CLASSES, _LAYOUT)
        return cls._of(f"path = {str(path)!r}", found.values)

    def __reduce__(self) -> Any:
        return PartialAggregate.from_bytes, (self.to_bytes(),)

    def _values(self) -> dict[str, Any]:
        counts = [_packed(one) for one in self._counts]
        return {"raw": _RAW, **saved_state.whole_of(self), "_counts": counts}

    @classmethod
    def _of(cls, where: str, values: Mapping[str, Any]) -> PartialAggregate:
        try:
            layout = values["_query"].layout
            counts = [_unpacked(one, layout.rows * layout.states) for one in values["_counts"]]
            whole = {name: value for name, value in values.items() if name != "raw"} | {"_counts": counts}
            new: PartialAggregate = saved_state.made_of(cls, whole)
            new.check()
        except (TypeError, AttributeError, KeyError, IndexError) as error:
            raise ValueError(f"{where}: is no tally ({error!r})") from error
        except ValueError as error:
            raise ValueError(f"{where}: is no tally of people ({error})") from None
        return new

    def check(self) -> None:
        """Raise ``ValueError`` unless these can be the sums of so many people."""
        query, layout = self._query, self._query.layout
        checks.integer("people", self._people, 0, 2**62)
        checks.integer("episodes", self._episodes, 0, min(self._most, self._people * query.episodes))
        if self._last is not None:
            _, own = (checks.integer("last", number) for number in self._last)
            checks.integer("episodes of the last person", own, 1, query.episodes)
        if not self._marks or not all(isinstance(one, str) and _MARK.fullmatch(one) for one in self._marks):
            raise ValueError("marks: must be texts of 32 hexadecimal digits")
        fresh = PartialAggregate(query, self._grid)
        if len(self._counts) != len(fresh._counts):
            raise ValueError(f"counts: must be {len(fresh._counts)} tables")
        for counts, empty in zip(self._counts, fresh._counts, strict=True):
            saved_state.check_same_kind("counts", counts, empty)
        came: Ints | None = None
        for slot, ((_, steps), counts) in enumerate(zip(self._steps, self._counts, strict=True)):
            table = counts.reshape(layout.rows, layout.states)
            visits = table.sum(axis=1, dtype=np.int64)
            left = np.bincount(layout.row_state, visits, layout.states).astype(np.int64)
            most = (query.first_records if query.first else steps) * self._episodes
            least = self._episodes if query.first else most
            if not least <= int(left.sum()) <= most or (query.first and left.max() > self._episodes):
                raise ValueError(f"counts[{slot}]: must be as many records as there are episodes")
            if came is not None and not np.array_equal(came, left):
                raise ValueError(f"counts[{slot}]: must leave the states that the step before led to")
            came = table.sum(axis=0, dtype=np.int64)
            if query.known_rewards:
                continue
            sums = self._sums[slot]
            raw = sums + query.reward_shift * visits
            if not ((raw >= 0) & (raw <= visits)).all() or (sums * self.grid % 1).any():
                raise ValueError(
                    f"sums[{slot}]: must be of rewards in [0, 1], in units of 1/{self.grid}, one a visit"
                )
        # arrays of our own, which can be added to
        self._counts, self._sums = [np.array(counts) for counts in self._counts], np.array(self._sums)


def _packed(counts: NDArray[np.uint32]) -> NDArray[np.uint32] | tuple[NDArray[np.uint32], ...]:
    """A table, or (cells, counts) of those cells that hold anybody, where these take less room."""
    filled = np.flatnonzero(counts)
    if 2 * filled.size >= counts.size or counts.size > 2**32:
        return counts
    return filled.astype(np.uint32), counts[filled]


def _unpacked(stored: Any, size: int) -> NDArray[np.uint32]:
    """The table of ``size`` cells. Raises ``ValueError`` where that was not made of one."""
    if isinstance(stored, np.ndarray):
        return stored
    cells, counts = stored
    if not all(isinstance(one, np.ndarray) and one.dtype == np.uint32 for one in (cells, counts)):
        raise ValueError("counts: must be 32-bit integers")
    if cells.shape != (counts.size,) or counts.shape != (counts.size,) or not (counts > 0).all():
        raise ValueError("counts: must be a positive count for each cell that is named")
    if cells.size and (int(cells[-1]) >= size or (cells[1:] <= cells[:-1]).any()):
        raise ValueError(f"counts: cells must be in ascending order and below {size}")
    table = np.zeros(size, np.uint32)
    table[cells] = counts
    return table


def _copied_users(user: Any, n: int) -> Ints:
    """A private copy of the users' numbers, or ``ValueError``."""
    own = np.array(user)
    if own.shape != (n,) or own.dtype.kind not in "iu":
        raise ValueError(
            f"user has shape {own.shape} and dtype {own.dtype}: must be {n} integers, one for each episode"
        )
    return own.astype(np.int64, copy=False)
