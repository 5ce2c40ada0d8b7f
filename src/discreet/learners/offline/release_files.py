r"""Release files: noisy sums, their noise distributions and the guarantee. Files are read one step at a time.

``release.parquet`` contains everything that was released about users' data. Each row of the file is one cell
of a table, and each table of a step is one row group. The columns are:

- ``family`` is the name of the table, for example ``visits`` or ``transition_counts``.
- ``step`` is h, starting at 0.
- In a release of counts, ``state``, ``action`` and ``next_state`` identify the cell. Only admissible pairs
  are included. ``next_state`` is null if the table has no next states.
- In all other releases, ``i`` and ``j`` are the indices of the cell in its table. An index is null if the
  table has fewer dimensions.
- ``value`` is the float64 value of the cell.

The metadata of the Parquet schema have one JSON object under the key ``discreet.release``. The object
contains ``version``, ``kind``, ``facts`` (:class:`ReleaseFacts`), ``groups``, and the SHA-256 of ``kind``,
``facts`` and ``groups`` together. ``groups`` lists, for each row group in order, its family, step, shape and
the SHA-256 of its values. Hashes detect accidental damage, but not a forgery: anyone who can write the file
can also write matching hashes. The privacy statement contains a hash of the whole file.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike
from pyarrow import parquet

from discreet.accounting.noise_distributions import distributions as noise_laws
from discreet.core import checks
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.core.guarantee import Guarantee
from discreet.core.layout import Layout
from discreet.core.releases import Floats
from discreet.mechanisms.interfaces import NoiseDistribution, StepSums
from discreet.names import __version__

KEY = b"discreet.release"
FIRST_VISITS = {"question": "first visits"}
CONTEXTS = {"question": "contexts"}
VERSION = 3  # version 1 stored the guarantee as text; version 2 had no `ReleaseFacts.run`

_LAWS: dict[str, type] = {
    law.__name__: law
    for law in (
        noise_laws.NoNoise, noise_laws.LaplaceSumLaw, noise_laws.GaussianSumLaw,
        noise_laws.SubGaussianSumLaw, noise_laws.WeightedLaplaceLaw,
    )
}  # fmt: skip


@dataclass(frozen=True, eq=False, kw_only=True)
class ReleaseFacts:
    """Public description of a release, without its values.

    Attributes
    ----------
    layout : Layout
        S, A, H and the admissible actions.
    users : int
        Number of users in the sums, at least 1.
    guarantee : Guarantee
        Privacy guarantee of the release.
    laws : mapping of family to NoiseDistribution
        Noise distribution of each family. For a release of counts, the keys are exactly its families, and
        error bounds hold for the cells of all steps together. Other releases can describe their noise in
        ``query``.
    records : tuple of JSON objects
        Description of each mechanism, as given by the caller.
    episodes : int
        Largest number of episodes per user that are counted.
    dataset, schema, known_rewards : str, optional
        Name of the population, hash of the schema, and hash of the known rewards.
    algorithm, options : str, optional; JSON object
        Name of the learner, and the options that define its query.
    query : JSON object
        Query, if families and laws do not define it. For counts of first visits, it is :data:`FIRST_VISITS`;
        these counts are in one table for all steps. For sums of contexts, it contains
        :data:`CONTEXTS`.
    run : JSON object
        Data about the run for the privacy statement: date, purpose, versions, ledger entry.
    library : str
        Version of the library that wrote the file.
    """

    layout: Layout
    users: int
    guarantee: Guarantee
    laws: Mapping[str, NoiseDistribution] = field(default_factory=dict)
    records: tuple[Mapping[str, Any], ...] = ()
    episodes: int = 1
    dataset: str | None = None
    schema: str | None = None
    known_rewards: str | None = None
    algorithm: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    library: str = __version__

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name, kind in (("layout", Layout), ("guarantee", Guarantee)):
            if not isinstance(getattr(self, name), kind):
                raise ValueError(f"{name} = {checks.said(getattr(self, name))}: must be a {kind.__name__}")
        put(self, "users", checks.integer("users", self.users, 1))
        put(self, "episodes", checks.integer("episodes", self.episodes, 1))
        for name in ("dataset", "schema", "known_rewards", "algorithm"):
            if not isinstance(getattr(self, name), str | None):
                raise ValueError(f"{name} = {checks.said(getattr(self, name))}: must be text or None")
        if not isinstance(self.library, str):
            raise ValueError(f"library = {checks.said(self.library)}: must be text")
        for name in ("options", "query", "run", "laws"):
            if not isinstance(getattr(self, name), Mapping):
                raise ValueError(f"{name} = {checks.said(getattr(self, name))}: must be a mapping")
        put(self, "records", tuple(self.records))
        for name, law in self.laws.items():
            if _LAWS.get(type(law).__name__) is not type(law):
                raise ValueError(
                    f"laws[{name!r}] is a {type(law).__name__}: must be one of {', '.join(_LAWS)}"
                )

    @property
    def first_visits(self) -> bool:
        """Return True if the release has counts of first visits."""
        return dict(self.query) == FIRST_VISITS

    @property
    def contexts(self) -> bool:
        """Return True if the release has sums over visits with real-valued contexts."""
        return self.query.get("question") == CONTEXTS["question"]

    @property
    def linear(self) -> bool:
        """Return True if the release has sums of features instead of counts."""
        return bool(self.query) and not self.first_visits

    @property
    def slots(self) -> int:
        """Return the number of tables of each family of counts: H, or 1 if one table is for all steps."""
        return 1 if self.first_visits else self.layout.horizon

    def to_dict(self) -> dict[str, Any]:
        """Return the description as JSON values."""
        layout = self.layout
        mask = None if layout.mask is None else np.packbits(layout.mask).tobytes()
        return {
            "states": layout.states,
            "actions": layout.actions,
            "horizon": layout.horizon,
            "mask": None if mask is None else base64.b64encode(mask).decode(),
            "users": self.users,
            "guarantee": self.guarantee.to_dict(),
            "laws": {name: _law_to_dict(law) for name, law in self.laws.items()},
            "records": [dict(record) for record in self.records],
            "episodes": self.episodes,
            "dataset": self.dataset,
            "schema": self.schema,
            "known_rewards": self.known_rewards,
            "algorithm": self.algorithm,
            "options": dict(self.options),
            "query": dict(self.query),
            "run": dict(self.run),
            "library": self.library,
        }

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> ReleaseFacts:
        """Return the description from the result of :meth:`to_dict`.

        Raises ``ValueError`` for any other input.
        """
        names = {part.name for part in fields(cls)} - {"layout"} | {"states", "actions", "horizon", "mask"}
        if not isinstance(table, Mapping) or set(table) != names:
            raise ValueError("facts: must be an object with exactly the keys of a release")
        rest = {name: table[name] for name in names - {"states", "actions", "horizon", "mask"}}
        for name, kind in (("laws", Mapping), ("guarantee", Mapping), ("records", list)):
            if not isinstance(rest[name], kind):
                raise ValueError(f"facts.{name} = {checks.said(rest[name])}: must be of another kind")
        rest["laws"] = {name: _law_from_dict(name, law) for name, law in rest["laws"].items()}
        rest["guarantee"] = Guarantee.from_dict(rest["guarantee"])
        return cls(layout=_layout(table), **rest)


def _law_to_dict(law: NoiseDistribution) -> dict[str, Any]:
    kind = type(law)
    return {"law": kind.__name__} | {part.name: getattr(law, part.name) for part in fields(kind)}  # type: ignore[arg-type]


def _law_from_dict(name: str, table: Any) -> NoiseDistribution:
    kind = _LAWS.get(str(table.get("law"))) if isinstance(table, Mapping) else None
    if kind is None or set(table) != {"law", *(part.name for part in fields(kind))}:
        raise ValueError(f"laws[{name!r}] = {checks.said(table)}: must be a noise law with all of its fields")
    law: NoiseDistribution = kind(**{key: value for key, value in table.items() if key != "law"})
    return law


def _layout(table: Mapping[str, Any]) -> Layout:
    """Return the layout from the stored sizes and mask."""
    states, actions = (checks.integer(name, table[name], 1) for name in ("states", "actions"))
    mask = table["mask"]
    if mask is not None:
        try:
            bits = np.frombuffer(base64.b64decode(mask, validate=True), np.uint8)
        except (binascii.Error, TypeError, ValueError):
            raise ValueError(f"mask = {checks.said(mask)}: must be null or bits in base64") from None
        if bits.size != -(-states * actions // 8):
            raise ValueError(
                f"mask has {bits.size} bytes: must have a bit for each of {states * actions} pairs"
            )
        mask = np.unpackbits(bits, count=states * actions).reshape(states, actions).astype(bool)
    return Layout(states, actions, table["horizon"], mask)


# ------------------------------------------------------------------------------ the shape of the file
@contextmanager
def aside(path: str | Path) -> Iterator[BinaryIO]:
    """Yield a temporary binary file, and rename the file to ``path`` if the block succeeds.

    If the block raises an exception, the temporary file is removed, and an existing file at ``path`` is kept.
    """
    path = Path(path)
    hidden = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    file = open(hidden, "xb")  # noqa: SIM115
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(hidden, path)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Convert errors that occur when a file is read to a ``ValueError`` that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (pa.ArrowException, OSError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from None


_COUNTS = ("state", "action", "next_state")
_PLACES = ("i", "j")


def _schema(kind: str) -> Any:
    whole = [(name, pa.int32()) for name in ("step", *(_COUNTS if kind == "counts" else _PLACES))]
    return pa.schema([("family", pa.dictionary(pa.int32(), pa.string())), *whole, ("value", pa.float64())])


class _Group(NamedTuple):
    """Description of one row group, which contains the table of one family at one step."""

    family: str
    step: int
    shape: tuple[int, ...]
    digest: str

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class _Index:
    """Builder of the index columns of tables, with a cache."""

    def __init__(self, kind: str, layout: Layout) -> None:
        self.kind, self.layout = kind, layout
        self._shape: tuple[int, ...] | None = None
        self._columns: dict[str, Any] = {}

    def columns(self, shape: tuple[int, ...]) -> dict[str, Any]:
        if shape != self._shape:
            self._shape, self._columns = shape, self._made(shape)
        return self._columns

    def _made(self, shape: tuple[int, ...]) -> dict[str, Any]:
        size, inner = math.prod(shape), math.prod(shape[1:])
        last = pa.array(np.tile(np.arange(inner, dtype=np.int32), shape[0])) if len(shape) == 2 else None
        if self.kind == "counts":
            pair = (self.layout.row_state, self.layout.row_action)
            first = [pa.array(np.repeat(x.astype(np.int32), inner)) for x in pair]
        else:
            first = [pa.array(np.repeat(np.arange(n, dtype=np.int32), inner)) for n in shape[:1]]
            first = first or [pa.nulls(size, pa.int32())]
        columns = (*first, pa.nulls(size, pa.int32()) if last is None else last)
        return dict(zip(_COUNTS if self.kind == "counts" else _PLACES, columns, strict=True))


def _digest(values: Floats) -> str:
    """Return the SHA-256 of the values in the order of the file, as little-endian float64."""
    return hashlib.sha256(np.ascontiguousarray(values, "<f8").data).hexdigest()


def _seal(kind: str, facts: Any, groups: Any) -> str:
    text = json.dumps([kind, facts, groups], sort_keys=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


# ------------------------------------------------------------------------------------------- writing
def write_tables(path: str | Path, tables: Iterable[tuple[str, int, ArrayLike]], facts: ReleaseFacts) -> None:
    """Write named tables (Gram matrices, answers, ...) to a file, with one table in memory at a time.

    Parameters
    ----------
    path : str or Path
        Path of the file. An existing file is replaced when the new file is complete.
    tables : iterable of (family, step, array)
        Tables in any order, with steps in [0, H). Arrays must be finite, not empty, and have 0, 1 or 2
        dimensions.
    facts : ReleaseFacts
        Description of the release.

    Raises
    ------
    ValueError
        If a table is invalid or occurs twice, or if the facts are not JSON values.
    """
    _write(path, "linear", tables, facts)


def write_release(path: str | Path, sums: Iterable[StepSums], facts: ReleaseFacts) -> None:
    """Write a release of counts to a file, with one step in memory at a time.

    Parameters
    ----------
    path : str or Path
        Path of the file. An existing file is replaced when the new file is complete.
    sums : iterable of StepSums
        Sums of the steps 0, 1, .., H - 1, in this order.
    facts : ReleaseFacts
        Description of the release. The keys of ``laws`` are the families. Transitions are required; visits
        and centred rewards are optional.

    Raises
    ------
    ValueError
        If a step is missing or out of order, if a table does not fit the layout or is not finite, or if the
        families of a step are not those of ``facts.laws``.
    """
    shapes = _families(facts)

    def tables() -> Iterator[tuple[str, int, ArrayLike]]:
        following = 0
        for step in sums:
            if step.step != following or following == facts.slots:
                raise ValueError(
                    f"sums: step {step.step} after {following} steps, must be 0 to {facts.slots - 1} in order"
                )
            held = _tables(step)
            if set(held) != set(shapes):
                raise ValueError(f"sums of step {step.step} hold {sorted(held)}: must hold {sorted(shapes)}")
            for name, shape in shapes.items():
                if np.shape(held[name]) != shape:
                    raise ValueError(
                        f"{name} of step {step.step} has shape {np.shape(held[name])}: must be {shape}"
                    )
                yield name, step.step, held[name]
            following += 1
        if following != facts.slots:
            raise ValueError(f"sums end after {following} steps: must be {facts.slots}")

    _write(path, "counts", tables(), facts)


def _tables(step: StepSums) -> dict[str, Floats]:
    held = {VISITS: step.visits, TRANSITIONS: step.transitions, CENTERED_REWARDS: step.rewards}
    return {name: table for name, table in held.items() if table is not None}


def _families(facts: ReleaseFacts) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of one step's tables in a release of counts, in file order."""
    rows, states = facts.layout.rows, facts.layout.states
    every: dict[str, tuple[int, ...]] = {
        VISITS: (rows,),
        TRANSITIONS: (rows, states),
        CENTERED_REWARDS: (rows,),
    }
    if TRANSITIONS not in facts.laws or not set(facts.laws) <= set(every):
        raise ValueError(f"laws name {sorted(facts.laws)}: must name {TRANSITIONS}, and only {sorted(every)}")
    return {name: shape for name, shape in every.items() if name in facts.laws}


