"""The trusted core's one-shot release of counts: stored people come in chunks, then noise, step by step.

``privatizer.stored(query, randomness)`` starts the session before anybody knows how many people there are:
the noise of one sum over all people does not depend on their number. The order of calls is submit_many and
absent, as often as there are chunks, then release, once.

Guarantee. Each person is in one noisy sum with at most m = ``query.episodes`` episodes, which the session
enforces: people come in the order of their numbers, so that a person's episodes lie together, and the number
of the last person and of her episodes is all that must be kept. What an exchanged person moves is derived
at :class:`~discreet.core.count_query.CountQuery`; the scales are those of ``Central.start(query,
Schedule.one_shot(n))``, whatever n, and the guarantee is the same. Noise is independent from cell to cell
and drawn after all records are in. The steps are parts of one vector: released one after the other, or never,
they are one release.

What carries the guarantee in code:

- every record of a call is checked on private copies before any is added; users are counted before their
  records are added, so that an interrupt loses records and never adds uncounted ones;
- the release takes the tables away from the session before it exists: there is one release, or none;
- a step is spent before its noise is drawn: after an interrupt in the middle of a step that step is lost and
  the release over. Its exact counts are dropped before the noisy ones are handed out;
- session and release cannot be copied, pickled or used in another process
  (:mod:`discreet.core.lifecycle`).

Memory: four bytes a transition cell (exact for fewer than 2^32 episodes), eight a reward cell, one table a
step; S = 716, A = 25, H = 20 without a mask, 2.6e8 cells, is 1.0 GB, touched only where people were. A
release works on one step at a time: its noisy sums, eight bytes a cell, and a block of noise for each core.

Rewards. With exact noise (:class:`~discreet.core.rng.Secure`) a reward that is no multiple of
1 / reward_grid is rounded at random to one, without bias. Otherwise it is rounded to the nearest multiple of
2^-20 and summed exactly, so that sums depend neither on the order of people nor on chunks. Both keep rewards
in [0, 1], so that no sensitivity grows.
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
from discreet.core import count_kernels as kernels
from discreet.core.count_mechanism import CountMechanism
from discreet.core.count_query import CENTERED_REWARDS, TRANSITIONS, VISITS, CountQuery
from discreet.core.guarantee import Guarantee, MechanismRecord
from discreet.core.layout import Layout
from discreet.core.lifecycle import Guarded, Saveable
from discreet.core.noise import seeded_noise_kernels as seeded_kernels
from discreet.core.protocols import NoiseDistribution
from discreet.core.releases import Floats
from discreet.core.rng import Key, Randomness, SecureRng, Seeded, checked_on_grid
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectories
from discreet.mechanisms.dataset.partial_aggregate import PartialAggregate
from discreet.mechanisms.interfaces import StepSums
from discreet.mechanisms.saved_state.state_file import resume, state_of
from discreet.utils.system import processors

__all__ = ["KeptRelease", "OneShotRelease", "OneShotSession", "check_query"]

_BLOCK = 2**18  # noises drawn at once; where there are more, in threads


def check_query(query: CountQuery) -> None:
    """Raise ``ValueError`` unless the query can be released step by step."""
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
    """Stored people, in chunks, and one release of their sums. Made by ``privatizer.stored``.

    Raises
    ------
    RuntimeError
        On a call after the release or after ``close``, and in another process.
    """

    _kind = "stored people"
    _BOUND, _STATE = ("_mechanism", "_randomness"), ("_counted",)
    _DERIVED = (*Saveable._DERIVED, "_query", "_key", "_tally")

    def __init__(self, mechanism: CountMechanism, randomness: Randomness) -> None:
        if type(mechanism) is not CountMechanism or not mechanism.stored:
            raise ValueError(f"mechanism = {mechanism!r}: must be a CountMechanism of stored people")
        mechanism = replace(mechanism)  # checked anew, and shares no array with anybody
        mechanism.check_source(randomness)
        query = mechanism.query
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
        """What a saved file holds of people."""
        return state_of(self._tally)

    @_counted.setter
    def _counted(self, state: Mapping[str, Any]) -> None:
        resume(self._tally, state)
        self._tally.check()

    # -------------------------------------------------------------------------- public facts
    @property
    def guarantee(self) -> Guarantee:
        """Known before any data; never changes."""
        return self._mechanism.guarantee

    @property
    def records(self) -> tuple[MechanismRecord | ReportRecord, ...]:
        """What the guarantee is computed from; empty without privacy."""
        return cast(tuple[MechanismRecord, ...], self._mechanism.records)

    @property
    def query(self) -> CountQuery:
        """What is summed (a copy)."""
        return self._query.copy()

    @property
    def mechanism(self) -> CountMechanism:
        """What it does, and what that costs (a copy)."""
        return replace(self._mechanism)

    @property
    def laws(self) -> Mapping[str, NoiseDistribution]:
        """The noise law of every family, known before data; bounds are over the cells of all steps."""
        return _laws(self._mechanism)

    @property
    def users(self) -> int:
        """People so far (public)."""
        return self._tally.people

    # ------------------------------------------------------------------------------- people
    def submit_many(self, trajectories: Trajectories, user: ArrayLike) -> None:
        """Add many episodes: every record is checked before any is added.

        Parameters
        ----------
        trajectories : Trajectories
            n episodes: ``states (n, H + 1)``, ``actions (n, H)``, ``rewards (n, H)`` in [0, 1].
        user : (n,) int
            Whose episode it is; never falls, also from call to call: a person's episodes lie together.

        Raises
        ------
        ValueError
            And adds nothing: on a broken record, a user below the one before, more than ``query.episodes``
            episodes of a user, or more than 2^31 episodes in all. The message is private.
        """
        with self._call():
            self._check_open()
            self._tally.add(trajectories, user)

    def submit_tally(self, tally: PartialAggregate) -> None:
        """Add everybody of a tally, who was counted elsewhere: the same sums as if they had come here.

        Raises ``ValueError``, and adds nobody, unless it is of an equal query and of the grid of this
        session's rewards or a coarser one, and holds nobody who is here already. Users that come later have
        numbers above those of both (:meth:`PartialAggregate.merge
        <discreet.mechanisms.dataset.partial_aggregate.PartialAggregate.merge>`).
        """
        with self._call():
            self._check_open()
            self._tally.merge(tally)

    def absent(self, users: int = 1) -> None:
        """Count people who are in the data set without an episode: the null contribution."""
        with self._call():
            self._check_open()
            self._tally.absent(checks.integer("users", users, 1, 2**62 - self.users))

    # ------------------------------------------------------------------------------- release
    def release(self) -> OneShotRelease:
        """The end of the session: its sums, which get their noise as they are read, step by step.

        Raises ``RuntimeError`` if nobody came.
        """
        with self._call():
            self._check_open()
            if not self.users:
                raise RuntimeError("release: nobody has come")
            tally = self._tally
            if self._mechanism.noisy and self._key is None:
                tally.check_on_grid(self._mechanism.reward_grid or 1)  # all steps, before one is seen
            self._drop()  # before the release exists: there are never two
            return OneShotRelease(_Facts(self._mechanism, self._query.copy(), tally.people), self._key, tally)


@dataclass(frozen=True, eq=False)
class _Facts:
    """What is public about a release."""

    mechanism: CountMechanism
    shown: CountQuery  # a copy: what others do to its arrays moves no noise
    users: int


class OneShotRelease(Guarded):
    """The noisy sums of all people: an iterator over the steps 0 .. H - 1, each of which is drawn once.

    Of first visits there is one table, of all steps together.

    ``for sums in release`` yields :class:`~discreet.mechanisms.interfaces.StepSums` (read-only arrays). What
    was yielded is not kept here: :meth:`keep`, or the reader, keeps it. After an interrupt inside a step the
    release is over: ``RuntimeError`` on every later call.
    """

    _what = "release"

    def __init__(self, facts: _Facts, key: Key | None, tally: PartialAggregate) -> None:
        super().__init__()
        self._facts, self._key, self._tally = facts, key, tally
        self._steps = facts.mechanism.query.slots
        self._next = 0  # the step that is drawn next
        self._drawing = False

    def _drop(self) -> None:
        super()._drop()
        self._tally = self._tally.emptied()

    @property
    def query(self) -> CountQuery:
        """What was summed (a copy)."""
        return self._facts.shown

    @property
    def layout(self) -> Layout:
        """S, A, H and the mask."""
        return self._facts.shown.layout

    @property
    def users(self) -> int:
        """How many people the sums are of (public)."""
        return self._facts.users

    @property
    def guarantee(self) -> Guarantee:
        """Of all steps together."""
        return self._facts.mechanism.guarantee

    @property
    def records(self) -> tuple[MechanismRecord | ReportRecord, ...]:
        """What the guarantee is computed from; empty without privacy."""
        return cast(tuple[MechanismRecord, ...], self._facts.mechanism.records)

    @property
    def laws(self) -> Mapping[str, NoiseDistribution]:
        """The noise law of every family; bounds are over the cells of all steps."""
        return _laws(self._facts.mechanism)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StepSums:
        """The noisy sums of the next step. Raises ``StopIteration`` after the last one."""
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
            self._next += 1  # spent before it is drawn
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
        """Independent noise into every cell, in place; seeded: from the step's own stream of the run."""
        mechanism = self._facts.mechanism
        if mechanism.family == kernels.NO_NOISE:
            return
        scales = mechanism.noise_scales
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
        draw = coins.laplace if mechanism.family == kernels.LAPLACE else coins.normal

        def add(part: Floats, scale: float, grid: int | None) -> None:
            part += draw(scale, part.size, grid)

        parts = [
            (table[begin : begin + _BLOCK], scale, mechanism.grid(name))
            for (name, table), scale in zip(tables.items(), scales.tolist(), strict=True)
            for begin in range(0, table.size, _BLOCK)
        ]
        if max(part.size for part, *_ in parts) < _BLOCK:
            for part in parts:
                add(*part)
        else:  # the samplers work outside of Python's lock, and each draw has coins of its own
            with ThreadPoolExecutor(min(len(parts), processors())) as pool:
                for _ in pool.map(add, *zip(*parts, strict=True)):
                    pass
        for name, table in tables.items():
            checked_on_grid(table, mechanism.grid(name) or 1)

    def keep(self) -> KeptRelease:
        """All steps in memory, to be read in any order. Raises ``RuntimeError`` if some are gone."""
        if self._next:
            raise RuntimeError(f"keep: {self._next} steps have been read already and are not here any more")
        facts = self.laws, self.guarantee, self.records
        return KeptRelease(self.query, self.users, *facts, tuple(self))


