"""The session of linear sums: where users' contributions are added up and noise is drawn.

Calls, and what is refused, are those of :class:`~discreet.privacy.session.CountSession`: one call at a time,
no copies, users counted before anything of theirs is added, a noise's address spent before it is drawn. The
context of a plan is read once, when it begins, into private copies.

Streams. "batches": fresh noise on the sum of each batch between two scheduled releases; release j holds j
noise terms of scale s. "walk": correlated noise on prefix sums (tree and others), a leaf is a batch or
a user. "local": each device adds the noise to its own contribution, k users bring k terms. "exact": none.

Exact noise (secure randomness): contributions are integers on a public grid, truncated so that no contract
breaks (:meth:`LinearQuery.user_tables`), noise is discrete Gaussian or Laplace in the same units, and what
leaves the session is a function of their integer sum. On the square-root walk what is integer, and exact, are
noisy combinations of the batches' sums, of which prefix sums are made afterwards.

With ``query.requeries`` the session keeps the trajectories and answers planned responses about everybody so
far (:class:`Answers`): at each scheduled release, or at most ``schedule.answers`` of them, one question for
each step, from the last to the first.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from discreet.device.linear import LinearDevice, drawn
from discreet.mdp.trajectories import Trajectories, Trajectory, checked
from discreet.numerics import checks
from discreet.privacy import kernels
from discreet.privacy.continual import walks_kernels as walks
from discreet.privacy.continual.exact_square_root import ExactSquareRoot
from discreet.privacy.continual.walk import Walk
from discreet.privacy.encoders import RawEncoder, rounded
from discreet.privacy.guarantee import Guarantee, MechanismRecord
from discreet.privacy.lifecycle import Guarded
from discreet.privacy.linear_laws import GoeLaw, VectorLaw
from discreet.privacy.linear_sums import GramQuery, LinearQuery, Noise, Prepared
from discreet.privacy.protocol import (
    Coins,
    Encoder,
    Estimate,
    Floats,
    Ints,
    Plan,
    Release,
    Report,
    Response,
    Schedule,
    Trust,
    numbered,
)  # fmt: skip
from discreet.privacy.randomness import Randomness, SecureCoins, Seeded
from discreet.privacy.responses import Question, ResponseSession

__all__ = ["Answers", "LinearEncoder", "LinearMechanism", "LinearSession"]

_MOST_UNITS = 2.0**51  # of all contributions to a cell: beside noise they add up exactly in float64


@dataclass(frozen=True, eq=False)
class LinearMechanism:
    """What a privatizer has fixed before data.

    stream : see the module. noise : law of one draw. scales : (n,) by family; empty: exact sums.
    walk : of stream "walk"; leaf : its leaves are batches or users. grid : of rewards, under exact noise.
    """

    stream: Literal["exact", "batches", "walk", "local"]
    noise: Noise
    scales: Mapping[str, Floats]
    walk: Walk | None = None
    leaf: Literal["batch", "user"] = "batch"
    grid: int | None = None

    def __post_init__(self) -> None:
        own = {name: np.array(scales, np.float64) for name, scales in self.scales.items()}
        for scales in own.values():
            scales.flags.writeable = False
        object.__setattr__(self, "scales", MappingProxyType(own))


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
        """The seeded draw at address (i, j)."""
        noise = np.empty(self.offsets[-1])
        kernels.fill_noise(self.family, key, i, j, factor, self.offsets, self.scales, noise)
        return noise

    def of_users(self, key: NDArray[np.uint64], i: int, users: int) -> Floats:
        """The sum of so many devices' noise, from its exact law."""
        noise = np.empty(self.offsets[-1])
        kernels.fill_noise_sum(self.family, key, i, users, self.offsets, self.scales, noise)
        return noise

    def from_coins(self, coins: Coins, factor: float = 1.0) -> Floats:
        """A draw by a device's coins, or by secure ones."""
        family = "laplace" if self.family == kernels.LAPLACE else "gaussian"
        return drawn(family, self.scales, self.offsets, coins, 1 if self.discrete else None, factor)

    def in_values(self, cells: Floats) -> Floats:
        """Cells in the units of the statistics."""
        return cells * np.repeat(self.units, np.diff(self.offsets)) if self.discrete else cells.copy()