def _write(
    path: str | Path, kind: str, tables: Iterable[tuple[str, int, ArrayLike]], facts: ReleaseFacts
) -> None:
    schema, index, groups = _schema(kind), _Index(kind, facts.layout), dict[tuple[str, int], _Group]()
    try:
        said = json.loads(json.dumps(facts.to_dict(), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"facts: must be plain values for JSON ({error})") from None
    successive = schema.names[-2]
    how = {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": [name for name in schema.names if name != successive],
        "column_encoding": {successive: "DELTA_BINARY_PACKED"},
        "write_page_checksum": True,
        "write_statistics": False,
    }
    with aside(path) as file, parquet.ParquetWriter(file, schema, **how) as writer:
        for family, step, table in tables:
            values = _checked(family, step, table, facts.layout.horizon)
            if (family, step) in groups:
                raise ValueError(f"{family} of step {step} is given twice")
            groups[family, step] = _Group(family, step, values.shape, _digest(values))
            whole = index.columns(values.shape)
            names = pa.DictionaryArray.from_arrays(np.zeros(values.size, np.int32), [family])
            steps = pa.repeat(pa.scalar(step, pa.int32()), values.size)
            columns = [names, steps, *whole.values(), pa.array(values.ravel())]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=values.size)
        if not groups:
            raise ValueError("tables: must be at least one")
        listed = [[group.family, group.step, list(group.shape), group.digest] for group in groups.values()]
        document = {
            "version": VERSION, "kind": kind, "facts": said, "groups": listed,
            "sha256": _seal(kind, said, listed),
        }  # fmt: skip
        writer.add_key_value_metadata({KEY: json.dumps(document, allow_nan=False)})


