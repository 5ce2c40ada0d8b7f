r"""The release as a file: noisy sums, their noise laws and the guarantee, read back step by step.

``release.parquet`` is the product of learning from people's data: everything that is computed from it is
post-processing and costs no privacy. It is an ordinary Parquet file (``pandas.read_parquet`` reads it), with
one row a cell and one row group a table of a step:

==================  ==========================================================================
column              meaning
==================  ==========================================================================
family              the name of the table: ``visits``, ``transition_counts``, ..
step                h, from 0
state, action,      of a release of counts: the cell; admissible pairs only, in the order of state, then
next_state          action, then next state; next_state is null where the table has none
i, j                of any other release: the place in the table; null where it has fewer dimensions
value               float64
==================  ==========================================================================

The schema's metadata hold, under ``discreet.release``, one JSON object: ``version``, ``facts`` (below),
``groups`` (family, step, shape and SHA-256 of the values of each row group, in order) and the SHA-256 of
``facts`` and ``groups`` together. Pages carry Parquet's own checksums as well. Both find accidents, and edits
that were not meant to deceive; they are no signature: who can write the file can forge it. The
statement holds a hash of the whole file for that.

A file is written one step at a time, aside, and takes its name when it is complete and on the disk.

Encoding. Noise on a grid leaves few distinct values, so ``value`` is dictionary encoded there (about log2 of
their number in bits, then zstd); continuous noise is incompressible but for its exponents (byte stream split).
The index columns cost next to nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

import discreet
from discreet.mdp.layout import Layout
from discreet.numerics import checks
from discreet.privacy.counts import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.privacy.guarantee import Guarantee
from discreet.privacy.noise import laws as noise_laws
from discreet.privacy.protocol import NoiseLaw, StepSums

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

KEY = b"discreet.release"
VERSION = 1

__all__ = [
    "ReleaseFacts", "StoredRelease", "StoredTables", "aside", "read_release", "read_tables", "write_release",
    "write_tables",
]  # fmt: skip

_LAWS: dict[str, type] = {
    law.__name__: law
    for law in (
        noise_laws.NoNoise, noise_laws.LaplaceSumLaw, noise_laws.GaussianSumLaw,
        noise_laws.SubGaussianSumLaw, noise_laws.WeightedLaplaceLaw,
    )
}  # fmt: skip


@dataclass(frozen=True, eq=False, kw_only=True)
class ReleaseFacts:
    """All that is public about a release beside its values.

    layout : Layout
        S, A, H and the mask of admissible actions.
    users : int
        How many people are in the sums, at least 1.
    guarantee : Guarantee
    laws : mapping of family to NoiseLaw
        Of a release of counts: exactly its families; bounds are over the cells of all steps. Other
        releases may say what their noise is in ``query``.
    records : tuple of JSON objects
        What each mechanism did, as the caller writes it down.
    episodes : int
        m, how many episodes one user counts for at most.
    dataset, schema, known_rewards : str, optional
        The population's name; hashes of the schema and of the known rewards.
    algorithm, options : str, optional; JSON object
        The learner and those of its options that made the query: others may be changed freely.
    query : JSON object
        What was asked, where families and laws do not say it.
    library : str
        The version that wrote the file.
    """

    layout: Layout
    users: int
    guarantee: Guarantee
    laws: Mapping[str, NoiseLaw] = field(default_factory=dict)
    records: tuple[Mapping[str, Any], ...] = ()
    episodes: int = 1
    dataset: str | None = None
    schema: str | None = None
    known_rewards: str | None = None
    algorithm: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    library: str = discreet.__version__

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
        for name in ("options", "query", "laws"):
            if not isinstance(getattr(self, name), Mapping):
                raise ValueError(f"{name} = {checks.said(getattr(self, name))}: must be a mapping")
        put(self, "records", tuple(self.records))
        for name, law in self.laws.items():
            if _LAWS.get(type(law).__name__) is not type(law):
                raise ValueError(f"laws[{name!r}] is a {type(law).__name__}: must be one of {', '.join(_LAWS)}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
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
            "library": self.library,
        }

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> ReleaseFacts:
        """The facts that :meth:`to_dict` wrote. Raises ``ValueError`` on anything else."""
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


def write_release(path: str | Path, sums: Iterable[StepSums], facts: ReleaseFacts) -> None:
    """Write a release of counts, step by step, in the memory of one step.

    Parameters
    ----------
    path : str or Path
        Gets the file when it is complete; an older one is replaced. If anything fails nothing appears.
    sums : iterable of StepSums
        Of the steps 0, 1, .., H - 1, in this order.
    facts : ReleaseFacts
        ``laws`` names the families: transitions, and visits and centred rewards where they are released.

    Raises
    ------
    ValueError
        If a step is missing or out of order, a table does not fit the layout or is not finite, or the
        families of a step are not those of ``facts.laws``.
    """
    raise AssertionError


class StoredTables:
    """Named tables of steps in a file.

    path : Path; kind : "counts" or "linear"; facts : ReleaseFacts.
    """


class StoredRelease(StoredTables):
    """A release of counts in a file: a :class:`~discreet.privacy.protocol.StepwiseRelease`."""


def write_tables(
    path: str | Path, tables: Iterable[tuple[str, int, Floats]], facts: ReleaseFacts, kind: str = "linear"
) -> None:
    """Write any named tables of steps, in the memory of one table: (name, step, array), in any order.

    Arrays have 0, 1 or 2 dimensions and are finite; a pair of name and step occurs once.
    """
    raise AssertionError


def read_tables(path: str | Path) -> StoredTables:
    """Open a file that :func:`write_tables` wrote."""
    raise AssertionError


def read_release(path: str | Path) -> StoredRelease:
    """Open a release of counts."""
    raise AssertionError
