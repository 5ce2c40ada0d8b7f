"""Channels of counts: the only code that sums users' records and draws noise.

A channel checks each record before the record is added, and draws noise for every cell of the public support.
Declared values (query, schedule, scales, key) are stored as copies that no other code can change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal, TypeGuard

import numpy as np

from discreet.core import checks
from discreet.core import clipped_returns as steered
from discreet.core.correlated_noise.decaying_sum import FINE
from discreet.core.correlated_noise.factorization import check_registers, prefix_noise
from discreet.core.count_mechanism import CountMechanism
from discreet.core.query import FamilyQuery
from discreet.core.raw_encoder import RawEncoder, add_records, family_begins, noise_vector
from discreet.core.registry import parts
from discreet.core.releases import Estimate, Floats, Measurement, Message, Plan, read_only
from discreet.core.rng import Key, Randomness, SecureRng, Seeded, checked_on_grid
from discreet.core.session import Channel, ChannelSession, Released, State
from discreet.core.trajectories import Trajectories

if TYPE_CHECKING:
    from discreet.core.call_protocols import Encoder
    from discreet.core.protocols import NoiseDistribution

_MOST_UNITS = 2**51  # largest sum of a cell; with noise it must stay exact


class CountChannel(Channel):
    """Sums of users' counts: common base of the channels of a :class:`CountMechanism`.

    Raises ``ValueError`` if the mechanism is for another channel.
    """

    streams: ClassVar[tuple[str, ...]]  # supported values of CountMechanism.stream
    # True if plans can set a group of returns or a clipping threshold of rewards
    steers: ClassVar[bool] = False

    def __init__(self, mechanism: CountMechanism, randomness: Randomness) -> None:
        checks.exactly("mechanism", mechanism, CountMechanism)
        if mechanism.stored:
            raise ValueError("mechanism.stored = True: offline data are for OneShotSession")
        if mechanism.stream not in self.streams or (mechanism.query.steered and not self.steers):
            raise ValueError(
                f"mechanism.strategy = {mechanism.strategy!r}, of {mechanism.asks} sums: has a channel of "
                "its own, which discreet.mechanisms.open_session.session_of opens"
            )
        mechanism = replace(mechanism)  # checked again; shares no array with the caller's mechanism
        mechanism.check_source(randomness)
        self.mechanism, self.randomness, self.query = mechanism, randomness, mechanism.query
        self.laws = mechanism.laws
        self.scales = np.array(mechanism.scales)
        self.scales.flags.writeable = False
        self.begins = (
            np.zeros(0, np.int64) if isinstance(self.query, FamilyQuery) else family_begins(self.query)
        )
        self.key: Key | None = randomness.keys.noise.copy() if isinstance(randomness, Seeded) else None

    # ------------------------------------------------------------------------------- state
    def start(self) -> State:
        """Return the state before the first user."""
        state: State = {"cells": np.zeros(self.query.cells)}
        return state | ({"cut": self.query.cut} if self.query.cut else {})

    # ------------------------------------------------------------------------------- users
    def admit(self, s: ChannelSession, plan: Plan, users: int) -> tuple[Plan, State]:
        """Return the plan with plain values, and its threshold.

        Only the fields that a session reads have plain values. A plain value cannot change between two reads.
        (A caller's integer object could name one cell when checked and another cell when used.)
        """
        units = FINE if self.mechanism.fixed_point else self.mechanism.reward_grid or 1
        units *= math.ceil(
            max(self.query.layout.horizon, *(f.most(self.query.layout) for f in self.query.listed))
        )
        if (s.users + users) * units > _MOST_UNITS:
            raise ValueError(
                f"plan.users = {users}: sums of more than {_MOST_UNITS // units} users in all are not "
                "exact in float64"
            )
        if self.query.steered:
            return steered.plain_plan(self, s, plan)
        s._check_no_group(plan)
        context = {str(name): np.array(table) for name, table in plan.context.items()}
        return replace(plan, context=context, group=None, return_share=None, forget=False, cut=None), {}

    def encoder(self, s: ChannelSession) -> Encoder:
        """Return the encoder for devices. The encoder returns the record unchanged, because users trust the
        server.
        """
        return RawEncoder(s._plans)

    def up_to(self, s: ChannelSession) -> float:
        """Return the bound to which one user's total reward is clipped; 0 if rewards are not clipped now."""
        cut: float = s.state.get("cut", 0.0)
        return 0.0 if cut == math.inf else cut

    def add(self, s: ChannelSession, message: Message) -> None:
        """Check a record of the open plan, count its user, then add the record."""
        self.add_many(s, Trajectories.of(s._record(message)))

    def add_many(self, s: ChannelSession, records: Trajectories) -> None:
        """Count the users of checked records and then add all records."""
        query, grid, cells = self.query, self.mechanism.reward_grid, s.state["cells"]
        if grid is not None:
            records = replace(records, rewards=SecureRng().rounded(records.rewards, grid))
        s._count(len(records))
        if isinstance(query, FamilyQuery):
            for record in records:
                query.add(record, s.context, grid, cells)
            return
        add_records(query, self.begins, records, cells, self.up_to(s))
        if query.groups:
            steered.add_returns(query, s, records)

    def add_sum(self, s: ChannelSession, sums: Mapping[str, Floats], users: int, key: Key) -> None:
        """Check simulated sums, count their users, then add them."""
        cells = self.query.to_cells(sums)
        if self.query.cut:
            steered.check_sums(self.mechanism.counts, cells, users, self.up_to(s))
        s._count(users)
        s.state["cells"] += cells

    # ----------------------------------------------------------------------------- releases
    def summed(
        self, s: ChannelSession, cells: Floats, n: int, number: int = 0, squares: Floats | None = None
    ) -> dict[str, Estimate]:
        """Return sums over all users with the noise of ``number`` measurements.

        The result is empty if plans choose the noise scales.
        """
        laws = {} if self.query.steered else self.laws.sums(n, n - s._absent, number, squares)
        return self.estimates(cells, laws, "sum", n, float(n))

    def estimates(
        self,
        cells: Floats,
        laws: Mapping[str, NoiseDistribution],
        estimand: Literal["sum", "weighted"],
        covers: int,
        effective: float,
    ) -> dict[str, Estimate]:
        """Return the estimates of the families in ``laws``."""
        if not laws:
            return {}
        tables = read_only(self.query.from_cells(cells))
        return {name: Estimate(tables[name], law, estimand, covers, effective) for name, law in laws.items()}

    def node_noise(self, end: int, factor: float, level: int = 0, scales: Floats | None = None) -> Floats:
        """Return the noise of every cell at address (end, level). Each address is drawn once.

        scales : (families,) scales of this draw; by default those of the mechanism.
        """
        scales = self.scales if scales is None else scales
        if self.key is not None:
            return parts().seeded.cell_noise(self.mechanism, self.key, end, level, factor, scales)
        return noise_vector(self.query, self.mechanism, factor, SecureRng(), scales)

    def on_grid(self, cells: Floats) -> Floats:
        """Return the cells. Raises ``RuntimeError`` if a cell is off the grid of exact noise or too large."""
        for f, name in enumerate(self.query.row_families):
            grid = self.mechanism.data_grid(name)
            if grid is not None:
                checked_on_grid(cells[self.query.offsets[f] : self.query.offsets[f + 1]], grid)
        return cells


class ExactChannel(CountChannel):
    """Exact sums, and the batch since the last release. This class draws no noise."""

    streams: ClassVar[tuple[str, ...]] = ("exact",)
    steers = True

    def start(self) -> State:
        """Return the state before the first user.

        - before : cells up to the last measurement.
        - closed_users : number of users in the measurements so far.
        - reported : number of users who sent a message before the last release.
        """
        return super().start() | {"before": np.zeros(self.query.cells), "closed_users": 0, "reported": 0}

    def release(self, s: ChannelSession, n: int, leaf: int) -> Released:
        """Return exact sums, and the batch since the last release."""
        share = None if n == 0 or s._plan is None else s._plan.return_share
        reports = n - s._absent
        laws = self.laws.measurement(n, reports - s.state["reported"], share, s.cut)
        cells, fresh, changes = self.measure(s, n)
        measurement, described = self.described(s, fresh, laws, n)
        sums = self.summed(s, cells, n, *self.terms(s.state | changes))
        return sums, measurement, changes | described | {"reported": reports, "closed_users": n}

    def measure(self, s: ChannelSession, n: int) -> tuple[Floats, Floats, State]:
        """Return (sums over all users, newest measurement, changes that close the batch)."""
        cells = s.state["cells"].copy()
        return cells.copy(), cells - s.state["before"], {"before": cells}

    def described(
        self, s: ChannelSession, fresh: Floats, laws: Mapping[str, NoiseDistribution], n: int
    ) -> tuple[Measurement, State]:
        """Return the newest measurement, with its number of users and its effective sample size."""
        batch = n - s.state["closed_users"]
        return Measurement(self.estimates(fresh, laws, "sum", batch, float(batch)), 0.0, 1.0), {}

    def terms(self, state: State) -> tuple[int, Floats | None]:
        """Return the number of measurements in the new sums, and the squared noise scales."""
        return 0, None


class CorrelatedChannel(CountChannel):
    """Prefix sums over batches or users, with correlated noise of a factorization mechanism."""

    streams: ClassVar[tuple[str, ...]] = ("walk",)

    def start(self) -> State:
        """Return the state before the first user.

        - held : labels of the registers, and the last time step.
        - registers : arrays that are never changed in place.
        """
        walk = self.mechanism.walk
        assert walk is not None
        return super().start() | {"held": np.zeros(walk.registers + 1, np.int64), "registers": {}}

    def from_plain(self, s: ChannelSession, state: State) -> State:
        """Return the state read from a file.

        Raises ``ValueError`` if its registers do not fit the strategy.
        """
        assert self.mechanism.walk is not None
        check_registers(
            self.mechanism.walk, state["held"], state["registers"], self.query.cells, s._released_leaf
        )
        return state

    def release(self, s: ChannelSession, n: int, leaf: int) -> Released:
        """Return prefix sums with their noise."""
        return self.summed(s, self.noisy(s, leaf), n), None, {}

    def noisy(self, s: ChannelSession, leaf: int) -> Floats:
        """Return the sums of the first ``leaf`` time steps, with the noise of that prefix.

        The registers advance even if the release is interrupted. No release contains a draw that an interrupt
        discards.
        """
        state, walk = s.state, self.mechanism.walk
        if leaf == 0:
            cells: Floats = state["cells"].copy()
            return cells
        assert walk is not None
        exact = self.on_grid(state["cells"])
        noise, held, registers = prefix_noise(walk, leaf, state["held"], state["registers"], self.node_noise)
        # one call, so that both values belong to the same time step
        state.update(held=held, registers=registers)
        return self.on_grid(exact + noise)


def is_of_counts(session: object) -> TypeGuard[ChannelSession]:
    """Return True if a channel of this library releases the session's sums of counts."""
    return isinstance(session, ChannelSession) and isinstance(session.channel, CountChannel)