@dataclass(frozen=True, eq=False)
class KeptRelease:
    """A one-shot release in memory: a :class:`~discreet.mechanisms.interfaces.StepwiseRelease`."""

    __repr__ = brief

    query: CountQuery
    users: int
    laws: Mapping[str, NoiseDistribution]
    guarantee: Guarantee
    records: tuple[MechanismRecord | ReportRecord, ...]
    steps: tuple[StepSums, ...]

    @property
    def layout(self) -> Layout:
        """S, A, H and the mask."""
        return self.query.layout

    def step(self, h: int) -> StepSums:
        """The sums of step h in [0, H). Raises ``ValueError`` outside of it."""
        return self.steps[checks.integer("h", h, 0, len(self.steps) - 1)]

    def __iter__(self) -> Iterator[StepSums]:
        return iter(self.steps)


def _laws(mechanism: CountMechanism) -> dict[str, NoiseDistribution]:
    """One noise in every cell; bounds hold over all cells of a family."""
    query = mechanism.query
    if mechanism.family == kernels.NO_NOISE:
        return {name: laws.NoNoise() for name in query.row_families}
    law = laws.LaplaceSumLaw if mechanism.family == kernels.LAPLACE else laws.GaussianSumLaw
    found: dict[str, NoiseDistribution] = {}
    rows = query.slots * query.layout.rows
    for (name, shape), scale in zip(query.row_families.items(), mechanism.noise_scales.tolist(), strict=True):
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