@dataclass(frozen=True, eq=False)
class LinearEncoder:
    """What a local user's device runs: her contribution, with noise in every cell.

    The contribution is computed on the device, from the plan's public arrays; only the noisy cells leave it.
    """

    query: LinearQuery
    device: LinearDevice
    prepared: Prepared
    number: int

    def __call__(self, trajectory: Trajectory, plan: Plan, coins: Coins) -> Report:
        """Randomize one checked trajectory. Raises ``ValueError`` on a broken record, on the device."""
        if plan.number not in (0, self.number):
            raise ValueError(f"plan.number = {plan.number}: must be {self.number}, the plan of this encoder")
        record = checked(trajectory, self.query.layout)
        message = self.device.cells(self.prepared, record.states, record.actions, record.rewards, coins)
        return Report(plan=self.number, message=message)


class Answers(ResponseSession):
    """Planned questions about a growing set of users: people may come between questions.

    A user's record enters each answer after she came, once, and none before; given the public arrays of a
    question the answer is mu_i-GDP in her record, so that all are mu-GDP with mu^2 the sum of all mu_i^2, as
    if she had come first (adaptive composition; a schedule does not know when she comes).
    """

    _what = "session of answers"

    def __init__(self, *args: object, **named: object) -> None:
        super().__init__(*args, **named)  # type: ignore[arg-type]
        if self._key is not None:  # not the addresses of the Gram matrices' noise
            digest = hashlib.blake2b(self._key.tobytes(), digest_size=16, person=b"discreet/answers").digest()
            self._key = np.frombuffer(digest, "<u8").astype(np.uint64)

    def _check_unasked(self) -> None:
        """People may come at any time."""

    def submit_counts(self, sums: Mapping[str, Floats], users: int) -> None:
        """Simulated users at once, from exact count tables (seeded randomness only)."""
        with self._call():
            if self._key is None:
                raise ValueError(
                    "submit_counts: must not be used with secure randomness (it is for simulation)"
                )
            if self._taken + users > self._most:
                raise ValueError(f"users = {users}: sums of more than {self._most} episodes are not exact")
            self._users, self._taken = self._users + users, self._taken + users
            self._stored.add_counts(sums["transition_counts"], sums["reward_sums"])


