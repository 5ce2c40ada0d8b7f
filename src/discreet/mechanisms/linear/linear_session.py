"""Channel of linear sums, which sums users' contributions and draws noise.

Calls and errors are those of :mod:`discreet.core.session`: one call at a time, no copies, and each user is
counted before the user's contribution is added. The index of a draw is marked as used before the noise is
drawn. The context of a plan is copied once, when the plan begins.

Kinds of streams:

- "batches": fresh noise on the sum of each batch between two scheduled releases. Release j contains j noise
  terms of scale s.
- ``"walk"``: correlated noise on prefix sums (tree and others). A time step is a batch or a user.
- "local": each device adds the noise to its own contribution. k users add k noise terms.
- "exact": no noise.

Exact noise (secure randomness). Contributions are integers on a public grid. The contributions are truncated,
so that all bounds stay valid (:meth:`LinearQuery.user_tables`). Noise is discrete Gaussian or Laplace in the
same units. All released values are functions of the noisy integer sums. The square-root mechanism adds noise
to integer combinations of the batches' sums, and computes prefix sums from the noisy integers.

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

from discreet.core import checks
from discreet.core import count_kernels as kernels
from discreet.core.call_protocols import Encoder
from discreet.core.correlated_noise.factorization import check_registers, prefix_noise
from discreet.core.protocols import Coins
from discreet.core.raw_encoder import RawEncoder, same_plan
from discreet.core.releases import Estimate, Floats, Message, Plan, read_only
from discreet.core.rng import Key, Randomness, SecureRng, Seeded, checked_on_grid
from discreet.core.session import Channel, ChannelSession, Released, State
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.device.discrete_noise import drawn
from discreet.device.linear_device import LinearDevice
from discreet.device.message_guarantee import MessageGuarantee
from discreet.mechanisms import seeded_noise_kernels as seeded_kernels
from discreet.mechanisms.linear.adaptive_queries import ResponseSession
from discreet.mechanisms.linear.exact_square_root import ExactSquareRoot
from discreet.mechanisms.linear.linear_mechanism import LinearMechanism
from discreet.mechanisms.linear.linear_queries import GramQuery, LinearQuery, Prepared
from discreet.mechanisms.local.message_inbox import REACH, DeviceMessages, local_message
from discreet.mechanisms.query_queue import Response, asking
from discreet.mechanisms.saved_state.state_file import resume, state_of

_MOST_UNITS = 2.0**51  # limit of all contributions to a cell; their sum with noise is exact in float64


class NoiseDraws:
    """Generator of the noise of one draw for all cells, in the units of the session's cells."""

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
        """Return a draw from the random generator ``coins`` of a device or of a secure source."""
        family = "laplace" if self.family == kernels.LAPLACE else "gaussian"
        grids = [1 if self.discrete else None] * self.scales.size
        return drawn(family, self.scales, self.offsets, coins, grids, factor)

    def in_values(self, cells: Floats) -> Floats:
        """Convert cells from grid units to the units of the statistics."""
        return cells * np.repeat(self.units, np.diff(self.offsets)) if self.discrete else cells.copy()


