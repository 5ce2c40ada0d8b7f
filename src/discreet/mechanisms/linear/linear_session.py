"""Session of linear sums, which sums users' contributions and draws noise.

Calls and errors are those of :mod:`discreet.core.stream_session`: one call at a time, no copies, and a user
is counted before their contribution is added. The address of a noise is marked as used before the noise is
drawn. The context of a plan is copied once, when the plan begins.

Streams:

- "batches": fresh noise on the sum of each batch between two scheduled releases. Release j contains j noise
  terms of scale s.
- ``"walk"``: correlated noise on prefix sums (tree and others). A time step is a batch or a user.
- "local": each device adds the noise to its own contribution. k users add k noise terms.
- "exact": no noise.

Exact noise (secure randomness). Contributions are integers on a public grid, truncated so that all bounds
stay valid (:meth:`LinearQuery.user_tables`). Noise is discrete Gaussian or Laplace in the same units. All
released values are functions of the noisy integer sums. In the square-root mechanism, noise is added to
integer combinations of the batches' sums, and prefix sums are computed from the noisy integers.

With ``query.requeries`` the session stores the trajectories and answers planned responses about all users so
far (:class:`Answers`). There is one round of questions at each scheduled release, or at most
``schedule.answers`` rounds. A round has one question for each step, from the last to the first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.noise_distributions.linear_noise import GoeLaw, VectorLaw
from discreet.core import count_kernels as kernels
from discreet.core.call_protocols import Encoder
from discreet.core.correlated_noise.factorization import prefix_noise
from discreet.core.guarantee import MechanismRecord
from discreet.core.noise import seeded_noise_kernels as seeded_kernels
from discreet.core.protocols import Coins
from discreet.core.raw_encoder import RawEncoder, rounded, same_plan
from discreet.core.releases import Estimate, Floats, Message, Plan
from discreet.core.rng import Key, Randomness, SecureRng, checked_on_grid
from discreet.core.short_repr import brief
from discreet.core.stream_session import StreamSession, read_only
from discreet.core.trajectories import Trajectories, Trajectory, checked
from discreet.device.discrete_noise import drawn
from discreet.device.linear_device import LinearDevice
from discreet.device.message_guarantee import MessageGuarantee
from discreet.mechanisms.linear.adaptive_queries import ResponseSession
from discreet.mechanisms.linear.exact_square_root import ExactSquareRoot
from discreet.mechanisms.linear.linear_mechanism import LinearMechanism
from discreet.mechanisms.linear.linear_queries import GramQuery, LinearQuery, Prepared
from discreet.mechanisms.local.message_inbox import REACH, FromDevices, local_message
from discreet.mechanisms.query_queue import Response, asking
from discreet.mechanisms.saved_state.state_file import resume, state_of

__all__ = ["Answers", "LinearEncoder", "LinearSession"]

_MOST_UNITS = 2.0**51  # limit of all contributions to a cell; their sum with noise is exact in float64


class _Draws:
    """Noise of one draw for all cells, in the units of the session's cells."""

    def __init__(self, mechanism: LinearMechanism, query: LinearQuery) -> None:
        self.family = kernels.LAPLACE if mechanism.noise == "laplace" else kernels.GAUSSIAN
        self.offsets = query.offsets.copy()
        self.discrete = mechanism.grid is not None
        self.units = np.ones(len(query.blocks))
        if mechanism.grid is not None:
            self.units = query.block_units(mechanism.grid)
        self.scales = query.block_scales(mechanism.scales, mechanism.noise) / self.units

    def at(self, key: NDArray[np.uint64], i: int, j: int, factor: float = 1.0) -> Floats:
        """Return the seeded draw at address (i, j)."""
        noise = np.empty(self.offsets[-1])
        seeded_kernels.fill_noise(self.family, key, i, j, factor, self.offsets, self.scales, noise)
        return noise

    def of_users(self, key: NDArray[np.uint64], i: int, users: int) -> Floats:
        """Return the sum of the noise of ``users`` devices, drawn from its exact distribution."""
        noise = np.empty(self.offsets[-1])
        seeded_kernels.fill_noise_sum(self.family, key, i, users, self.offsets, self.scales, noise)
        return noise

    def from_coins(self, coins: Coins, factor: float = 1.0) -> Floats:
        """Return a draw from the random generator ``coins`` (of a device, or secure)."""
        family = "laplace" if self.family == kernels.LAPLACE else "gaussian"
        grids = [1 if self.discrete else None] * self.scales.size
        return drawn(family, self.scales, self.offsets, coins, grids, factor)

    def in_values(self, cells: Floats) -> Floats:
        """Return cells in the units of the statistics."""
        return cells * np.repeat(self.units, np.diff(self.offsets)) if self.discrete else cells.copy()