def _checked(family: str, step: int, table: ArrayLike, horizon: int) -> Floats:
    if not isinstance(family, str) or not family:
        raise ValueError(f"family = {checks.said(family)}: must be text")
    checks.integer(f"step of {family}", step, 0, horizon - 1)
    values = np.asarray(table, np.float64, order="C")
    if values.ndim > 2 or values.size == 0:
        raise ValueError(
            f"{family} of step {step} has shape {values.shape}: must be 0 to 2 dimensions, not empty"
        )
    if not np.isfinite(values).all():
        raise ValueError(f"{family} of step {step}: must be finite everywhere")
    return values


# ------------------------------------------------------------------------------------------- reading
class StoredTables:
    """Reader of a release file. Use :func:`read_tables` to create it.

    path : Path of the file. facts : ReleaseFacts in the file. families : names of the tables, in file order.
    """

    _KINDS: ClassVar[tuple[str, ...]] = ("linear", "counts")

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with _naming(self.path), self._open() as file:
            self._kind, self.facts, groups = _document(file, self._KINDS)
            self._place = {(group.family, group.step): n for n, group in enumerate(groups)}
            self._groups = groups
            self._check_structure(file)

    def __repr__(self) -> str:
        families = ", ".join(self.families[:6]) + (", ..." if len(self.families) > 6 else "")
        return f"<{type(self).__name__} {str(self.path)!r}: {self.facts.users} users, {families}>"

    def _open(self) -> Any:
        return parquet.ParquetFile(self.path, page_checksum_verification=True)

    def _check_structure(self, file: Any) -> None:
        if not file.schema_arrow.equals(_schema(self._kind)):
            raise ValueError("the columns are not those of a release")
        if file.num_row_groups != len(self._groups):
            raise ValueError(f"holds {file.num_row_groups} row groups: must hold {len(self._groups)}")
        for n, group in enumerate(self._groups):
            if file.metadata.row_group(n).num_rows != group.size:
                raise ValueError(
                    f"{group.family} of step {group.step} does not have the {group.size} rows of its shape"
                )
            checks.integer(f"step of {group.family}", group.step, 0, self.facts.layout.horizon - 1)

    @property
    def families(self) -> tuple[str, ...]:
        """Return the names of all tables, in the order of the file."""
        return tuple(dict.fromkeys(group.family for group in self._groups))

    def steps(self, family: str) -> tuple[int, ...]:
        """Return the steps that have a table of this name."""
        return tuple(group.step for group in self._groups if group.family == family)

    def shapes(self) -> Iterator[tuple[str, int, tuple[int, ...]]]:
        """Yield (family, step, shape) for all tables, in the order of the file."""
        yield from ((group.family, group.step, group.shape) for group in self._groups)

    def table(self, family: str, step: int) -> Floats:
        """Return the table of one family at one step, as a read-only array.

        Raises
        ------
        ValueError
            If there is no such table, or if the file was changed after it was written.
        """
        n = self._place.get((family, step))
        if n is None:
            raise ValueError(f"{self.path}: holds no table {family!r} of step {step}")
        with _naming(self.path), self._open() as file:
            return self._values(n, file.read_row_group(n, columns=["value"], use_threads=False)["value"])

    def tables(self) -> dict[tuple[str, int], Floats]:
        """Return a dict from (family, step) to table for all tables."""
        return {place: self.table(*place) for place in self._place}

    def _values(self, n: int, column: Any) -> Floats:
        group = self._groups[n]
        if column.null_count or len(column) != group.size:
            raise ValueError(f"{group.family} of step {group.step}: cells are missing")
        values = np.asarray(column.to_numpy(), np.float64)
        if _digest(values) != group.digest:
            raise ValueError(
                f"{group.family} of step {group.step}: the values are not those that were written"
            )
        if not np.isfinite(values).all():
            raise ValueError(f"{group.family} of step {group.step}: must be finite everywhere")
        values.flags.writeable = False
        return values.reshape(group.shape)

    def check(self) -> None:
        """Read all columns of the whole file. Raises ``ValueError`` if the file was changed."""
        index = _Index(self._kind, self.facts.layout)
        with _naming(self.path), self._open() as file:
            for n, group in enumerate(self._groups):

                def read(name: str, n: int = n) -> Any:
                    return file.read_row_group(n, columns=[name], use_threads=False)[name]

                self._values(n, read("value"))
                right = {
                    "family": pc.unique(read("family")).to_pylist() == [group.family],
                    "step": pc.unique(read("step")).to_pylist() == [group.step],
                }
                for name, column in index.columns(group.shape).items():
                    right[name] = read(name).equals(pa.chunked_array([column]))
                for name, equal in right.items():
                    if not equal:
                        raise ValueError(f"{group.family} of step {group.step}: column {name} is wrong")


