"""Partial aggregates: exact sums over disjoint sets of users for one count query. Partial aggregates are raw
data. A :class:`PartialAggregate` is the stage between user data and a release. Many machines can each count
their own users and send their partial aggregates to the machine that draws the noise. A data set can also be
counted first and released later. A partial aggregate has no guarantee, because it contains exact counts.
Store, send and delete it like the trajectories themselves.

Contents. A partial aggregate has one table for every counted step (or one table for all steps together if
they are pooled). The table contains the number of times that each pair was followed by each state, and the
sum of the rewards of each pair in units of 1 / ``grid``. All these numbers are integers, so sums do not
depend on the order of users or on the machine that counted them. Two partial aggregates of the same users are
equal bit for bit. Two releases of them with the same noise are also equal bit for bit
(:meth:`OneShotSession.submit_tally
<discreet.mechanisms.dataset.dataset_release.OneShotSession.submit_tally>`). Visits, and counts pooled over
steps, can be computed from these numbers. Group returns, clipped rewards and pooled first visits cannot be
computed from these numbers. A query that counts only first visits (``query.first``) is supported: the first
visits are then counted from whole trajectories.

Rewards. The ``grid`` is a power of two. A reward that is not a multiple of 1 / grid is rounded randomly and
without bias to such a multiple, with random bits from the operating system. With ``grid = None`` rewards are
rounded to the nearest multiple of 2^-20. Both kinds of rounding keep rewards in [0, 1], so no sensitivity
increases.

Disjoint users. A user must not be in two partial aggregates that are merged, because the user's contribution
would then be twice as large as the noise allows. A new partial aggregate gets a random identifier (mark). A
merged partial aggregate has the marks of both parts, and a file contains all marks. Two partial aggregates
with a common mark have users in common, so merging them raises an error. Examples are a partial aggregate
merged with itself, a file that was read twice, and two continuations of one file. If two machines counted the
same user independently, the marks do not show this. Only the data curators can prevent this.

Partial aggregates can be merged in any order. A user who is added afterwards must have a number above all
numbers in the merged partial aggregates. The last user in them is the only exception: this user's remaining
episodes can still be added. If two partial aggregates have the same last user number, they are assumed to
have the same last user. The number of remaining episodes is computed for this one user.

Limits. Counts are 32-bit integers, and rewards are summed exactly in float64. Data that could exceed one of
these ranges are rejected before any data are added. Users are counted before their records are added, so an
interrupt can lose records but never adds uncounted ones.

A file has the layout of :mod:`discreet.mechanisms.saved_state.state_file` with another header. The file is
written in the target's folder with mode 0600 and then renamed. An existing file is never overwritten. When
data are read from bytes, the following properties are checked:

- sizes and kinds of all tables;
- the number of records at each step, which must fit the number of episodes;
- the number of users who leave a state, which must equal the number who arrived in it;
- the sums of rewards, which must be within the bounds for the number of visits;
- the number of episodes, which must not exceed the limit for the number of users.
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
from discreet.core.count_query import CountQuery
from discreet.core.families import POOLED_TRANSITIONS, TRANSITIONS, VISITS
from discreet.core.releases import Floats, Ints
from discreet.core.rng import SecureRng, checked_on_grid
from discreet.core.trajectories import Trajectories, checked
from discreet.mechanisms.saved_state import state_file as saved_state
from discreet.mechanisms.saved_state.save import CLASSES

NEAREST = 2**20  # grid of rewards if ``grid`` is None
_LAYOUT = saved_state.FileLayout(b"\x89discreet-tally\n", 2, "a tally")  # version 1 stored full tables
_RAW = "exact sums of people's data: raw, private to them, and protected by nothing"
_MOST_COUNT = 2**32 - 1  # Limit of the count in a cell.
_MOST_UNITS = 2**51  # Limit of the sum of rewards in a cell. The sum must be exact after noise is added.
_BLOCK = 2**12  # Number of episodes per block, which fits into the processor cache.
_MANY = 2**12  # Least number of episodes that are counted in several threads.
_SHARES = ("reward_share", "pooled_share", "return_share")  # Shares of the budget. They do not affect sums.
_MARK = re.compile("[0-9a-f]{32}")


def same_sums(one: CountQuery, other: CountQuery) -> bool:
    """Return True if two queries compute the same sums. Budget shares are ignored."""
    return all(
        getattr(one, field.name) == getattr(other, field.name)
        for field in fields(CountQuery)
        if field.name not in _SHARES
    )


class PartialAggregate:
    """Exact sums over a set of users for one count query. **These are raw data without any protection.**

    Parameters
    ----------
    query : CountQuery
        Query that defines the sums. It must not have groups, clipped rewards or pooled first visits. At most
        ``query.episodes`` episodes of each user are accepted.
    grid : int, optional
        Power of two up to 2^20. Rewards are rounded randomly and without bias to multiples of 1 / grid, as
        with :class:`~discreet.core.rng.Secure`. None: rewards are rounded to the nearest multiple of 2^-20,
        for simulations. A release accepts partial aggregates with the grid of the release or a coarser grid.

    Raises
    ------
    ValueError
        If partial aggregates do not support the query. Methods that add data also raise it for invalid
        records, unequal queries, users counted twice, and too much data. Nothing is added in these cases.

    Examples
    --------
    >>> import numpy as np, discreet as dr
    >>> query = dr.mechanisms.CountQuery(dr.Layout(2, 1, 1), center_rewards=True)
    >>> here, there = dr.mechanisms.PartialAggregate(query), dr.mechanisms.PartialAggregate(query)
    >>> here.add(dr.Trajectories(np.array([[0, 1]]), np.array([[0]]), np.array([[1.0]])))
    >>> there.absent(2)
    >>> here + there
    <PartialAggregate of 3 people: raw data, not private>
    """

    _BOUND, _STATE = ("_query", "_grid"), ("_people", "_episodes", "_last", "_marks", "_counts", "_sums")

    def __init__(self, query: CountQuery, grid: int | None = 1024) -> None:
        checks.exactly("query", query, CountQuery)
        if query.groups or query.cut or query.pooled == "first":
            raise ValueError(
                "query: must have groups = 0, cut = 0 and pooled 'none' or 'all': a tally contains "
                "neither plans nor whole trajectories"
            )
        if grid is not None:
            grid = checks.integer("grid", grid, 2, NEAREST)
            if grid & (grid - 1):
                raise ValueError(f"grid = {grid}: must be a power of two")
        self._query, self._grid = query.copy(), grid
        layout, steps = query.layout, query.counted
        pooled = (query.stationary and not query.first) or query.pooled == "all"
        in_a_cell = query.counted_steps if pooled else 1  # largest number of an episode's records in a cell
        self._most = min(_MOST_COUNT, _MOST_UNITS // self.grid) // in_a_cell
        # A slot is one step, or all steps together. The arrays hold the first step and the number of steps of
        # each slot.
        self._steps = (
            [(steps.start, query.counted_steps)] if query.slots == 1 else [(h, 1) for h in range(query.slots)]
        )
        self._people = 0
        self._episodes = 0  # Private: number of episodes.
        # Number of the last user, and number of that user's episodes.
        self._last: tuple[int, int] | None = None
        self._marks = [secrets.token_hex(16)]
        self._counts = [np.zeros(layout.rows * layout.states, np.uint32) for _ in self._steps]
        self._sums = np.zeros((query.slots, 0 if query.known_rewards else layout.rows))

    # -------------------------------------------------------------------------------- properties
    @property
    def query(self) -> CountQuery:
        """Copy of the query that defines the sums."""
        return self._query.copy()

    @property
    def grid(self) -> int:
        """Grid of rewards. The sums of rewards are in units of 1 / grid."""
        return NEAREST if self._grid is None else self._grid

    @property
    def people(self) -> int:
        """Number of users, including those without an episode."""
        return self._people

    def __repr__(self) -> str:
        return f"<PartialAggregate of {self._people} people: raw data, not private>"

    def __eq__(self, other: object) -> bool:
        """Return True if the sums and the numbers of users are equal. Marks and user numbers are ignored."""
        if not isinstance(other, PartialAggregate):
            return NotImplemented
        return (
            same_sums(self._query, other._query)
            and (self.grid, self._people, self._episodes) == (other.grid, other._people, other._episodes)
            and all(np.array_equal(a, b) for a, b in zip(self._counts, other._counts, strict=True))
            and np.array_equal(self._sums, other._sums)
        )

    __hash__ = None  # type: ignore[assignment]  # instances are mutable

    # --------------------------------------------------------------------------------- users
    def add(self, trajectories: Trajectories, user: ArrayLike | None = None) -> None:
        """Add many episodes. All records are checked before any is added.

        Parameters
        ----------
        trajectories : Trajectories
            n episodes: ``states (n, H + 1)``, ``actions (n, H)``, ``rewards (n, H)`` in [0, 1].
        user : (n,) int, optional
            Number of the user of each episode. The numbers never decrease, also between calls, so that the
            episodes of a user are adjacent. None (only if ``query.episodes`` is 1): each episode belongs to a
            new user.

        Raises
        ------
        ValueError
            If a record is invalid, a user number is below the previous one, a user has more than
            ``query.episodes`` episodes, or there are more episodes than can be summed exactly. Nothing is
            added. The error message is private data.
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

        # One thread computes all sums of a slot, so the sums do not depend on the number of threads.
        threads = min(processors(), len(self._steps)) if n >= _MANY else 1
        shares = [range(first, len(self._steps), threads) for first in range(threads)]
        if threads == 1:
            count(shares[0])
            return
        with ThreadPoolExecutor(threads - 1) as pool:
            others = pool.map(count, shares[1:])  # starts the other threads
            count(shares[0])
            for _ in others:
                pass

    def absent(self, people: int = 1) -> None:
        """Count ``people`` users of the data set who have no episode. These users contribute zero.

        Raises ``ValueError`` unless ``people`` is an integer >= 1.
        """
        self._people += checks.integer("people", people, 1, 2**62 - self._people)

    def _check_room(self, said: str, episodes: int) -> None:
        if self._episodes + episodes > self._most:
            raise ValueError(f"{said}: sums of more than {self._most} episodes are not exact")

    def _followed(self, user: Ints | None, n: int) -> tuple[int, tuple[int, int] | None]:
        """Return the number of new users, the last user, and the number of that user's episodes."""
        from discreet.mechanisms.dataset import dataset_release_kernels as one_shot_kernels

        most = self._query.episodes
        if user is None:
            if most > 1:
                raise ValueError(f"user = None: must be given where a user may have {most} episodes")
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
        """Add all users of ``other``. ``other`` is not changed.

        Users that are added later must have higher numbers than all users in both partial aggregates. Raises
        ``ValueError`` and adds no user in these cases: ``other`` has a different query or a finer grid,
        ``other`` has a user in common, or the sums would be too large.
        """
        if type(other) is not PartialAggregate:
            raise ValueError(f"other = {checks.said(other)}: must be a PartialAggregate")
        if not same_sums(self._query, other._query):
            raise ValueError("other.query: must sum the same as query, of the same layout")
        if self.grid % other.grid:
            raise ValueError(f"other.grid = {other.grid}: must be {self.grid} or a coarser one")
        if common := set(self._marks) & set(other._marks):
            raise ValueError(
                f"other: holds users who are in this tally already, counted together as {min(common)}; "
                "no user may be counted twice"
            )
        self._check_room(f"other: has {other._people} users", other._episodes)
        checks.integer("other.people", other._people, 0, 2**62 - self._people)
        marks, last = sorted((*self._marks, *other._marks)), self._later(other)
        # This is one statement without a function call, so an interrupt cannot split it. It runs before the
        # sums change.
        self._marks, self._last, self._people, self._episodes = (
            marks, last, self._people + other._people, self._episodes + other._episodes,
        )  # fmt: skip
        for mine, theirs in zip(self._counts, other._counts, strict=True):
            mine += theirs
        self._sums += other._sums

    def _later(self, other: PartialAggregate) -> tuple[int, int] | None:
        """Return the larger of the two last user numbers, and the number of episodes of that user."""
        ends = [end for end in (self._last, other._last) if end is not None]
        if not ends:
            return None
        last = max(user for user, _ in ends)
        return last, min(self._query.episodes, sum(held for user, held in ends if user == last))

    def __add__(self, other: PartialAggregate) -> PartialAggregate:
        """Return a new partial aggregate that contains the users of both."""
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

    # -------------------------------------------------------------------------------- sums
    def emptied(self) -> PartialAggregate:
        """Return a partial aggregate with the same number of users and the same marks, but without sums."""
        new = PartialAggregate(self._query, self._grid)
        new._people, new._marks, new._counts, new._sums = self._people, self._marks, [], np.zeros((0, 0))
        return new

    def pop(self, slot: int) -> tuple[NDArray[np.uint32], Floats]:
        """Remove the counts and rewards of a ``slot`` and return them: (R S,) counts and (R,) sums of
        rewards.

        The caller adds noise to them.
        """
        counts, self._counts[slot] = self._counts[slot], np.zeros(0, np.uint32)
        sums = self._sums[slot].copy()
        self._sums[slot] = 0.0
        return counts, sums

    def check_on_grid(self, grid: int) -> None:
        """Raise ``RuntimeError`` unless all sums of rewards are multiples of 1 / ``grid``."""
        checked_on_grid(self._sums, grid)

    def cells(self) -> Floats:
        """Return the exact sums of all families as one (cells,) array, in the order of the query."""
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
        """Return all contents as integers: number of users, number of episodes, counts, and sums of rewards.

        Counts and rewards are in the order of the slots. Rewards are in units of 1 / grid.

        **Raw data.** If partial aggregates can be merged, the sum of their integers equals the integers of
        the merged partial aggregate.
        """
        totals = np.array([self._people, self._episodes], np.int64)
        sums = (checked_on_grid(self._sums, self.grid) * self.grid).astype(np.int64)
        return np.concatenate([totals, *(counts.astype(np.int64) for counts in self._counts), sums.ravel()])

    @classmethod
    def of_units(cls, query: CountQuery, grid: int, units: NDArray[np.int64]) -> PartialAggregate:
        """Return the partial aggregate of ``query`` with the integers ``units``.

        grid : rewards in ``units`` are multiples of 1 / grid.

        Raises ``ValueError`` if no partial aggregate has these integers.
        """
        new = cls(query, grid)
        cells = new._counts[0].size
        totals, counts, sums = np.split(units, [2, 2 + cells * len(new._counts)])
        if units.dtype != np.int64 or units.shape != (2 + cells * len(new._counts) + new._sums.size,):
            raise ValueError("units: must be as many 64-bit integers as the query has cells, and two more")
        if not ((counts >= 0) & (counts <= _MOST_COUNT)).all():
            raise ValueError("units: counts must be 32-bit integers")
        new._people, new._episodes = int(totals[0]), int(totals[1])
        new._counts = list(counts.astype(np.uint32).reshape(len(new._counts), cells))
        new._sums = sums.reshape(new._sums.shape) / grid
        new.check()
        return new

    # -------------------------------------------------------------------------------- as bytes
    def to_bytes(self) -> bytes:
        """Return all contents as bytes, which are **raw data**. :meth:`from_bytes` reads these bytes."""
        file = io.BytesIO()
        saved_state.write_content(file, self._marks[0], self._values(), CLASSES, _LAYOUT)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> PartialAggregate:
        """Return the partial aggregate in ``content``.

        Raises ``ValueError`` if the bytes are damaged, or are not a partial aggregate.
        """
        content = bytes(content)
        found = saved_state.read_content(io.BytesIO(content), len(content), "content", CLASSES, _LAYOUT)
        return cls._of("content", found[1])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all contents to a new file with mode 0600. **Raw data**: protect it.

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
        """Return the partial aggregate in the file ``path``. The file is not removed.

        Raises ``ValueError`` if the file is damaged, or is not a partial aggregate.
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
            raise ValueError(f"{where}: is not a tally ({error!r})") from error
        except ValueError as error:
            raise ValueError(f"{where}: is not a tally of users ({error})") from None
        return new

    def check(self) -> None:
        """Raise ``ValueError`` unless the contents can be the sums of the stated number of users."""
        query, layout = self._query, self._query.layout
        checks.integer("people", self._people, 0, 2**62)
        checks.integer("episodes", self._episodes, 0, min(self._most, self._people * query.episodes))
        if self._last is not None:
            _, own = (checks.integer("last", number) for number in self._last)
            checks.integer("episodes of the last user", own, 1, query.episodes)
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
        # These copies are writeable, and no other object refers to them.
        self._counts, self._sums = [np.array(counts) for counts in self._counts], np.array(self._sums)


def _packed(counts: NDArray[np.uint32]) -> NDArray[np.uint32] | tuple[NDArray[np.uint32], ...]:
    """Return the table, or only the indices and counts of its nonzero cells if these need less space."""
    filled = np.flatnonzero(counts)
    if 2 * filled.size >= counts.size or counts.size > 2**32:
        return counts
    return filled.astype(np.uint32), counts[filled]


def _unpacked(stored: Any, size: int) -> NDArray[np.uint32]:
    """Return the table of ``size`` cells that :func:`_packed` stored as ``stored``.

    Raises ``ValueError`` if :func:`_packed` cannot have returned ``stored``.
    """
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
    """Return a copy of the user numbers. Raises ``ValueError`` if a number is invalid."""
    own = np.array(user)
    if own.shape != (n,) or own.dtype.kind not in "iu":
        raise ValueError(
            f"user has shape {own.shape} and dtype {own.dtype}: must be {n} integers, one for each episode"
        )
    return own.astype(np.int64, copy=False)