@dataclass(frozen=True, eq=False)
class LinearEncoder:
    """Encoder on a local user's device: the user's contribution, with noise in every cell.

    The contribution is computed on the device from the plan's public arrays. Only the noisy cells are sent.
    """

    __repr__ = brief

    query: LinearQuery
    device: LinearDevice
    prepared: Prepared
    number: int

    @property
    def guarantee(self) -> MessageGuarantee:
        """Guarantee of one message."""
        return self.device.guarantee

    def __call__(self, trajectory: Trajectory, plan: Plan, coins: Coins) -> Message:
        """Randomize one checked ``trajectory`` under ``plan``; the noise comes from ``coins``.

        An invalid record raises ``ValueError`` on the device.
        """
        number = same_plan(self.number, plan)
        record = checked(trajectory, self.query.layout)
        message = self.device.cells(self.prepared, record.states, record.actions, record.rewards, coins)
        return Message(plan=number, message=message)


class Answers(ResponseSession):
    """Planned questions about a growing set of users: users may be added between questions.

    A user's record enters each answer after its submission once, and no earlier answer. Given the public
    arrays of a question, the answer is mu_i-GDP with respect to this record. By adaptive composition, all
    answers are therefore mu-GDP with mu^2 the sum of all mu_i^2. This is the value for the first user; it is
    used for all users, because times of arrival are unknown in advance.
    """

    _what = "session of answers"

    def __init__(self, *args: object, **named: object) -> None:
        super().__init__(*args, **named)  # type: ignore[arg-type]
        if self._key is not None:  # a key that differs from that of the Gram matrices' noise
            digest = hashlib.blake2b(self._key.tobytes(), digest_size=16, person=b"discreet/answers").digest()
            self._key = np.frombuffer(digest, "<u8").astype(np.uint64)

    def _check_unasked(self) -> None:
        """Allow new users at any time."""

    def check_counts(self) -> None:
        """Raise the ``ValueError`` of :meth:`submit_counts`, except the one for too many users."""
        if self._key is None:
            raise ValueError("submit_counts: must not be used with secure randomness (it is for simulation)")
        self._stored.check_counts()

    def submit_counts(self, sums: Mapping[str, Floats], users: int) -> None:
        """Add ``users`` simulated users from exact count tables ``sums``, with seeded randomness only.

        Raises ``ValueError`` with secure randomness, or if there are too many users to sum exactly.
        """
        with self._call():
            self._check_open()
            self.check_counts()
            if self._taken + users > self._most:
                raise ValueError(f"users = {users}: sums of more than {self._most} episodes are not exact")
            self._users, self._taken = self._users + users, self._taken + users
            self._stored.add_counts(sums["transition_counts"], sums["reward_sums"])