@dataclass(frozen=True, eq=False)
class LinearEncoder:
    """Encoder on the device of a local-privacy user: the user's contribution with noise in every cell.

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
        """Randomize one checked ``trajectory`` under ``plan``. The noise comes from ``coins``.

        An invalid record raises ``ValueError`` on the device.
        """
        number = same_plan(self.number, plan)
        record = self.query.checked(trajectory)
        message = self.device.cells(self.prepared, *self.query.parts(record), coins)
        return Message(plan=number, message=message)


class Answers(ResponseSession):
    """Planned questions about a growing set of users. Users may be added between questions.

    Each answer after a user's submission includes the user's record once. No earlier answer includes the
    record. Given the public arrays of a question, the answer is mu_i-GDP with respect to this record. By
    adaptive composition, all answers are therefore mu-GDP, where mu^2 is the sum of all mu_i^2. This mu is
    the value for the first user. The guarantee uses it for all users, because times of arrival are unknown in
    advance.
    """

    _what = "session of answers"

    def __init__(self, *args: object, **named: object) -> None:
        super().__init__(*args, **named)  # type: ignore[arg-type]
        if self._key is not None:  # this key differs from the key of the Gram matrices' noise
            digest = hashlib.blake2b(self._key.tobytes(), digest_size=16, person=b"discreet/answers").digest()
            self._key = np.frombuffer(digest, "<u8").astype(np.uint64)

    def _check_unasked(self) -> None:
        """Allow new users at any time."""

    def check_counts(self) -> None:
        """Raise the ``ValueError`` of :meth:`submit_counts`, except the error for too many users."""
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


class LinearChannel(DeviceMessages, Channel):
    """Channel with the sums of one :class:`~discreet.mechanisms.linear.linear_queries.LinearQuery`.

    Raises ``ValueError`` if the mechanism is not a :class:`LinearMechanism`, or if its noise cannot be drawn
    from ``randomness``.
    """

    def __init__(self, mechanism: LinearMechanism, randomness: Randomness) -> None:
        checks.exactly("mechanism", mechanism, LinearMechanism)
        super().__init__()
        mechanism = replace(mechanism)  # the mechanism is checked again and shares no array with the caller's
        mechanism.check_source(randomness)
        query = mechanism.query
        self.mechanism, self.query, self.randomness = mechanism, query, randomness
        self.key = randomness.keys.noise.copy() if isinstance(randomness, Seeded) else None
        self.draws = NoiseDraws(mechanism, query) if mechanism.stream != "exact" else None
        self.grid, self.local = mechanism.grid, mechanism.stream == "local"
        # bounds on the cells of a local-privacy user; messages of honest devices satisfy them
        self.reach = np.zeros(0)
        if self.local and self.draws is not None:
            reach = _contributions(query, self.grid) + REACH * self.draws.scales
            self.reach = np.repeat(reach, np.diff(query.offsets))
        self.most = 2**62
        if self.grid is not None:
            self.most = int(_MOST_UNITS / max(1.0, _contributions(query, self.grid).max()))
        self._ask: Callable[[Response], Estimate] | None = None  # the function given to learners

    # ------------------------------------------------------------------------------- state
    def start(self) -> State:
        """Return the state before the first user.

        - cells : sums of the open batch under "batches", otherwise sums of all users.
        - measured, noises : noisy sum of all closed batches, and the number of noise draws in it.
        - spent : number of noise draws, also for interrupted calls.
        - held, registers : as in the channel of correlated noise.
        - root : used by the exact square-root mechanism: cells of the open time step, (n, cells) sums of
          closed time
          steps, and measurements.
        - prepared : context of the open plan.
        - answers : session that stores users and answers questions, or None.
        """
        query, walk = self.query, self.mechanism.walk
        answers = None
        if isinstance(query, GramQuery) and query.requeries:
            answers = Answers(query.layout, query.features, self.mechanism.questions, self.randomness)
            self.most = min(self.most, answers.most)  # begin rejects more users
        return self.start_messages() | {
            "cells": np.zeros(query.cells), "measured": np.zeros(query.cells), "spent": 0, "noises": 0,
            "held": np.zeros(walk.registers + 1 if walk else 1, np.int64), "registers": {},
            "prepared": Prepared({}), "answers": answers,
            "root": (
                np.zeros(query.cells), np.zeros((0, query.cells), np.int64), np.zeros((0, query.cells)),
            ),
        }  # fmt: skip

    def drop(self, s: ChannelSession) -> State:
        """Close the session that answers questions. No state is kept."""
        self._ask = None
        if (answers := s.state.get("answers")) is not None:
            answers.close()
        return {}

    def plain(self, state: State) -> State:
        """Return ``state`` in the form that a file contains. ``stored_users`` is empty without requeries."""
        plain = self.plain_messages(state)
        answers = plain.pop("answers")
        return plain | {"stored_users": {} if answers is None else state_of(answers)}

    def from_plain(self, s: ChannelSession, state: State) -> State:
        """Return the state read from a file. Raises ``ValueError`` if the state is invalid."""
        state, walk = self.messages_from_plain(s, state), self.mechanism.walk
        if walk is not None and not isinstance(walk, ExactSquareRoot):
            check_registers(walk, state["held"], state["registers"], self.query.cells, s._released_leaf)
        stored, answers = state.pop("stored_users"), s.state["answers"]
        if answers is not None:
            resume(answers, stored)
        return state | {"answers": answers}

    # -------------------------------------------------------------------------------- users
    def checked(self, s: ChannelSession, given: Any, users: int | None = None) -> Any:
        """Check one record, or the records of ``users`` users, and return copies."""
        return self.query.checked(given, users)

    def device_for(self, session: int) -> LinearDevice:
        """Return the device program for the session with the number ``session``."""
        return _device_of(self.mechanism, self.query, self.draws, session)

    def admit(self, s: ChannelSession, plan: Plan, users: int) -> tuple[Plan, State]:
        """Return the plan to store, and its context."""
        if s.users + users > self.most:
            raise ValueError(f"plan.users = {users}: sums of more than {self.most} users are not exact")
        s._check_no_group(plan)
        return plan, {"prepared": self.query.prepared(plan.context)}

    def encoder(self, s: ChannelSession) -> Encoder:
        """Return the encoder for devices of the newest plan's users. The encoder shares no array with the
        session.
        """
        if not self.local:
            return RawEncoder(s._plans)
        prepared = s.state["prepared"]
        own = Prepared(
            {name: values.copy() for name, values in prepared.values.items()},
            None if prepared.roots is None else prepared.roots.copy(),
        )
        return LinearEncoder(self.query.copy(), self.own_device(s), own, s._plans)

    def add(self, s: ChannelSession, message: Message) -> None:
        """Check a message of the open plan, count its user, and then add the contribution."""
        if self.local:
            sent, nonce = self.sent(s, message)
            own = local_message(sent, self.reach)
            self.count_sender(s, nonce)
            s.state["cells"] += own
            return
        record, answers = s._record(message), s.state["answers"]
        exact = record
        if self.grid is not None:
            rewards = SecureRng().rounded(record.rewards, self.grid)
            checked_on_grid(rewards, self.grid)  # contributions are rounded again
            exact = replace(record, rewards=rewards)
        cells = self.query.to_cells(self.query.user_tables(s.state["prepared"], exact, self.grid))
        s._count(1)
        if answers is not None:
            answers.submit_many(Trajectories.of(record))
        s.state["cells"] += cells

    def add_many(self, s: ChannelSession, records: Trajectories) -> None:
        """Count and add the users of checked records one after another."""
        for record in records:
            self.add(s, Message(s._plans, record))

    def add_absent(self, s: ChannelSession, users: int) -> None:
        """Count absent users, also in the session that answers questions."""
        if (answers := s.state["answers"]) is None:
            return super().add_absent(s, users)
        now = s._users + users, s._absent + users, answers.users + users
        s._users, s._absent, answers._users = now  # one statement without a call, as for other channels

    def add_sum(self, s: ChannelSession, sums: Mapping[str, Floats], users: int, key: Key) -> None:
        """Count simulated users and then add them from exact count tables ``sums`` (``query.simulated``).

        All of them are users of the open plan and have its context. In the local model, the sum of the
        devices' noise is drawn from the exact distribution of that sum.
        """
        answers = s.state["answers"]
        if answers is not None:
            answers.check_counts()
        cells = self.query.to_cells(self.query.sum_tables(s.state["prepared"], sums))
        if self.local:
            assert self.draws is not None
            cells = cells + self.draws.of_users(key, s.users, users)
        s._count(users)
        if answers is not None:
            answers.submit_counts(sums, users)
        s.state["cells"] += cells

    # ----------------------------------------------------------------------------- releases
    def release(self, s: ChannelSession, n: int, leaf: int) -> Released:
        """Return the sums over all users, with their noise."""
        cells, changes = self.noisy(s, n, leaf)
        noises = changes.get("noises", s.state["noises"])
        laws = self.mechanism.laws(self.mechanism.terms(n, leaf, n - s._absent, noises))
        tables = read_only(
            self.query.from_cells(cells if self.draws is None else self.draws.in_values(cells))
        )
        estimates = {name: Estimate(table, laws[name], "sum", n, float(n)) for name, table in tables.items()}
        return estimates, None, changes

    def noisy(self, s: ChannelSession, n: int, leaf: int) -> tuple[Floats, State]:
        """Return the cells with noise, and the changes that close the batch."""
        state, walk = s.state, self.mechanism.walk
        cells: Floats = state["cells"]
        if n == 0 or self.mechanism.stream in ("exact", "local"):
            return cells.copy(), {}
        self.on_grid(cells)
        if isinstance(walk, ExactSquareRoot):
            return self.rooted(s, walk, leaf), {}
        if walk is not None:
            noise, held, registers = prefix_noise(walk, leaf, state["held"], state["registers"], self.draw)
            # one call, so that both values belong to the same time step
            state.update(held=held, registers=registers)
            return self.on_grid(cells + noise), {}
        state["spent"] += 1  # before the draw: an interrupt can lose a draw, but no noise is drawn twice
        measured = state["measured"] + self.on_grid(cells + self.draw(state["spent"], 1.0, 0))
        # when the release is made, the sum of the batch is removed from the cells and added to the
        # measurements
        closed = {
            "cells": np.zeros(self.query.cells), "measured": measured, "noises": state["noises"] + 1,
        }  # fmt: skip
        return measured.copy(), closed

    def on_grid(self, cells: Floats) -> Floats:
        """Return the cells in grid units.

        Raises ``RuntimeError`` if a cell is off the grid of exact noise or too large.
        """
        return cells if self.grid is None else checked_on_grid(cells, 1)

    def draw(self, i: int, factor: float, j: int) -> Floats:
        """Return the noise of every cell at address (i, j). Each address is drawn once."""
        assert self.draws is not None
        if self.key is not None:
            return self.draws.at(self.key, i, j, factor)
        return self.draws.from_coins(SecureRng(), factor)

    def rooted(self, s: ChannelSession, walk: ExactSquareRoot, leaf: int) -> Floats:
        """Return the prefix sum from exact measurements.

        Time steps without a requested release are treated as empty.
        """
        cells, (closed, leaves, readings) = s.state["cells"], s.state["root"]
        while len(leaves) < leaf:
            last = len(leaves) + 1 == leaf
            newest = (cells - closed if last else np.zeros_like(closed)).astype(np.int64)
            leaves = np.concatenate([leaves, newest[None]])
            noisy = walk.measured(leaves) + self.draw(len(leaves), walk.norm, 0).astype(np.int64)
            readings = np.concatenate([readings, noisy[None].astype(np.float64)])
        s.state["root"] = cells.copy(), leaves, readings
        return walk.prefix(readings)

    # ------------------------------------------------------------------------------ questions
    def answer(self, s: ChannelSession) -> Callable[[Response], Estimate]:
        """Return the function that answers the next planned response about all users so far.

        Learners call it after a release, starting with the last step. The function raises ``RuntimeError``
        when no question is due, and ``ValueError`` for a question that differs from the plan. If no users are
        stored, it always raises ``ValueError``.
        """
        if s.state.get("answers") is None:
            return super().answer(s)
        if self._ask is None:
            self._ask = asking(s._answer)
        return self._ask

    def answered(self, s: ChannelSession, question: Response) -> Estimate:
        """Answer a question. The caller must hold the lock."""
        answers = s.state["answers"]
        if not s._fresh or s._number == 0:
            raise RuntimeError("answer: questions are due after a release of at least one user")
        each = len(self.mechanism.questions) // max(1, self.mechanism.schedule.releases or 1)
        if not self.mechanism.schedule.answers and answers.asked >= s._number * each:
            raise RuntimeError(f"answer: all questions of this release are spent, {each} at each")
        found: Estimate = answers.answer(question)
        return found


def _device_of(
    mechanism: LinearMechanism, query: LinearQuery, draws: NoiseDraws | None, session: int
) -> LinearDevice:
    assert draws is not None
    family = "laplace" if draws.family == kernels.LAPLACE else "gaussian"
    offsets, scales, units = draws.offsets.copy(), draws.scales.copy(), draws.units.copy()
    for own in (offsets, scales, units):
        own.flags.writeable = False
    return LinearDevice(query.form, family, offsets, scales, units, mechanism.grid, session)


def _contributions(query: LinearQuery, grid: int | None) -> Floats:
    """Return (blocks,) bounds on one user's contribution to a cell, from the sensitivity of the statistic.

    The bounds are in the units of the cells. The bounds include a factor of 2 for rounding.
    """
    units = query.units("goe")
    own = {(name, h): own for unit in units for name, own in unit.own.items() for h in unit.steps}
    sizes = np.ones(len(query.blocks)) if grid is None else query.block_units(grid)
    return np.array([2.0 * own[name, step] for name, step, _ in query.blocks]) / sizes