class StoredRelease(StoredTables):
    """Release of counts in a file, with the interface
    :class:`~discreet.mechanisms.interfaces.StepwiseRelease`.

    Use :func:`read_release` to create it.
    """

    _KINDS = ("counts",)

    def _check_structure(self, file: Any) -> None:
        shapes = _families(self.facts)
        expected = [(name, h, shape) for h in range(self.facts.slots) for name, shape in shapes.items()]
        if [group[:3] for group in self._groups] != expected:
            raise ValueError(f"groups: must be {', '.join(shapes)} of each of {self.facts.slots} steps")
        super()._check_structure(file)

    @property
    def layout(self) -> Layout:
        """Return the layout with S, A, H and the admissible actions."""
        return self.facts.layout

    @property
    def users(self) -> int:
        """Return the number of users in the sums."""
        return self.facts.users

    @property
    def laws(self) -> Mapping[str, NoiseDistribution]:
        """Return the noise distribution of each family."""
        return self.facts.laws

    @property
    def guarantee(self) -> Guarantee:
        """Return the privacy guarantee of the release."""
        return self.facts.guarantee

    def step(self, h: int) -> StepSums:
        """Return the sums of step h. Raises ``ValueError`` if h is not in [0, H) or the file is damaged."""
        h = checks.integer("h", h, 0, self.facts.slots - 1)
        tables = {name: self.table(name, h) for name in self.laws}
        return StepSums(h, tables[TRANSITIONS], tables.get(VISITS), tables.get(CENTERED_REWARDS))


