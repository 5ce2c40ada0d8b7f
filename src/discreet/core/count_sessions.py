"""Sessions of counts: the only code that sums users' records and draws noise.

A privatizer starts a session and fixes everything that determines the noise scale. The session enforces the
order of calls (:mod:`discreet.core.stream_session`), checks each record before it is added, and draws noise
for every cell of the public support. It cannot be copied, pickled, or continued in another process: a second
copy would draw the same noise again. Saving ends the session, and the file can be restored once
(:mod:`discreet.mechanisms.saved_state.state_file`). Declared values (query, schedule, scales, key) are stored
as copies that no other code can change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from discreet.core import checks
from discreet.core import lazy as parts
from discreet.core.correlated_noise.decaying_sum import FINE
from discreet.core.correlated_noise.factorization import Walk, prefix_noise
from discreet.core.count_mechanism import CountMechanism
from discreet.core.count_query import CountQuery
from discreet.core.raw_encoder import RawEncoder, add_record, family_begins, noise_vector, rounded
from discreet.core.releases import ON_DEVICE, Estimate, Floats, Measurement, Message, Plan
from discreet.core.rng import Key, Randomness, SecureRng, checked_on_grid
from discreet.core.stream_session import StreamSession, read_only
from discreet.core.trajectories import Trajectories, Trajectory, checked

if TYPE_CHECKING:
    from discreet.core.call_protocols import Encoder
    from discreet.core.protocols import NoiseDistribution

_MOST_UNITS = 2**51  # largest sum of a cell; with noise it must stay exact


class CountSession(StreamSession):
    """Sums of users' counts: common base of all streams of a :class:`~discreet.core.count_query.CountQuery`.

    Created by ``privatizer.start``; see :class:`~discreet.mechanisms.interfaces.Session` for the calls.

    Raises
    ------
    RuntimeError
        On calls in the wrong order, on calls after the session was closed, and on calls from another
        process than the one that started the session. Also if exact noise would not protect a sum
        (:func:`checked_on_grid`). Nothing is released in these cases.
    ValueError
        On an invalid record (nothing is added) and on more users than the schedule declares.
    """

    _streams: ClassVar[tuple[str, ...]]  # supported values of CountMechanism.stream
    _asks: ClassVar[str] = "plain"  # supported value of CountMechanism.asks
    _STATE = (*StreamSession._STATE, "_cells")
    _DERIVED = (*StreamSession._DERIVED, "_query", "_trust", "_laws", "_scales", "_begins")

    def __init__(self, mechanism: CountMechanism, randomness: Randomness) -> None:
        if type(mechanism) is not CountMechanism:  # a subclass could state another loss
            raise ValueError(f"mechanism = {mechanism!r}: must be a CountMechanism, and no subclass of it")
        if mechanism.stored:
            raise ValueError("mechanism.stored = True: stored people are for OneShotSession")
        if mechanism.stream not in self._streams or mechanism.asks != self._asks:
            raise ValueError(
                f"mechanism.strategy = {mechanism.strategy!r}, of {mechanism.asks} sums: has a session of "
                "its own, which discreet.mechanisms.open_session.session_of starts"
            )
        mechanism = replace(mechanism)  # checked again; shares no array with the caller
        mechanism.check_source(randomness)
        query = mechanism.query
        super().__init__(query.layout, mechanism.schedule, randomness, mechanism.guarantee, mechanism.leaf)
        self._trust = mechanism.trust
        self._mechanism = mechanism
        self._laws = mechanism.laws
        self._query = query
        self._randomness = randomness
        self._scales = np.array(mechanism.scales)
        self._begins = family_begins(query)
        self._cells = np.zeros(query.cells)

    # -------------------------------------------------------------------------- public facts
    @property
    def mechanism(self) -> CountMechanism:
        """Copy of the mechanism.

        The session's noise uses the scales of the original, which must not change.
        """
        return replace(self._mechanism)

    @property
    def query(self) -> CountQuery:
        """Copy of the query. Writing to the arrays of the copy changes no sum."""
        return self._query.copy()

    def _drop(self) -> None:
        super()._drop()
        self._cells = np.zeros(0)

    # ------------------------------------------------------------------------------- users
    def _admitted(self, plan: Plan, users: int) -> Plan:
        units = FINE if self._mechanism.fixed_point else self._mechanism.reward_grid or 1
        units *= self._query.layout.horizon
        if (self._users + users) * units > _MOST_UNITS:
            raise ValueError(
                f"plan.users = {users}: sums of more than {_MOST_UNITS // units} users in all are not "
                "exact in float64"
            )
        return self._plain(plan)

    def _plain(self, plan: Plan) -> Plan:
        """Return the plan with plain values in the fields that a session reads.

        Plain values cannot change between two reads. (An integer object of the caller could name another cell
        when used than when checked.)
        """
        self._check_no_group(plan)
        return replace(plan, group=None, return_share=None, forget=False, cut=None)

    @property
    def cut(self) -> float:
        """Clipping threshold C for users of the newest plan; 0 if the query has no clipped rewards.

        Infinite after the change to centred rewards.
        """
        return 0.0

    @property
    def _up_to(self) -> float:
        """Largest total of one user's rewards in the family of clipped rewards, if the query has one."""
        return 0.0

    def _encoder(self) -> Encoder:
        """Return the encoder for devices, which changes nothing if users trust the server.

        Local sessions override it.
        """
        return RawEncoder(self._plans)

    def _add(self, message: Message) -> None:
        record = rounded(self._record(message), SecureRng(), self._mechanism.reward_grid)
        self._count(1)
        self._put(record)

    def _put(self, record: Trajectory) -> None:
        """Add the checked record of a user who was counted before."""
        add_record(self._query, self._begins, record, self._cells, self._up_to)

    def submit_many(self, trajectories: Trajectories, plan: int) -> None:
        """Add the trajectories of many users of the open plan. The sums are the same as with single calls.

        Parameters
        ----------
        trajectories : Trajectories
            Raw records of n users: ``states (n, H + 1)``, ``actions (n, H)``, ``rewards (n, H)``.
        plan : int
            Number of the plan that these users followed (``open_plan.number`` while it was open).

        Raises
        ------
        ValueError
            If a record is invalid, ``plan`` is not the open plan, or there are more users than the plan
            allows. Nothing is added in these cases. Also in a local session, where each device must
            randomize.
        """
        with self._call():
            self._check_open()
            number = self.open_plan.number
            if plan != number:
                raise ValueError(f"plan = {plan!r}: must be {number}, the plan that is open")
            if self._trust == "local":
                raise ValueError(f"submit_many: a local session takes randomized messages only, {ON_DEVICE}")
            if not isinstance(trajectories, Trajectories):
                raise ValueError(f"trajectories is a {type(trajectories).__name__}: must be Trajectories")
            users = checks.integer("len(trajectories)", len(trajectories), 1, self._awaited)
            records = checked(trajectories, self._query.layout, users)
            self._add_many(records)

    def _add_many(self, records: Trajectories) -> None:
        """Count the users of checked records, then add all records."""
        from discreet.core import trajectory_sums_kernels as records_kernels

        query, layout = self._query, self._query.layout
        rewards, grid = records.rewards, self._mechanism.reward_grid
        if grid is not None:
            rewards = SecureRng().rounded(rewards, grid)
        self._count(len(records))
        records_kernels.add_trajectories(
            records.states, records.actions, rewards, layout.row_index, query.counted.start,
            query.counted_steps, query.slots, layout.rows, self._begins, query.reward_shift, self._up_to,
            self._cells, self._cells,
        )  # fmt: skip

    def _add_sum(self, sums: Mapping[str, Floats], users: int, key: Key) -> None:
        cells = self._query.to_cells(sums)
        self._check_sums(cells, users)
        self._count(users)
        self._cells += cells

    def _check_sums(self, cells: Floats, users: int) -> None:
        """Raise ``ValueError`` if ``users`` users of the open plan cannot have these sums."""

    # ----------------------------------------------------------------------------- releases
    def _summed(
        self, cells: Floats, n: int, number: int = 0, squares: Floats | None = None
    ) -> dict[str, Estimate]:
        """Return sums over all users with the noise of ``number`` measurements.

        Empty if plans choose scales.
        """
        told = self._asks == "plain"
        laws = self._laws.sums(n, n - self._absent, number, squares) if told else {}
        return self._estimates(cells, laws, "sum", n, float(n))

    def _estimates(
        self,
        cells: Floats,
        laws: Mapping[str, NoiseDistribution],
        estimand: Literal["sum", "weighted"],
        covers: int,
        effective: float,
    ) -> dict[str, Estimate]:
        if not laws:
            return {}
        tables = read_only(self._query.from_cells(cells))
        return {name: Estimate(tables[name], law, estimand, covers, effective) for name, law in laws.items()}

    @property
    def _drawn_scales(self) -> Floats:
        """Return the (families,) scales of the next noise."""
        return self._scales

    def _node_noise(self, end: int, factor: float, level: int = 0) -> Floats:
        """Return the noise of every cell at address (end, level); each address is drawn once."""
        query, mechanism, scales = self._query, self._mechanism, self._drawn_scales
        if self._key is not None:
            noise = np.empty(query.cells)
            seeded = parts.module("seeded noise")
            seeded.fill_noise(mechanism.family, self._key, end, level, factor, query.offsets, scales, noise)
            return noise
        return noise_vector(query, mechanism, factor, SecureRng(), scales)

    def _on_grid(self, cells: Floats) -> Floats:
        """Return the cells. Raises ``RuntimeError`` if a cell is off the grid of exact noise or too large."""
        for f, name in enumerate(self._query.row_families):
            grid = self._mechanism.data_grid(name)
            if grid is not None:
                checked_on_grid(cells[self._query.offsets[f] : self._query.offsets[f + 1]], grid)
        return cells

    # --------------------------------------------------------------------------- noise distributions
    def laws_at(self, n: int) -> dict[str, NoiseDistribution]:
        """Return the noise distribution of every family in the sums after n users."""
        return self._laws.at(n)

    def measurement_laws(
        self, n: int, senders: int, share: float | None = None
    ) -> dict[str, NoiseDistribution]:
        """Return noise distributions per family, at the current clipping threshold C."""
        return self._laws.measurement(n, senders, share, self.cut)


