"""Interfaces of the optional parts of the kernel, for type checkers only.

Each protocol lists the functions of one module that the kernel calls. :mod:`discreet.wiring` imports the
modules, and a type checker compares each module with its protocol.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from discreet.core.count_mechanism import CountMechanism
    from discreet.core.count_query import CountQuery
    from discreet.core.events import Coordinate, MechanismRecord
    from discreet.core.guarantee import Guarantee
    from discreet.core.lifecycle import Saveable
    from discreet.core.protocols import NoiseDistribution, Record
    from discreet.core.query import SumQuery
    from discreet.core.releases import Schedule
    from discreet.core.rng import Key, RunKeys
    from discreet.core.trajectories import Trajectory

    Floats = NDArray[np.float64]
    Shift = tuple[str, float, int]  # cells of one family that have the same change
    Laws = dict[str, NoiseDistribution]
    Ways = tuple[tuple[Coordinate, ...], ...]

__all__ = [
    "Accountant", "Calibration", "Declared", "Exceedance", "MechanismNames", "Parts", "PlainValues",
    "QueryChecks", "RecordClass", "RecordKind", "ReleaseDistributions", "Saving", "SeededNoise", "Sentences",
    "Shown", "UserSums",
]  # fmt: skip


class Sentences(Protocol):
    """Functions that write guarantees and records of noise as text."""

    def unit(self, episodes: int, /) -> str: ...
    def neighbours(self, episodes: int, trust: str, /) -> str: ...
    def composition(self, claim: Guarantee, /) -> tuple[str, ...]: ...
    def statement(self, claim: Guarantee, /) -> str: ...
    def of_noise(self, record: MechanismRecord, /) -> str: ...
    def noise_line(self, record: MechanismRecord, /) -> str: ...


class MechanismNames(Protocol):
    """Functions that return names of mechanisms."""

    def name_of(self, mechanism: CountMechanism, /) -> str: ...


class PlainValues(Protocol):
    """Functions that convert guarantees and records to plain values for files, and back."""

    def of_guarantee(self, guarantee: Guarantee, /) -> dict[str, Any]: ...
    def guarantee_fields(self, table: Any, nested: Callable[[Any], Guarantee], /) -> dict[str, Any]: ...
    def check_sentences(self, found: Guarantee, table: Mapping[str, Any], /) -> None: ...
    def of_noise(self, record: MechanismRecord, /) -> dict[str, Any]: ...
    def noise_fields(self, table: Mapping[str, Any], /) -> dict[str, Any]: ...


class Accountant(Protocol):
    """Functions that compute privacy losses numerically."""

    def worst_epsilon(self, ways: Ways, delta: float, /) -> float: ...


class Calibration(Protocol):
    """Functions that list the ways to replace a user, as coordinates for numerical privacy losses."""

    def check_listed(self, record: MechanismRecord, /) -> None: ...
    def shift_patterns(self, query: SumQuery, levels: int, /) -> tuple[tuple[Shift, ...], ...] | None: ...
    def named(
        self, query: SumQuery, scales: Floats, grid: int | None, /
    ) -> tuple[tuple[str, float, int], ...]: ...
    def exchanges(
        self,
        patterns: Sequence[tuple[Shift, ...]],
        noise: str,
        scales: Sequence[tuple[str, float, int]],
        /,
    ) -> Ways: ...


class Declared(Protocol):
    """Functions for losses that depend on declarations in plug-ins."""

    def check(self, mechanism: CountMechanism, /) -> None: ...
    def record_of(self, mechanism: CountMechanism, words: str, /) -> Record: ...


class Exceedance(Protocol):
    """Functions that bound the probability that a privacy loss exceeds epsilon."""

    def exceeds(self, guarantee: Guarantee, /) -> Mapping[str, float] | None: ...


class ReleaseDistributions(Protocol):
    """Noise distributions of every release of one mechanism."""

    def at(self, n: int) -> Laws: ...
    def sums(self, n: int, senders: int, number: int, squares: Floats | None = None) -> Laws: ...
    def measurement(
        self, n: int, senders: int, share: float | None = None, cut: float | None = None
    ) -> Laws: ...
    def measurements(self) -> list[tuple[int, Laws]]: ...
    def steps(self) -> list[tuple[int, Laws]]: ...


class SeededNoise(Protocol):
    """Keys and noise of seeded runs, for simulation only."""

    def keys_of(self, seed: int, run: int, batch: int | None, /) -> RunKeys: ...
    def cell_noise(
        self, mechanism: CountMechanism, key: Key, i: int, j: int, factor: float, scales: Floats, /
    ) -> Floats: ...


class UserSums(Protocol):
    """Second implementation of the sums that one user adds, for audits."""

    def summand(
        self, query: CountQuery, trajectory: Trajectory, group: int, cut: float | None, /
    ) -> Mapping[str, Floats]: ...


class QueryChecks(Protocol):
    """Functions that check batches with different queries."""

    def check_queries(self, schedule: Schedule, /) -> None: ...


class Saving(Protocol):
    """Functions that write and read the files of sessions."""

    def write(self, session: Saveable, path: str | os.PathLike[str], /) -> None: ...


class Shown(Protocol):
    """Functions that return a short text for a value."""

    def text(self, thing: Any, /) -> str: ...
    def of_session(self, session: Any, closed: bool, /) -> str: ...


class RecordClass(Protocol):
    """Class of privacy records that can be built from plain values."""

    def from_dict(self, table: Mapping[str, Any], /) -> Record: ...


RecordKind = tuple[str, str, Callable[[], RecordClass]]
"""Kind of records: module and name of its class, and a function that imports the class."""


class Parts(Protocol):
    """All optional parts of the kernel. Each attribute imports its module and returns it.

    ``records`` : classes of records by their names in files.
    """

    @property
    def sentences(self) -> Sentences: ...
    @property
    def mechanism_names(self) -> MechanismNames: ...
    @property
    def plain(self) -> PlainValues: ...
    @property
    def accountant(self) -> Accountant: ...
    @property
    def calibration(self) -> Calibration: ...
    @property
    def declared(self) -> Declared: ...
    @property
    def exceedance(self) -> Exceedance: ...
    def count_laws(self, mechanism: CountMechanism, /) -> ReleaseDistributions: ...
    @property
    def seeded(self) -> SeededNoise: ...
    @property
    def user_sums(self) -> UserSums: ...
    @property
    def query_checks(self) -> QueryChecks: ...
    @property
    def saving(self) -> Saving: ...
    @property
    def shown(self) -> Shown: ...
    @property
    def records(self) -> Mapping[str, RecordKind]: ...