def read_tables(path: str | Path) -> StoredTables:
    """Open a release file of any kind, with the same checks as :func:`read_release`."""
    return StoredTables(path)


def read_release(path: str | Path) -> StoredRelease:
    """Open a release of counts; ``path`` is the path of ``release.parquet``.

    Version, description, structure and their hash are checked immediately.

    Raises
    ------
    ValueError
        If the file is missing, is not a release of counts, has another version, or is truncated or altered.
    """
    return StoredRelease(path)


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number of a release")


def _document(file: Any, kinds: tuple[str, ...]) -> tuple[str, ReleaseFacts, list[_Group]]:
    """Return the kind, facts and row groups of a release file. Raises ``ValueError`` if they are invalid.

    kinds : the accepted kinds of files.
    """
    metadata = file.metadata.metadata or {}
    if KEY not in metadata:
        raise ValueError(f"is not a release: its metadata have no key {KEY.decode()!r}")
    found = json.loads(metadata[KEY], parse_constant=_no_constant)
    if not isinstance(found, dict) or found.get("version") != VERSION:
        version = found.get("version") if isinstance(found, dict) else found
        raise ValueError(
            f"version = {checks.said(version)}: this library reads version {VERSION}; use the library that "
            "wrote it to plan from it again"
        )
    if set(found) != {"version", "kind", "facts", "groups", "sha256"}:
        raise ValueError(f"{KEY.decode()}: must have kind, facts, groups and sha256")
    if found["sha256"] != _seal(found["kind"], found["facts"], found["groups"]):
        raise ValueError("facts and groups are not those that were written: their hash differs")
    kind = checks.choice("kind", found["kind"], kinds)
    try:
        facts = ReleaseFacts.from_dict(found["facts"])
        groups = [
            _Group(family, step, tuple(shape), digest) for family, step, shape, digest in found["groups"]
        ]
        sizes = [group.size for group in groups]
    except (TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"{KEY.decode()}: {error}") from None
    if not all(isinstance(size, int) for size in sizes):
        raise ValueError("groups: shapes must be integers")
    return kind, facts, groups