class LinearSession(FromDevices):
    """One stream of releases of a :class:`~discreet.mechanisms.linear.linear_queries.LinearQuery`.

    Created by ``privatizer.start``. See :class:`~discreet.mechanisms.interfaces.Session` for the calls.

    Raises
    ------
    RuntimeError
        On calls in the wrong order, on a closed session, and in another process.
    ValueError
        On an invalid record or context (nothing is added) and on more users than the schedule declares.
    """

    _kind = "linear"
    _STATE = (
        *StreamSession._STATE,
        "_cells", "_measured", "_spent", "_noises", "_held", "_registers", "_prepared", "_root",
        "_stored_users", *FromDevices._SAVED,
    )  # fmt: skip
    _DERIVED = (
        *StreamSession._DERIVED, "_query", "_draws", "_grid", "_most", "_reach", "_answers", "_ask",
        *FromDevices._OWN,
    )  # fmt: skip

    def __init__(self, mechanism: LinearMechanism, randomness: Randomness) -> None:
        if type(mechanism) is not LinearMechanism:  # a subclass could state any privacy loss
            raise ValueError(f"mechanism = {mechanism!r}: must be a LinearMechanism, and no subclass of it")
        mechanism = replace(mechanism)  # checked again, and shares no array
        mechanism.check_source(randomness)
        query, schedule, questions = mechanism.query, mechanism.schedule, mechanism.questions
        super().__init__(query.layout, schedule, randomness, mechanism.guarantee, mechanism.leaf)
        self._mechanism, self._query, self._randomness = mechanism, query, randomness
        self._draws = _Draws(mechanism, query) if mechanism.stream != "exact" else None
        self._grid = mechanism.grid
        self._take_no_messages_yet()
        self._reach = np.zeros(0)  # bounds of a local user's cells, which honest devices satisfy
        if mechanism.stream == "local" and self._draws is not None:
            reach = _contributions(query, self._grid) + REACH * self._draws.scales
            self._reach = np.repeat(reach, np.diff(query.offsets))
        self._most = 2**62
        if self._grid is not None:
            self._most = int(_MOST_UNITS / max(1.0, _contributions(query, self._grid).max()))
        self._answers: Answers | None = None
        self._ask: Callable[[Response], Estimate] | None = None  # the function given to learners
        if isinstance(query, GramQuery) and query.requeries:
            self._answers = Answers(query.layout, query.features, questions, randomness)
            self._most = min(self._most, self._answers.most)  # begin rejects more users
        self._cells = np.zeros(query.cells)  # Batches: sums of the open batch; otherwise: sums of all users.
        self._measured = np.zeros(query.cells)  # Batches: noisy sum of all closed batches.
        self._spent = 0  # Batches: number of noise draws requested, also by interrupted calls.
        self._noises = 0  # Batches: number of noise draws in the sum of closed batches.
        walk = mechanism.walk
        # Exact square root: cells of the open time step, (n, cells) sums of closed time steps, and
        # measurements.
        self._root = np.zeros(query.cells), np.zeros((0, query.cells), np.int64), np.zeros((0, query.cells))
        self._held = np.zeros(walk.registers + 1 if walk else 1, np.int64)
        self._registers: dict[int, Floats] = {}
        self._prepared = Prepared({})

    def _drop(self) -> None:
        super()._drop()
        self._cells = self._measured = np.zeros(0)
        self._registers = {}
        self._root = np.zeros(0), np.zeros((0, 0), np.int64), np.zeros((0, 0))
        self._ask = None
        if self._answers is not None:
            self._answers.close()

    @property
    def _stored_users(self) -> dict[str, Any]:
        """State of the users' trajectories for a saved file; empty if none are stored."""
        return {} if self._answers is None else state_of(self._answers)

    @_stored_users.setter
    def _stored_users(self, state: Mapping[str, Any]) -> None:
        if self._answers is not None:
            resume(self._answers, state)

    # -------------------------------------------------------------------------- public facts
    @property
    def records(self) -> tuple[MechanismRecord, ...]:
        """Privacy records from which the guarantee is computed; empty without privacy."""
        return self._mechanism.records

    @property
    def query(self) -> LinearQuery:
        """Copy of the query of the sums. Writing to the arrays of the copy changes no sum."""
        return self._query.copy()

    @property
    def mechanism(self) -> LinearMechanism:
        """Copy of the mechanism, with its guarantee."""
        return replace(self._mechanism)

    @property
    def scales(self) -> dict[str, Floats]:
        """Copies of the (n,) scales of one noise term, by family; empty for exact sums."""
        return {name: np.array(scale) for name, scale in self._mechanism.scales.items()}

    def _device_for(self, session: int) -> LinearDevice:
        return _device_of(self._mechanism, self._query, self._draws, session)

    # -------------------------------------------------------------------------------- users
    def _admitted(self, plan: Plan, users: int) -> Plan:
        if self._users + users > self._most:
            raise ValueError(f"plan.users = {users}: sums of more than {self._most} users are not exact")
        self._check_no_group(plan)
        self._prepared = self._query.prepared(plan.context)
        return plan

    def _encoder(self) -> Encoder:
        if self._mechanism.stream != "local":
            return RawEncoder(self._plans)
        own = Prepared(
            {name: values.copy() for name, values in self._prepared.values.items()},
            None if self._prepared.roots is None else self._prepared.roots.copy(),
        )
        return LinearEncoder(self._query.copy(), self._device, own, self._plans)

    def _add(self, message: Message) -> None:
        if self._mechanism.stream == "local":
            sent, nonce = self._sent(message)
            own = local_message(sent, self._reach)
            self._count_sender(nonce)
            self._cells += own
            return
        record = self._record(message)
        exact = rounded(record, SecureRng(), self._grid)
        if self._grid is not None:
            checked_on_grid(exact.rewards, self._grid)  # contributions are rounded again
        cells = self._query.to_cells(self._query.user_tables(self._prepared, exact, self._grid))
        self._count(1)
        if self._answers is not None:
            one = Trajectories(record.states[None], record.actions[None], record.rewards[None])
            self._answers.submit_many(one)
        self._cells += cells

    def _count_absent(self, users: int) -> None:
        super()._count_absent(users)
        if self._answers is not None:
            self._answers.absent(users)

    def submit_sum(self, sums: Mapping[str, Floats], users: int) -> None:
        """Add ``users`` simulated users from exact count tables ``sums`` (``query.simulated``).

        All are users of the open plan, with its context. In the local model, the sum of the devices' noise is
        drawn from the exact distribution of that sum. For simulation only: raises ``ValueError`` with secure
        randomness.
        """
        super().submit_sum(sums, users)

    def _add_sum(self, sums: Mapping[str, Floats], users: int, key: Key) -> None:
        if self._answers is not None:
            self._answers.check_counts()
        cells = self._query.to_cells(self._query.sum_tables(self._prepared, sums))
        if self._mechanism.stream == "local":
            assert self._draws is not None
            cells = cells + self._draws.of_users(key, self._users, users)
        self._count(users)
        if self._answers is not None:
            self._answers.submit_counts(sums, users)
        self._cells += cells

    # ----------------------------------------------------------------------------- releases
    def _made(self, n: int, leaf: int) -> tuple[Mapping[str, Estimate], None]:
        cells = self._noisy(n, leaf)
        laws = self._mechanism.laws(self._mechanism.terms(n, leaf, n - self._absent, self._noises))
        tables = read_only(
            self._query.from_cells(cells if self._draws is None else self._draws.in_values(cells))
        )
        estimates = {name: Estimate(table, laws[name], "sum", n, float(n)) for name, table in tables.items()}
        return estimates, None

    def _noisy(self, n: int, leaf: int) -> Floats:
        """Return the cells with noise."""
        stream, walk = self._mechanism.stream, self._mechanism.walk
        if n == 0 or stream in ("exact", "local"):
            return self._cells.copy()
        self._on_grid(self._cells)
        if isinstance(walk, ExactSquareRoot):
            return self._rooted(walk, leaf)
        if walk is not None:
            noise, self._held, self._registers = prefix_noise(
                walk, leaf, self._held, self._registers, self._draw
            )
            return self._on_grid(self._cells + noise)
        self._spent += 1  # before the draw: an interrupt can lose a draw, but no noise is drawn twice
        fresh = self._on_grid(self._cells + self._draw(self._spent, 1.0, 0))
        # one statement without a function call moves the batch from the cells to the sum of measurements
        self._cells, self._measured, self._noises = (
            np.zeros(self._query.cells), self._measured + fresh, self._noises + 1,
        )  # fmt: skip
        return self._measured.copy()

    def _on_grid(self, cells: Floats) -> Floats:
        """Return the cells, in units.

        Raises ``RuntimeError`` if a cell is off the grid of exact noise or too large.
        """
        return cells if self._grid is None else checked_on_grid(cells, 1)

    def _draw(self, i: int, factor: float, j: int) -> Floats:
        assert self._draws is not None
        if self._key is not None:
            return self._draws.at(self._key, i, j, factor)
        return self._draws.from_coins(SecureRng(), factor)

    def _rooted(self, walk: ExactSquareRoot, leaf: int) -> Floats:
        """Return the prefix sum from exact measurements.

        Time steps without a requested release are treated as empty.
        """
        closed, leaves, readings = self._root
        while len(leaves) < leaf:
            last = len(leaves) + 1 == leaf
            newest = (self._cells - closed if last else np.zeros_like(closed)).astype(np.int64)
            leaves = np.concatenate([leaves, newest[None]])
            noisy = walk.measured(leaves) + self._draw(len(leaves), walk.norm, 0).astype(np.int64)
            readings = np.concatenate([readings, noisy[None].astype(np.float64)])
        self._root = self._cells.copy(), leaves, readings
        return walk.prefix(readings)

    def laws_at(self, n: int) -> dict[str, GoeLaw | VectorLaw]:
        """Return the noise distributions, by family, after ``n`` users if all of them send a message."""
        return self._mechanism.laws_at(n)

    # ------------------------------------------------------------------------------ questions
    @property
    def answer(self) -> Callable[[Response], Estimate]:
        """Function that answers the next planned response about all users so far.

        Call it after a release, starting with the last step. Raises ``RuntimeError`` when no question is due,
        and ``ValueError`` for a question that differs from the plan.
        """
        if self._answers is None:
            return super().answer
        if self._ask is None:
            self._ask = asking(self._answer)
        return self._ask

    def _answer(self, question: Response) -> Estimate:
        """Answer a question, in a separate thread.

        If the lock is held, this method raises ``RuntimeError`` instead of waiting: the thread that waits for
        the answer may itself hold the lock.
        """
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("answer: a call on this session is running: it must end first")
        self._lock.release()
        with self._call():
            self._check_open()
            answers = self._answers
            assert answers is not None
            if not self._fresh or self._number == 0:
                raise RuntimeError("answer: questions are due after a release of at least one user")
            each = len(self._mechanism.questions) // max(1, self._schedule.releases or 1)
            if not self._schedule.answers and answers.asked >= self._number * each:
                raise RuntimeError(f"answer: all questions of this release are spent, {each} at each")
            return answers.answer(question)


def _device_of(
    mechanism: LinearMechanism, query: LinearQuery, draws: _Draws | None, session: int
) -> LinearDevice:
    assert draws is not None
    family = "laplace" if draws.family == kernels.LAPLACE else "gaussian"
    offsets, scales, units = draws.offsets.copy(), draws.scales.copy(), draws.units.copy()
    for own in (offsets, scales, units):
        own.flags.writeable = False
    return LinearDevice(query.form, family, offsets, scales, units, mechanism.grid, session)


def _contributions(query: LinearQuery, grid: int | None) -> Floats:
    """Return (blocks,) bounds on one user's contribution to a cell, from the sensitivity of the statistic.

    The bounds are in the units of the cells. They include a factor of 2 for rounding.
    """
    own = {(name, unit.step): own for unit in query.units("goe") for name, own in unit.own.items()}
    units = np.ones(len(query.blocks)) if grid is None else query.block_units(grid)
    return np.array([2.0 * own[name, step] for name, step, _ in query.blocks]) / units
