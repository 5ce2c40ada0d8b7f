"""Visits with real-valued contexts, read from a source whose schema has ``[context]``.

The source is read twice. The first pass checks every row against the schema (:mod:`.validate`). The second
pass keeps all rows in memory: 8 bytes for each context and row. A context that is empty or not a number
counts as missing, and the feature map replaces it by the middle of its range.

The target of a visit is the later return: the sum of rewards of this row and of the later rows of the
episode. It is scaled from the declared range of returns to [0, 1] and clipped.

Messages about context cells are private, as are messages about rows. They state the shares of missing cells
and of cells out of range. A column is refused if it has no number, or if most of its numbers are out of
range.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.releases import Floats, Ints
from discreet.core.rng import Randomness, SecureRng, Seeded
from discreet.core.short_repr import brief
from discreet.data.row_batches import CONTEXT, Progress, Source
from discreet.data.validate import DataError, episodes
from discreet.mechanisms.linear.context_sums import Visits

_MANY_MISSING, _MANY_OUTSIDE = 0.5, 0.05  # a warning names a column above these shares of its cells


@dataclass(frozen=True, eq=False)
class StoredVisits:
    """Visits of all users of a source, ordered by user and step. These are raw data.

    visits : users numbered from 0.

    propensities : (n,) probability of the action that was taken, or None if the schema has no such column.

    names : names of the users in the file, in the order of their numbers.
    """

    __repr__ = brief

    visits: Visits
    propensities: Floats | None
    names: tuple[object, ...]

    def of(self, users: NDArray[np.bool_]) -> StoredVisits:
        """Return the visits of the users where ``users`` is True, numbered from 0."""
        mine = users[self.visits.users]
        chosen, number = self.visits.of(mine), np.cumsum(users) - 1
        visits = Visits(number[chosen.users], chosen.contexts, chosen.actions, chosen.targets)
        names = tuple(name for name, kept in zip(self.names, users.tolist(), strict=True) if kept)
        return StoredVisits(visits, None if self.propensities is None else self.propensities[mine], names)

    def some(self, most: int, randomness: Randomness) -> Visits:
        """Return at most ``most`` visits of each user, drawn uniformly without replacement.

        The draws for a user depend on their number of visits only. randomness : Seeded for a simulation.
        Otherwise the operating system's random numbers order the visits of a user.
        """
        users = self.visits.users
        if isinstance(randomness, Seeded):
            source = np.random.default_rng(randomness.keys.ties.tolist())
            order = np.lexsort((source.random(len(users)), users))
        else:
            order = np.lexsort((SecureRng().words(len(users)), users))
        starts = np.searchsorted(users, users)  # per row: first row of its user; rows are sorted by user
        chosen = order[np.arange(len(users)) - starts < most]
        return self.visits.of(np.sort(chosen))


def read_visits(
    source: Source,
    *,
    progress: Progress | None = None,
    scratch: str | Path | None = None,
    workers: int | None = None,
) -> StoredVisits:
    """Check all rows of a source, and return the visits of its users.

    progress, scratch, workers : see :func:`discreet.data.validate.episodes`.

    Raises
    ------
    DataError
        If rows violate the schema, a propensity is not in (0, 1], or a context column has no number or has
        most numbers out of its range. The message is private.
    ValueError
        If the schema has no contexts.

    Warns
    -----
    UserWarning
        If half of the cells of a column are missing, or 5 % are out of range. The message is private.
    """
    schema = source.schema
    if schema.context is None:
        raise ValueError("schema: must have [context.columns] for visits with contexts")
    users = sum(
        len(part.user) for part in episodes(source, progress=progress, scratch=scratch, workers=workers)
    )
    named = schema.context.read
    kept = ["user", "step", "action", "reward", *(f"{CONTEXT}{i}" for i in range(len(named)))]
    parts = [table.select(kept) for table in source.batches(progress=progress, what="read contexts")]
    if not parts:
        raise ValueError("source: holds no rows")
    table = pa.concat_tables(parts)
    del parts
    coded = pc.dictionary_encode(table["user"].combine_chunks())
    user = np.asarray(coded.indices.to_numpy(zero_copy_only=False), np.int64)
    names = tuple(coded.dictionary.to_pylist())
    if len(names) != users:
        raise ValueError("source: must not change while it is read")
    order = np.lexsort((table["step"].to_numpy(), user))
    columns = {name: table[name].to_numpy()[order] for name in kept[2:]}
    contexts = np.stack([columns[name] for name in kept[4:]], axis=1)
    del table
    user, propensities = user[order], None
    if schema.context.propensity is not None:
        contexts, propensities = contexts[:, :-1], contexts[:, -1]
        _check_propensities(propensities, order, schema.context.propensity)
    _check_ranges(contexts, schema.context.features.ranges, order)
    least, most = schema.returns.bounds(schema.horizon)
    later = (_later(user, columns["reward"]) - least) / (most - least)
    visits = Visits(user, contexts, columns["action"].astype(np.int64), np.clip(later, 0.0, 1.0))
    return StoredVisits(visits, propensities, names)


def _check_ranges(contexts: Floats, ranges: Mapping[str, tuple[float, float]], order: Ints) -> None:
    """Warn of missing cells and of cells out of range. Raise ``DataError`` if a column is not usable."""
    notes = []
    for (name, (low, high)), column in zip(ranges.items(), contexts.T, strict=True):
        known = column[np.isfinite(column)]
        if not known.size:
            text = f"column {name!r}: must have a number in some row, all {column.size} cells are missing"
            raise DataError(text, {"context": column.size}, ("context", 0))
        outside = (known < low) | (known > high)
        if 2 * int(outside.sum()) > known.size:
            at = int(np.flatnonzero(np.isfinite(column))[outside][0])
            text = (
                f"column {name!r}: {outside.mean():.0%} of its numbers are out of the declared range "
                f"[{low:g}, {high:g}], for example {known[outside][0]:g}; must have the unit of the range"
            )
            raise DataError(text, {"context": int(outside.sum())}, ("context", int(order[at])))
        missing, out = column.size - known.size, int(outside.sum())
        if missing >= _MANY_MISSING * column.size or out >= _MANY_OUTSIDE * known.size:
            note = f"{name!r}: {missing / column.size:.2%} missing, {out / known.size:.2%} out of range"
            notes.append(note)
    if notes:
        warnings.warn(
            "this message is private: it has exact shares of the data. Missing cells count as the middle of "
            f"the range, cells out of range as its end. {'; '.join(notes)}",
            UserWarning,
            stacklevel=3,
        )


def _check_propensities(values: Floats, order: Ints, name: str) -> None:
    bad = np.flatnonzero(~((values > 0.0) & (values <= 1.0)))
    if bad.size:
        first = int(order[bad].min())
        value = checks.said(float(values[np.flatnonzero(order == first)[0]]))
        text = (
            f"column {name!r}: {bad.size} rows have a propensity that is not in (0, 1]; the first is row "
            f"{first}, {value}"
        )
        raise DataError(text, {"propensity": int(bad.size)}, ("propensity", first))


def _later(user: Ints, rewards: Floats) -> Floats:
    """Return, for each row, the sum of rewards from this row to the last row of the same user.

    Only rewards of the same user are added, so that rounding does not depend on other users.
    """
    found = np.array(rewards, np.float64)
    last = np.searchsorted(user, user, side="right") - 1
    left = last - np.arange(len(user))  # later rows of the user
    for steps in range(1, int(left.max(initial=0)) + 1):
        mine = np.flatnonzero(left == steps)
        found[mine] += found[mine + 1]
    return found