class LinearSession(Guarded):
    """One stream of releases of a :class:`~discreet.privacy.linear_sums.LinearQuery`.

    Made by ``privatizer.start``; see :class:`~discreet.privacy.protocol.Session` for the calls.

    Raises
    ------
    RuntimeError
        On calls out of order, on a closed session, and in another process.
    ValueError
        On a broken record or context (nothing is added) and on more users than the schedule declares.
    """

    def __init__(
        self,
        trust: Trust,
        mechanism: LinearMechanism,
        query: LinearQuery,
        schedule: Schedule,
        randomness: Randomness,
        guarantee: Guarantee,
        records: Sequence[MechanismRecord] = (),
        questions: Sequence[Question] = (),
    ) -> None:
        super().__init__()
        self._trust, self._mechanism, self._query = trust, mechanism, query
        self._schedule, self._guarantee, self._records = schedule, guarantee, tuple(records)
        self._key = randomness.keys.noise.copy() if isinstance(randomness, Seeded) else None
        self._draws = _Draws(mechanism, query) if mechanism.stream != "exact" else None
        self._grid = mechanism.grid
        self._device = _device_of(mechanism, query, self._draws) if mechanism.stream == "local" else None
        self._most = 2**62
        if self._grid is not None:
            self._most = int(_MOST_UNITS / _largest_contribution(query, self._grid))
        self._answers: Answers | None = None
        self._questions = len(questions)
        if isinstance(query, GramQuery) and query.requeries:
            self._answers = Answers(query.layout, query.features, questions, randomness)
        self._times: Ints | None = None if schedule.users is None else schedule.release_times
        self._cells = np.zeros(query.cells)  # batches: of the open batch; else of everybody
        self._measured = np.zeros(query.cells)  # batches: the sum of all closed ones, with their noise
        self._spent = 0  # batches: noises asked for, also by calls that an interrupt ended
        walk = mechanism.walk
        # exact square root: cells when the last leaf closed, (n, cells) leaves, and their measurements
        self._root = np.zeros(query.cells), np.zeros((0, query.cells), np.int64), np.zeros((0, query.cells))
        self._held = np.zeros(walk.registers + 1 if walk else 1, np.int64)
        self._registers: dict[int, Floats] = {}
        self._users = self._absent = self._awaited = self._plans = self._number = 0
        self._plan: Plan | None = None
        self._prepared = Prepared({})
        self._fresh = True  # a release is due: nothing was submitted since the last batch closed
        self._last: Release | None = None

    def _drop(self) -> None:
        super()._drop()
        self._cells = self._measured = np.zeros(0)
        self._registers, self._last = {}, None
        self._root = np.zeros(0), np.zeros((0, 0), np.int64), np.zeros((0, 0))
        if self._answers is not None:
            self._answers.close()

    # -------------------------------------------------------------------------- public facts
    @property
    def guarantee(self) -> Guarantee:
        """Known before any data; never changes."""
        return self._guarantee

    @property
    def records(self) -> tuple[MechanismRecord, ...]:
        """What the guarantee is computed from; empty without privacy."""
        return self._records

    @property
    def users(self) -> int:
        """Users submitted so far (public)."""
        return self._users

    @property
    def query(self) -> LinearQuery:
        """What is summed (a copy: who writes to its arrays moves no sum)."""
        return self._query.copy()

    @property
    def schedule(self) -> Schedule:
        """The public times of release."""
        return self._schedule

    @property
    def scales(self) -> dict[str, Floats]:
        """(n,) scale of one noise term, by family (copies); empty for exact sums."""
        return {name: np.array(scale) for name, scale in self._mechanism.scales.items()}

    @property
    def device(self) -> LinearDevice:
        """What a local user's device must know, to be published once (a copy).

        Raises ``ValueError`` unless the session is local.
        """
        return LinearDevice.from_bytes(self._local.to_bytes())

    @property
    def _local(self) -> LinearDevice:
        if self._device is None:
            raise ValueError("device: must be asked of a local session, users of others send trajectories")
        return self._device

    # ------------------------------------------------------------------------------- people
    def begin(self, plan: Plan) -> Encoder:
        """Open a plan for its users; its context is read here, once."""
        with self._call():
            if self._awaited:
                raise RuntimeError(f"begin: {self._awaited} users of the open plan have not been submitted")
            if type(plan) is not Plan:
                raise ValueError(f"plan = {plan!r}: must be a Plan, and no subclass of it")
            layout = self._query.layout
            shape = (layout.horizon, layout.states)
            if np.shape(plan.policy) not in (shape, (*shape, layout.actions)):
                raise ValueError(
                    f"plan.policy has shape {np.shape(plan.policy)}: must be {shape} or "
                    f"{(*shape, layout.actions)}"
                )
            users = checks.integer("plan.users", plan.users, 1)
            limit = self._schedule.users
            if limit is not None and self._users + users > limit:
                raise ValueError(
                    f"plan.users = {users}: {self._users} of {limit} declared users have come, "
                    f"at most {limit - self._users} are left"
                )
            if self._users + users > self._most:
                raise ValueError(f"plan.users = {users}: sums of more than {self._most} users are not exact")
            if plan.query is not None:
                raise ValueError("plan.query: must be None, this session answers its standing query only")
            if plan.group is not None or plan.return_share is not None or plan.forget:
                raise ValueError("plan.group, return_share, forget: are for queries with groups only")
            prepared = self._query.prepared(plan.context)
            self._plans += 1
            self._plan, self._prepared = numbered(plan, self._plans), prepared
            self._fresh, self._awaited = False, users
            return self._encoder()

    def _encoder(self) -> Encoder:
        if self._mechanism.stream != "local":
            return RawEncoder(self._plans)
        own = Prepared(
            {name: values.copy() for name, values in self._prepared.values.items()},
            None if self._prepared.roots is None else self._prepared.roots.copy(),
        )
        return LinearEncoder(self._query, self._local, own, self._plans)

    @property
    def open_plan(self) -> Plan:
        """The plan whose users are coming, with its number. Raises ``RuntimeError`` if none is open."""
        if self._plan is None or not self._awaited:
            raise RuntimeError("no plan is open: call begin first")
        return self._plan

    def _count(self, users: int) -> None:
        """Users come: before anything of theirs is added, so that no record is ever added twice."""
        self._users += users
        self._awaited -= users

    def submit(self, report: Report) -> None:
        """Add one user's report. Raises ``ValueError`` (and adds nothing) if it is broken or late."""
        with self._call():
            number = self.open_plan.number
            if report.plan != number:
                raise ValueError(f"report.plan = {report.plan}: must be {number}, the plan that is open")
            if self._mechanism.stream == "local":
                if report.message is None:
                    raise ValueError("report.message = None: a local session takes randomized messages only")
                if report.trajectory is not None:
                    raise ValueError("report.trajectory: must be None, raw data must not leave the device")
                message = report.message
                if isinstance(message, bytes):
                    message = self._local.read(number, message)
                message = checks.floats("report.message", message, (self._query.cells,))
                self._count(1)
                self._cells += message
                return
            if report.trajectory is None:
                raise ValueError("report.trajectory = None: this session takes trajectories")
            record = checked(report.trajectory, self._query.layout)
            exact = rounded(record, SecureCoins(), self._grid)
            cells = self._query.to_cells(self._query.user_tables(self._prepared, exact, self._grid))
            self._count(1)
            if self._answers is not None:
                one = Trajectories(record.states[None], record.actions[None], record.rewards[None])
                self._answers.submit_many(one)
            self._cells += cells

    def absent(self, users: int = 1) -> None:
        """Count people who sent nothing: the null contribution, still among the public users."""
        with self._call():
            users = checks.integer("users", users, 1, self._awaited if self.open_plan else 0)
            self._count(users)
            self._absent += users
            if self._answers is not None:
                self._answers.absent(users)

    def submit_sum(self, sums: Mapping[str, Floats], users: int) -> None:
        """Add simulated users at once from their exact count tables (``query.simulated``).

        All are users of the open plan, under its context; noise of a local model is drawn from the exact law
        of its sum. For simulation only: raises ``ValueError`` under secure randomness.
        """
        with self._call():
            if self._key is None:
                raise ValueError("submit_sum: must not be used with secure randomness (it is for simulation)")
            users = checks.integer("users", users, 1, self._awaited if self.open_plan else 0)
            cells = self._query.to_cells(self._query.sum_tables(self._prepared, sums))
            if self._mechanism.stream == "local":
                assert self._draws is not None
                cells = cells + self._draws.of_users(self._key, self._users, users)
            self._count(users)
            if self._answers is not None:
                self._answers.submit_counts(sums, users)
            self._cells += cells

    # ----------------------------------------------------------------------------- releases
    def release(self) -> Release:
        """Noisy sums of all users so far; its arrays are read-only.

        After a plan with ``last=False``, and when nobody came since, the previous release again.
        """
        with self._call():
            if self._awaited:
                raise RuntimeError(f"release: {self._awaited} users of the open plan have not been submitted")
            if self._last is not None and (self._fresh or (self._plan is not None and not self._plan.last)):
                return self._last
            n, schedule = self._users, self._schedule
            if schedule.users is not None and n >= schedule.users + schedule.final > 0:
                raise RuntimeError(
                    f"release: all {n} declared users have come, nobody is left to use a release"
                )
            if schedule.max_releases is not None and n > 0 and self._number >= schedule.max_releases:
                raise RuntimeError(
                    f"release: all {schedule.max_releases} releases of the schedule have been made"
                )
            laws = self._laws(n, n - self._absent)
            cells = self._noisy(n, self._leaf(n))
            self._number = 0 if n == 0 else self._number + 1
            values = cells if self._draws is None else self._draws.in_values(cells)
            self._last = Release(
                self._estimates(values, laws, n), users=n, number=self._number,
                guarantee=self._guarantee,
            )  # fmt: skip
            self._fresh = True
            return self._last

    def _leaf(self, n: int) -> int:
        """How many leaves the first n users fill. Raises ``RuntimeError`` between scheduled releases."""
        if self._times is None:
            return n
        at = int(np.searchsorted(self._times, n))
        if at == self._times.size or self._times[at] != n:
            raise RuntimeError(f"release: {n} users is not one of the scheduled times of release")
        return n if self._mechanism.leaf == "user" else at

    def _noisy(self, n: int, leaf: int) -> Floats:
        """Cells with their noise."""
        stream, walk = self._mechanism.stream, self._mechanism.walk
        if n == 0 or stream in ("exact", "local"):
            return self._cells.copy()
        if isinstance(walk, ExactSquareRoot):
            return self._rooted(walk, leaf)
        if walk is not None:
            return self._cells + self._walked(walk, leaf)
        self._spent += 1  # before the draw: an interrupt may cost a noise, never draws it twice
        fresh = self._cells + self._draw(self._spent, 0, 1.0)
        # one statement, no call: the batch leaves the cells when its measurement is where sums are made from
        self._cells, self._measured = np.zeros(self._query.cells), self._measured + fresh
        return self._measured.copy()

    def _terms(self, n: int, senders: int) -> tuple[float, float]:
        """Noise terms of the release after n users, and the most of any up to it: public."""
        stream, walk = self._mechanism.stream, self._mechanism.walk
        if n == 0 or stream == "exact":
            return 0.0, 0.0
        if stream == "local":
            return float(senders), float(senders)
        leaf = self._leaf(n)
        if walk is not None:
            return walk.terms(leaf), walk.most(leaf)
        return float(leaf), float(leaf)

    def _draw(self, i: int, j: int, factor: float) -> Floats:
        assert self._draws is not None
        if self._key is not None:
            return self._draws.at(self._key, i, j, factor)
        return self._draws.from_coins(SecureCoins(), factor)

    def _walked(self, walk: Walk, leaf: int) -> Floats:
        """The noise of the prefix, made by the walk's program as in ``CountSession``.

        It goes on in a copy of the registers that takes the place of the old ones in one statement.
        """
        links, weights = np.zeros((walk.operations, 6), np.int64), np.zeros((walk.operations, 4))
        code, ints, floats = walk.code, walk.ints, np.array(walk.floats)
        held, registers = self._held.copy(), dict(self._registers)
        while held[-1] < leaf:
            at, operations = walks.next_ops(code, ints, floats, held, leaf, links, weights)
            for (target, one, two, i, j, label), (c1, c2, cd, scale) in zip(
                links[:operations].tolist(), weights[:operations].tolist(), strict=True
            ):
                parts = [c * registers[source] for c, source in ((c1, one), (c2, two)) if source >= 0]
                if cd != 0.0:
                    parts.append(cd * self._draw(i, j, scale))
                registers[target], held[target] = sum(parts[1:], parts[0]), label
            held[-1] = at
        self._held, self._registers = held, registers
        return registers[int(walks.register_of(code, ints, leaf))]

    def _rooted(self, walk: ExactSquareRoot, leaf: int) -> Floats:
        """The prefix sum from exact measurements; leaves of releases that nobody asked for are empty."""
        closed, leaves, readings = self._root
        while len(leaves) < leaf:
            last = len(leaves) + 1 == leaf
            newest = (self._cells - closed if last else np.zeros_like(closed)).astype(np.int64)
            leaves = np.concatenate([leaves, newest[None]])
            noisy = walk.measured(leaves) + self._draw(leaf, 0, walk.norm).astype(np.int64)
            readings = np.concatenate([readings, noisy[None].astype(np.float64)])
        self._root = self._cells.copy(), leaves, readings
        return walk.prefix(readings)

    def laws_at(self, n: int) -> dict[str, GoeLaw | VectorLaw]:
        """Laws of the release after n users if all of them send something; from public numbers, by family."""
        return self._laws(n, n)

    def _laws(self, n: int, senders: int) -> dict[str, GoeLaw | VectorLaw]:
        found: dict[str, GoeLaw | VectorLaw] = {}
        mechanism, releases = self._mechanism, self._schedule.releases or 2**31
        laplace, discrete = mechanism.noise == "laplace", mechanism.grid is not None
        for name, shape in self._query.families.items():
            scales = mechanism.scales.get(name, np.zeros(shape[0]))
            at = (tuple(scales.tolist()), *self._terms(n, senders))
            if self._query.is_gram(name):
                diagonal = 2.0 if mechanism.noise == "goe" else 1.0
                found[name] = GoeLaw(*at, shape[1], releases, laplace, discrete, diagonal)
            else:
                size = math.prod(shape[1:])
                found[name] = VectorLaw(*at, shape[-1], releases, laplace, discrete, size)
        return found

    def _estimates(
        self, cells: Floats, laws: Mapping[str, GoeLaw | VectorLaw], n: int
    ) -> dict[str, Estimate]:
        tables = self._query.from_cells(cells)
        for table in tables.values():
            table.flags.writeable = False
        return {name: Estimate(table, laws[name], "sum", n, float(n)) for name, table in tables.items()}

    # ------------------------------------------------------------------------------ questions
    @property
    def answer(self) -> Callable[[Response], Estimate]:
        """The next planned response about all users so far: after a release, the last step first.

        Raises ``RuntimeError`` when no question is due, ``ValueError`` for another one than is planned.
        """
        return _no_answer if self._answers is None else self._answer

    def _answer(self, question: Response) -> Estimate:
        with self._call():
            answers = self._answers
            assert answers is not None
            if not self._fresh or self._number == 0:
                raise RuntimeError("answer: questions are due after a release of at least one user")
            each = self._questions // max(1, self._schedule.releases or 1)
            if not self._schedule.answers and answers.asked >= self._number * each:
                raise RuntimeError(f"answer: all questions of this release are spent, {each} at each")
            return answers.answer(question)


def _device_of(mechanism: LinearMechanism, query: LinearQuery, draws: _Draws | None) -> LinearDevice:
    assert draws is not None
    family = "laplace" if draws.family == kernels.LAPLACE else "gaussian"
    number = int.from_bytes(os.urandom(8), "little") if mechanism.grid is not None else 0
    offsets, scales, units = draws.offsets.copy(), draws.scales.copy(), draws.units.copy()
    for own in (offsets, scales, units):
        own.flags.writeable = False
    return LinearDevice(query.form, family, offsets, scales, units, mechanism.grid, number)


def _no_answer(question: Response) -> NoReturn:
    """Of sessions that store nobody; no method, since learners are handed it."""
    raise ValueError("answer: this session stores no users, so it answers no new question")


def _largest_contribution(query: LinearQuery, grid: int) -> float:
    """A bound on the units of one user in a cell: an entry of a statistic is at most its sensitivity."""
    largest = 1.0
    for unit in query.units("goe"):
        for name, own in unit.own.items():
            largest = max(largest, 2.0 * own / query.unit(name, unit.step, grid))
    return largest