class MeasuredSession(CountSession):
    """Session of exact sums, and of the batch since the last release. This class draws no noise."""

    _kind = "counts"
    _streams: ClassVar[tuple[str, ...]] = ("exact",)
    _STATE = (*CountSession._STATE, "_filtered", "_closed_users", "_reported")

    def __init__(self, mechanism: CountMechanism, randomness: Randomness) -> None:
        super().__init__(mechanism, randomness)
        self._filtered = np.zeros(self._query.cells)  # cells up to the last measurement
        self._closed_users = 0  # number of users in the measurements so far
        self._reported = 0  # users who sent a message before the last release

    def _drop(self) -> None:
        super()._drop()
        self._filtered = np.zeros(0)

    def _made(self, n: int, leaf: int) -> tuple[Mapping[str, Estimate], Measurement]:
        share = None if n == 0 or self._plan is None else self._plan.return_share
        reports = n - self._absent
        laws = self.measurement_laws(n, reports - self._reported, share)
        cells, fresh = self._measure(n, reports)
        measurement = self._described(fresh, laws, n)
        return self._summed(cells, n, *self._terms()), measurement

    def _measure(self, n: int, reports: int) -> tuple[Floats, Floats]:
        """Return (sums over all users, newest measurement) and close the batch since the last release."""
        cells = self._cells.copy()
        self._next |= {"_filtered": cells, "_reported": reports}
        return cells.copy(), cells - self._filtered

    def _described(self, fresh: Floats, laws: Mapping[str, NoiseDistribution], n: int) -> Measurement:
        """Describe the newest measurement, with its number of users and its effective sample size."""
        batch = n - self._closed_users
        self._next |= {"_closed_users": n}
        return Measurement(self._estimates(fresh, laws, "sum", batch, float(batch)), 0.0, 1.0)

    def _terms(self) -> tuple[int, Floats | None]:
        """Return (number of measurements in the new sums, squared noise scales in units of ``scales``)."""
        return 0, None


