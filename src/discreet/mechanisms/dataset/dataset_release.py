"""One-shot release of counts in the trusted core. Data come in chunks, and noise is added step by step.

``privatizer.stored(query, randomness)`` starts the session before the number of users is known, because the
noise of one sum over all users does not depend on that number. The methods ``submit_many`` and ``absent`` can
be called any number of times. Then ``release`` is called once.

Guarantee. Each user is in one noisy sum with at most m = ``query.episodes`` episodes. The session enforces
this limit. Users are submitted in the order of their numbers, so the episodes of a user are adjacent.
Therefore the session stores only the last user's number and the number of that user's episodes. The
sensitivity to a replaced user is derived in :class:`~discreet.core.count_query.CountQuery`. The scales are
those of ``Central.start(query, Schedule.one_shot(n))`` for any n, and the guarantee is the same. Noise is
independent between cells and is drawn after all records were added. The steps are parts of one vector and
form one release, even if only some of them are read.

The code ensures the guarantee as follows:

- All records of a call are copied, and the copies are checked before any record is added. Users are counted
  before their records are added, so an interrupt can lose records but never adds uncounted ones.
- The session deletes its tables before the release is created, so there is at most one release.
- A step is marked as used before its noise is drawn. If an interrupt occurs inside a step, this step is lost
  and the release ends. The exact counts of a step are deleted before the noisy counts are returned.
- Session and release cannot be copied, pickled or used in another process (:mod:`discreet.core.lifecycle`).

Memory. A transition cell takes four bytes (exact for fewer than 2^32 episodes), and a reward cell takes
eight. There is one table for each step. For S = 716, A = 25 and H = 20 without a mask, the 2.6e8 cells take
1.0 GB of address space. Physical memory is used only for the parts with visited cells. A release processes
one step at a time. For this step it needs memory for the noisy sums (eight bytes for each cell) and one block
of noise for each processor core.

Rewards. With exact noise (:class:`~discreet.core.rng.Secure`), a reward that is not a multiple of 1 /
reward_grid is rounded randomly and without bias to such a multiple. With other noise, it is rounded to the
nearest multiple of 2^-20 and summed exactly. The sums then do not depend on the order of users or on the
chunks. Both kinds of rounding keep rewards in [0, 1], so no sensitivity increases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from discreet.accounting.noise_distributions import distributions as laws
from discreet.accounting.randomized_response_event import ReportRecord
from discreet.core import checks
from discreet.core.count_mechanism import CountMechanism
from discreet.core.count_query import CountQuery
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.core.guarantee import Guarantee, MechanismRecord
from discreet.core.layout import Layout
from discreet.core.lifecycle import Guarded, Saveable
from discreet.core.protocols import NoiseDistribution
from discreet.core.releases import Floats
from discreet.core.rng import Key, Randomness, SecureRng, Seeded, checked_on_grid
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectories
from discreet.mechanisms import seeded_noise_kernels as seeded_kernels
from discreet.mechanisms.dataset.partial_aggregate import PartialAggregate
from discreet.mechanisms.interfaces import StepSums
from discreet.mechanisms.saved_state.state_file import resume, state_of
from discreet.utils.system import processors

_BLOCK = 2**18  # noise values in one call of a sampler; several calls run in threads


def check_query(query: CountQuery) -> None:
    """Raise ``ValueError`` unless the query can be released one step at a time."""
    pooled = query.stationary and not query.first
    if pooled or query.pooled != "none" or query.groups or query.step is not None:
        raise ValueError(
            "query: a one-shot release is read step by step, or as one table of first visits: must have "
            "stationary = first, pooled = 'none', groups = 0 and step = None"
        )
    if not (query.center_rewards or query.known_rewards):
        raise ValueError("query: rewards must be centred at 1/2 (center_rewards = True) or known")
    if query.layout.rows * query.layout.states >= 2**31:
        raise ValueError(f"query: {query.layout.rows * query.layout.states:.3g} cells a step, must be < 2^31")


class OneShotSession(Saveable):
    """Session that reads offline data in chunks and makes one release. ``privatizer.stored`` creates it.

    Raises
    ------
    RuntimeError
        If the session is used after the release, after ``close``, or in another process.
    """

    _kind = "stored people"
    _BOUND, _STATE = ("_mechanism", "_randomness"), ("_counted",)
    _DERIVED = (*Saveable._DERIVED, "_query", "_key", "_tally")

    def __init__(self, mechanism: CountMechanism, randomness: Randomness) -> None:
        if type(mechanism) is not CountMechanism or not mechanism.stored:
            raise ValueError(f"mechanism = {mechanism!r}: must be a CountMechanism of offline data")
        # a new object that is checked again and shares no array with the caller's object
        mechanism = replace(mechanism)
        mechanism.check_source(randomness)
        query = mechanism.counts
        check_query(query)
        super().__init__()
        self._mechanism, self._randomness = mechanism, randomness
        self._query = query
        self._key = randomness.keys.noise.copy() if isinstance(randomness, Seeded) else None
        self._tally = PartialAggregate(query, mechanism.reward_grid)

    def _drop(self) -> None:
        super()._drop()
        self._tally = self._tally.emptied()

    @property
    def _counted(self) -> dict[str, Any]:
        """State of the partial aggregate, to be saved in a file."""
        return state_of(self._tally)

    @_counted.setter
    def _counted(self, state: Mapping[str, Any]) -> None:
        resume(self._tally, state)
        self._tally.check()

    # -------------------------------------------------------------------------- public facts
    @property
    def guarantee(self) -> Guarantee:
        """Privacy guarantee, known before any data are read. It never changes."""
        return self._mechanism.guarantee

    @property
    def records(self) -> tuple[MechanismRecord | ReportRecord, ...]:
        """Privacy records from which the guarantee is computed. Empty without privacy."""
        return cast(tuple[MechanismRecord, ...], self._mechanism.records)

    @property
    def query(self) -> CountQuery:
        """Copy of the query that defines the sums."""
        return self._query.copy()

    @property
    def mechanism(self) -> CountMechanism:
        """Copy of the mechanism, with its guarantee."""
        return replace(self._mechanism)

    @property
    def laws(self) -> Mapping[str, NoiseDistribution]:
        """Noise distribution of every family, known before data are read. The bounds include the cells of all
        steps.
        """
        return _laws(self._mechanism)

    @property
    def users(self) -> int:
        """Number of users so far. It is public."""
        return self._tally.people

    # -------------------------------------------------------------------------------- users
    def submit_many(self, trajectories: Trajectories, user: ArrayLike) -> None:
        """Add many episodes. All records are checked before any is added.

        Parameters
        ----------
        trajectories : Trajectories
            n episodes: ``states (n, H + 1)``, ``actions (n, H)``, ``rewards (n, H)`` in [0, 1].
        user : (n,) int
            Number of the user of each episode. The numbers never decrease, also between calls, so that the
            episodes of a user are adjacent.

        Raises
        ------
        ValueError
            If a record is invalid, a user number is below the previous one, a user has more than
            ``query.episodes`` episodes, or there are more episodes than can be summed exactly (the limit is
            at least 2^31). Nothing is added. The error message is private data.
        """
        with self._call():
            self._check_open()
            self._tally.add(trajectories, user)

    def submit_tally(self, tally: PartialAggregate) -> None:
        """Add all users of a partial aggregate. The sums are the same as if these users were added directly.

        tally : partial aggregate of an equal query, with the reward grid of this session or a coarser grid.

        Raises ``ValueError``, and adds no user, if query or grid do not fit, or if a user was already added.
        Users that are added later must have higher numbers than all users in the session and in the partial
        aggregate (:meth:`PartialAggregate.merge
        <discreet.mechanisms.dataset.partial_aggregate.PartialAggregate.merge>`).
        """
        with self._call():
            self._check_open()
            self._tally.merge(tally)

    def absent(self, users: int = 1) -> None:
        """Count ``users`` users of the data set who have no episode. These users contribute zero.

        Raises ``ValueError`` unless ``users`` is an integer >= 1.
        """
        with self._call():
            self._check_open()
            self._tally.absent(checks.integer("users", users, 1, 2**62 - self.users))

    # ------------------------------------------------------------------------------- release
    def release(self) -> OneShotRelease:
        """End the session and return its sums. The noise of a step is drawn when the step is read.

        Raises ``RuntimeError`` if no user was added.
        """
        with self._call():
            self._check_open()
            if not self.users:
                raise RuntimeError("release: no user has been added")
            tally = self._tally
            if self._mechanism.noisy and self._key is None:
                # All steps are checked before the first step is released.
                tally.check_on_grid(self._mechanism.reward_grid or 1)
            self._drop()  # called before the release is created, so that two releases cannot exist
            return OneShotRelease(_Facts(self._mechanism, self._query.copy(), tally.people), self._key, tally)


@dataclass(frozen=True, eq=False)
class _Facts:
    """Public facts about a release."""

    mechanism: CountMechanism
    shown: CountQuery  # copy for callers, so that they cannot change the noise
    users: int


class OneShotRelease(Guarded):
    """Noisy sums of all users, as an iterator over the steps 0 .. H - 1. Each step's noise is drawn once.

    If the query counts first visits, there is one table for all steps together.

    ``for sums in release`` yields :class:`~discreet.mechanisms.interfaces.StepSums` (read-only arrays). The
    iterator does not store the sums after they are yielded. The caller can store them, or call :meth:`keep`
    to get all steps. An interrupt inside a step ends the release. Every later call then raises
    ``RuntimeError``.
    """

    _what = "release"

    def __init__(self, facts: _Facts, key: Key | None, tally: PartialAggregate) -> None:
        super().__init__()
        self._facts, self._key, self._tally = facts, key, tally
        self._steps = facts.mechanism.counts.slots
        self._next = 0  # index of the step that is drawn next
        self._drawing = False

    def _drop(self) -> None:
        super()._drop()
        self._tally = self._tally.emptied()

    @property
    def query(self) -> CountQuery:
        """Copy of the query that defines the sums."""
        return self._facts.shown

    @property
    def layout(self) -> Layout:
        """Numbers of states and actions, horizon, and mask of admissible actions."""
        return self._facts.shown.layout

    @property
    def users(self) -> int:
        """Number of users in the sums. It is public."""
        return self._facts.users

    @property
    def guarantee(self) -> Guarantee:
        """Privacy guarantee for all steps together."""
        return self._facts.mechanism.guarantee

    @property
    def records(self) -> tuple[MechanismRecord | ReportRecord, ...]:
        """Privacy records from which the guarantee is computed. Empty without privacy."""
        return cast(tuple[MechanismRecord, ...], self._facts.mechanism.records)

    @property
    def laws(self) -> Mapping[str, NoiseDistribution]:
        """Noise distribution of every family. The bounds include the cells of all steps."""
        return _laws(self._facts.mechanism)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StepSums:
        """Return the noisy sums of the next step. Raises ``StopIteration`` after the last one."""
        if self._next == self._steps and not self._drawing:
            raise StopIteration
        with self._call():
            self._check_open()
            if self._drawing:
                self._drop()
                raise RuntimeError(f"step {self._next - 1} was interrupted: its noise is spent, and lost")
            if self._next == self._steps:
                raise StopIteration
            step, self._drawing = self._next, True
            self._next += 1  # the step is marked as used before its noise is drawn
            found = self._noisy(step)
            self._drawing = False
            if self._next == self._steps:
                self._drop()
            return found

    def _noisy(self, step: int) -> StepSums:
        layout = self._facts.mechanism.query.layout
        counts, sums = self._tally.pop(step)
        exact: dict[str, Floats] = {}
        for name in self._facts.mechanism.query.row_families:
            if name == TRANSITIONS:
                exact[name] = counts.astype(np.float64)
            elif name == VISITS:
                exact[name] = counts.reshape(layout.rows, -1).sum(axis=1, dtype=np.float64)
            else:
                exact[name] = sums
        del counts
        self._add_noise(step, exact)
        for table in exact.values():
            table.flags.writeable = False
        return StepSums(
            step,
            exact[TRANSITIONS].reshape(layout.rows, layout.states),
            exact.get(VISITS),
            exact.get(CENTERED_REWARDS),
        )

    def _add_noise(self, step: int, tables: Mapping[str, Floats]) -> None:
        """Add independent noise to every cell in place. Seeded noise uses one random stream for each step."""
        mechanism = self._facts.mechanism
        law = mechanism.noise
        if law is None:
            return
        scales = mechanism.scales
        if self._key is not None:
            sizes = [table.size for table in tables.values()]
            offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
            noise = np.empty(int(offsets[-1]))
            seeded_kernels.fill_noise(
                mechanism.family, self._key, 0, step, 1.0, offsets, np.array(scales), noise
            )
            for table, begin in zip(tables.values(), offsets.tolist()[:-1], strict=True):
                table += noise[begin : begin + table.size]
            return
        coins = SecureRng()

        def add(part: Floats, scale: float, grid: int | None) -> None:
            part += law.draw(coins, scale, part.size, grid)

        parts = [
            (table[begin : begin + _BLOCK], scale, mechanism.grid(name))
            for (name, table), scale in zip(tables.items(), scales.tolist(), strict=True)
            for begin in range(0, table.size, _BLOCK)
        ]
        if max(part.size for part, *_ in parts) < _BLOCK:
            for part in parts:
                add(*part)
        else:  # the samplers run in parallel without Python's lock and draw separate random numbers
            with ThreadPoolExecutor(min(len(parts), processors())) as pool:
                for _ in pool.map(add, *zip(*parts, strict=True)):
                    pass
        for name, table in tables.items():
            checked_on_grid(table, mechanism.grid(name) or 1)

    def keep(self) -> KeptRelease:
        """Draw the noise of all steps, and return a release in memory whose steps can be read in any order.

        Raises ``RuntimeError`` if a step was already read.
        """
        if self._next:
            raise RuntimeError(f"keep: {self._next} steps have been read already and are not here any more")
        facts = self.laws, self.guarantee, self.records
        return KeptRelease(self.query, self.users, *facts, tuple(self))


@dataclass(frozen=True, eq=False)
class KeptRelease:
    """One-shot release in memory: a :class:`~discreet.mechanisms.interfaces.StepwiseRelease`."""

    __repr__ = brief

    query: CountQuery
    users: int
    laws: Mapping[str, NoiseDistribution]
    guarantee: Guarantee
    records: tuple[MechanismRecord | ReportRecord, ...]
    steps: tuple[StepSums, ...]

    @property
    def layout(self) -> Layout:
        """Numbers of states and actions, horizon, and mask of admissible actions."""
        return self.query.layout

    def step(self, h: int) -> StepSums:
        """Return the sums of step ``h`` in [0, H). Raises ``ValueError`` for other steps."""
        return self.steps[checks.integer("h", h, 0, len(self.steps) - 1)]

    def __iter__(self) -> Iterator[StepSums]:
        return iter(self.steps)


def _laws(mechanism: CountMechanism) -> dict[str, NoiseDistribution]:
    """Return the noise distribution of every family. The bounds of a distribution hold simultaneously for all
    cells of the family.
    """
    query = mechanism.counts
    if mechanism.noise is None:
        return {name: laws.NoNoise() for name in query.row_families}
    law = laws.LaplaceSumLaw if mechanism.norm == "l1" else laws.GaussianSumLaw
    found: dict[str, NoiseDistribution] = {}
    rows = query.slots * query.layout.rows
    for (name, shape), scale in zip(query.row_families.items(), mechanism.scales.tolist(), strict=True):
        grid = mechanism.grid(name)
        found[name] = law(
            scale=scale,
            terms=1.0,
            terms_bound=1,
            cells=int(np.prod(shape)),
            rows=rows,
            row_size=int(np.prod(shape)) // rows,
            share=1.0,
            unit=None if grid is None else 1.0 / grid,
        )
    return found