class WalkSession(CountSession):
    """Prefix sums over batches or users, with correlated noise of a factorization mechanism."""

    _kind = "prefix counts"
    _streams = ("walk",)
    _STATE = (*CountSession._STATE, "_held", "_registers")
    _DERIVED = (*CountSession._DERIVED, "_walk")

    def __init__(self, mechanism: CountMechanism, randomness: Randomness) -> None:
        super().__init__(mechanism, randomness)
        walk = mechanism.walk
        assert walk is not None
        self._walk = walk
        # labels of the registers and the last time step; then the registers, which are never changed in place
        self._held = np.zeros(walk.registers + 1, np.int64)
        self._registers: dict[int, Floats] = {}

    def _drop(self) -> None:
        super()._drop()
        self._registers = {}

    def _made(self, n: int, leaf: int) -> tuple[Mapping[str, Estimate], None]:
        return self._summed(self._noisy(self._walk, leaf), n), None

    def _noisy(self, walk: Walk, leaf: int) -> Floats:
        """Return the sums of the first ``leaf`` time steps, with the noise of that prefix."""
        if leaf == 0:
            return self._cells.copy()
        exact = self._on_grid(self._cells)
        noise, self._held, self._registers = prefix_noise(
            walk, leaf, self._held, self._registers, self._node_noise
        )
        return self._on_grid(exact + noise)
