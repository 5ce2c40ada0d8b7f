"""Shuffle model for sums over users with real-valued contexts: devices add shares of Skellam noise.

The parties, the batches and the assumptions are those of :mod:`discreet.mechanisms.shuffle.shuffle_session`.
The message of a device (:mod:`discreet.device.skellam_device`) contains the integers of one user's
contribution plus integer noise. The shuffler adds up the messages of a batch and publishes only the sums. If
a batch has fewer messages than the number of honest users in the privacy accounting, it is deleted and no sum
is published.

*Guarantee.* In a batch, at least n_h users follow the protocol, so the sums contain Skellam noise of at least
n_h times the variance of one device. The sensitivities are derived in :mod:`discreet.device.skellam_device`,
and the loss in :mod:`discreet.accounting.skellam_loss`. Each user is in one batch, and plans are functions of
earlier releases, so all batches together have the loss of the worst batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from discreet.accounting.noise_distributions.linear_noise import GoeLaw, VectorLaw
from discreet.accounting.skellam_event import SkellamRecord
from discreet.accounting.skellam_loss import SkellamLoss
from discreet.core import checks
from discreet.core.call_protocols import Encoder
from discreet.core.count_mechanism import Stated
from discreet.core.protocols import Coins
from discreet.core.raw_encoder import same_plan
from discreet.core.releases import Estimate, Floats, Ints, Message, Plan, Schedule, read_only
from discreet.core.rng import Key, Randomness
from discreet.core.session import ChannelSession
from discreet.core.short_repr import brief
from discreet.device.linear_forms import GRAM, RESPONSE
from discreet.device.message_envelope import MessageRejected
from discreet.device.message_guarantee import MessageGuarantee
from discreet.device.shuffle_encoder import BitCoins
from discreet.device.skellam_device import REWARD_LEVELS, SkellamDevice, levels_of
from discreet.mechanisms.linear.context_query import ContextQuery, ContextRecord, ContextRecords
from discreet.mechanisms.shuffle.shuffle_mechanisms import ShuffledMechanism
from discreet.mechanisms.shuffle.shuffle_session import Inbox, ShuffledChannel

# ---------------------------------------------------------------------------------- mechanism


def _targets(query: ContextQuery, scale: float) -> list[float]:
    """Return the variance of the noise of each block of cells in squared units.

    scale : scale of the noise of the responses.
    """
    unit = 2.0 ** -levels_of(query.features.dimension)
    found = []
    for name, _, diagonal in query.blocks:
        units = query.gram_ratio * scale / unit**2 if name == GRAM else scale / (unit / REWARD_LEVELS)
        found.append(units * units * (2.0 if diagonal else 1.0))
    return found


def _loss(query: ContextQuery, variances: Sequence[float]) -> SkellamLoss:
    """Return the loss of sums whose noise has these variances, in squared units of each block of cells."""
    p = query.features.dimension
    unit = 2.0 ** -levels_of(p)
    units = {GRAM: unit * unit, RESPONSE: unit / REWARD_LEVELS}
    scales: dict[tuple[str, int], float] = {}
    least = dict.fromkeys(units, math.inf)
    for (name, block, diagonal), v in zip(query.blocks, variances, strict=True):
        own = math.sqrt(v / 2.0 if diagonal else v) * units[name]
        scales[name, block] = min(own, scales.get((name, block), math.inf))
        least[name] = min(least[name], v)
    (mu,) = query.form.losses(scales, False)
    steps = [1.0 / units[name] / least[name] for name in units]
    l1 = (p + 1) * steps[0] + math.sqrt(p) * steps[1]
    return SkellamLoss(mu, l1, max(steps), 1.0 / min(units.values()), min(least.values()))


def skellam_mechanism(
    query: ContextQuery,
    schedule: Schedule,
    randomness: Randomness,
    honest: Sequence[int],
    epsilon: float,
    delta: float,
) -> SkellamMechanism:
    """Return the mechanism for batches with the numbers ``honest`` of honest users.

    The noise scale is the least, up to a relative 1e-6, whose loss is at most ``epsilon`` at ``delta``.

    Raises ``ValueError`` if no noise scale up to 10^4 is enough.
    """
    low, high = 1e-3, 1e4
    if _loss(query, _targets(query, high)).epsilon(delta) > epsilon:
        raise ValueError(f"epsilon = {epsilon!r}: no noise scale up to {high:g} is enough")
    while high > low * (1 + 1e-6):
        middle = math.sqrt(low * high)
        enough = _loss(query, _targets(query, middle)).epsilon(delta) <= epsilon
        low, high = (low, middle) if enough else (middle, high)
    stated = Stated(delta, epsilon)
    return SkellamMechanism(query, schedule, randomness.kind, stated, high, tuple(honest))


@dataclass(frozen=True, eq=False)
class SkellamMechanism(ShuffledMechanism):
    """Mechanism of sums over contexts with Skellam noise of all devices of a batch.

    Parameters
    ----------
    query : ContextQuery
        Query that defines the sums.
    schedule : Schedule
        Public times of release, which are the ends of the batches. The number of users must be known.
    source : "seeded" or "secure"
        Source of randomness.
    stated : Stated
        The delta in (0, 1) at which epsilon is stated.
    scale : float
        Standard deviation of the noise of honest users in a response of a batch, above 0.
    honest : tuple of int, one for each batch
        Number of honest users. A batch is released only if at least that number of messages arrived.

    Raises
    ------
    ValueError
        If a part has another type or does not fit, or no epsilon holds.
    """

    __repr__ = brief
    __reduce__ = checks.by_constructor

    query: Any
    scale: float = 1.0
    honest: tuple[int, ...] = ()

    asks: ClassVar[type] = ContextQuery
    bits: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "scale", checks.positive("scale", self.scale))
        object.__setattr__(self, "honest", tuple(self.honest))
        if len(self.honest) != len(self.sizes):
            raise ValueError(f"honest has {len(self.honest)} entries: must have {len(self.sizes)}")
        for i, (honest, size) in enumerate(zip(self.honest, self.sizes, strict=True)):
            checks.integer(f"honest[{i}]", honest, 1, size)
            device = SkellamDevice(self.query.form, self.variances(i))
            if size * int(device.reach.max()) > 2**62:
                raise ValueError(f"scale = {self.scale!r}: sums of {size} users do not fit into 64 bits")
        _ = self.guarantee

    def variances(self, batch: int) -> tuple[int, ...]:
        """Return the variance of one device's noise in each block of cells, in squared units."""
        users = self.honest[batch]
        return tuple(2 * math.ceil(v / (2 * users)) for v in _targets(self.query, self.scale))

    @cached_property
    def records(self) -> tuple[SkellamRecord, ...]:
        """Privacy record with the noise of the honest users of each kind of batch."""
        batches = {}
        for batch, users in enumerate(self.honest):
            if users not in batches:
                loss = _loss(self.query, [float(users * v) for v in self.variances(batch)])
                batches[users] = (users, loss.mu, loss.l1, loss.step, loss.shift, loss.variance)
        words = "matrix and response of contexts in integers with a share of the noise"
        return (SkellamRecord(words, tuple(batches[users] for users in sorted(batches))),)

    @property
    def batches(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Pair (users, variances of a device) for every scheduled batch, in order."""
        return tuple((size, self.variances(i)) for i, size in enumerate(self.sizes))

    # ----------------------------------------------------------------- noise distributions
    def noise_of(self, variances: Sequence[int], users: int) -> list[tuple[float, ...]]:
        """Return the variance of the noise of ``users`` users, for each family, as a tuple of one number."""
        query, found = self.query, dict.fromkeys(self.query.families, 0.0)
        unit = 2.0 ** -levels_of(query.features.dimension)
        for (name, _, diagonal), v in zip(query.blocks, variances, strict=True):
            own = unit**4 if name == GRAM else (unit / REWARD_LEVELS) ** 2
            found[name] = max(found[name], users * v * own / (2.0 if diagonal else 1.0))
        return [(found[name],) for name in query.families]

    def scheduled(self, batch: int, users: int) -> list[Any]:
        """Return the variance of the noise of ``users`` users of a batch, for each family."""
        return self.noise_of(self.variances(batch), users)

    def merged(self, old: Any, new: Any) -> Any:
        """Return the variances of ``old`` and ``new`` together, as a tuple of one number."""
        return (math.fsum([*old, *new]),)

    def law(self, family: int, components: Any) -> GoeLaw | VectorLaw:
        """Return the noise distribution of a family. It has the quantiles of the Gaussian distribution.

        family : index of the family. components : tuple of one variance, or an empty tuple.
        """
        name, shape = list(self.query.families.items())[family]
        (variance,) = components or (0.0,)
        at = ((1.0,) * shape[0], variance, variance, shape[-1], self.schedule.releases or 1, False, True)
        return GoeLaw(*at, 2.0) if name == GRAM else VectorLaw(*at, math.prod(shape[1:]))


# -------------------------------------------------------------------------------- three parties


@dataclass(frozen=True, eq=False)
class SkellamEncoder:
    """Encoder of a device in a session. The encoder checks the record and converts it to one message.

    query : query of the session. device : form of the batch. number : number of the plan.

    secure : True if the session guarantees exact noise. Seeded random generators are then rejected.
    """

    __repr__ = brief

    query: ContextQuery
    device: SkellamDevice
    number: int
    secure: bool

    @property
    def guarantee(self) -> MessageGuarantee:
        """Privacy guarantee of one message without the shuffler."""
        return self.device.guarantee

    def __call__(self, trajectory: Any, plan: Plan, coins: Coins) -> Message:
        """Return the message of one record.

        Raises ``ValueError`` for an invalid record or another plan. Nothing is sent in these cases.
        """
        number = same_plan(self.number, plan)
        if self.secure and not coins.exact:
            raise ValueError(f"coins = {coins!r}: this session needs SecureRng()")
        if not isinstance(coins, BitCoins):
            raise ValueError(f"coins = {coins!r}: must draw words of random bits")
        record = self.query.checked(trajectory)
        return Message(plan=number, message=self.device(number, *self.query.parts(record), coins))


@dataclass(frozen=True, eq=False)
class BatchSum:
    """Output of the shuffler for a batch.

    users : number of accepted messages. cells : (cells,) sums of their integers.
    """

    __repr__ = brief

    users: int
    cells: Ints


class SumShuffler(Inbox):
    """Shuffler that adds up the messages of one batch and publishes the sums.

    Parameters
    ----------
    query : ContextQuery
        Query of the session.
    variances : tuple of int
        Variance of one device's noise in each block of cells.
    session : int
        Number of the session.
    least : int
        Number of messages that the privacy accounting assumes. With fewer messages, nothing is released.
    """

    _BOUND = ("query", "variances", "session", "least")
    _STATE = (*Inbox._STATE, "_sums")

    def __init__(self, query: ContextQuery, variances: tuple[int, ...], session: int, least: int) -> None:
        super().__init__(least)
        self.query, self.variances, self.session = query, variances, session
        self.device = SkellamDevice(query.form, variances, session)
        self._sums = np.zeros(query.cells, np.int64)

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Public parameters as values that can be compared."""
        return self.device.digest, self.least

    @classmethod
    def of_batch(cls, mechanism: SkellamMechanism, batch: int, session: int) -> SumShuffler:
        """Return a new shuffler of a scheduled batch. session : number of the session."""
        return cls(mechanism.query, mechanism.variances(batch), session, mechanism.honest[batch])

    def check_numbers(self, users: int, plans: int, awaited: int) -> None:
        """Raise ``ValueError`` if the numbers of messages and the sums cannot be those of a session."""
        super().check_numbers(users, plans, awaited)
        most = np.repeat(self.device.reach, np.diff(self.query.offsets)) * self._received
        if self._sums.shape != most.shape or (np.abs(self._sums) > most).any():
            raise ValueError(f"_sums: must be sums of the messages of {self._received} users")

    def receive(self, message: Any) -> None:
        """Add one message, or count it as rejected and raise ``MessageRejected``."""
        try:
            nonce, cells = self.device.read(self._plan, message)
            self._check_new(nonce)
        except MessageRejected as refusal:
            self._refused[refusal.reason] += 1
            raise
        # After an interrupt between these lines, the batch has one user fewer.
        self._nonces.add(nonce)
        self._left -= 1
        self._count(cells, 1)

    def receive_many(self, batch: Sequence[Any]) -> int:
        """Add many messages, count the invalid ones as rejected, and return the number of accepted ones."""
        before = self._received
        for message in batch:
            with suppress(MessageRejected):
                self.receive(message)
        return self._received - before

    def _count(self, cells: Ints, users: int) -> None:
        # One statement without a call, so that no user is counted without the user's noise.
        self._sums, self._received = self._sums + cells, self._received + users

    def add_simulated(self, cells: Ints, users: int) -> None:
        """Add the sum ``cells`` of the messages of simulated users."""
        self._left -= users
        self._count(cells, users)

    def add_counted(self, counted: BatchSum, most: int) -> int:
        """Add the output of the same batch's shuffler in another process. Return the number of its users.

        Raises ``ValueError`` unless ``counted`` is a possible output for 1 to ``most`` users.
        """
        if type(counted) is not BatchSum:
            raise ValueError(f"counted is a {type(counted).__name__}: must be what a SumShuffler lets out")
        users, cells = checks.integer("counted.users", counted.users, 1, most), counted.cells
        reach = np.repeat(self.device.reach, np.diff(self.query.offsets))
        if not isinstance(cells, np.ndarray) or cells.shape != reach.shape or cells.dtype != np.int64:
            raise ValueError(f"counted.cells: must be {reach.size} integers")
        if (cells > reach * users).any() or (cells < -reach * users).any():
            raise ValueError(f"counted.cells: must be sums of the messages of {users} users")
        self._count(cells, users)
        return users

    def output(self) -> BatchSum:
        """Return the sums of the batch and delete them.

        The sums are also deleted if :class:`~discreet.mechanisms.shuffle.shuffle_session.BatchTooSmall` is
        raised.
        """
        found = BatchSum(self._received, self._sums)
        self._sums, self._nonces, self._received, self._left = np.zeros_like(found.cells), set(), 0, 0
        self._check_enough(found.users)
        return found


# ------------------------------------------------------------------------------------- channel


class SkellamChannel(ShuffledChannel):
    """Channel of sums over contexts with Skellam noise of all devices of a batch.

    In simulation, ``submit_sum`` takes the sums of truncated contributions in the units of
    :class:`~discreet.device.skellam_device.SkellamDevice` (``device.sums``).
    """

    record: ClassVar[type] = ContextRecord
    records: ClassVar[type] = ContextRecords
    shuffles = SumShuffler
    made_of = SkellamMechanism

    def check_policy(self, s: ChannelSession, plan: Plan) -> None:
        """Raise ``ValueError`` unless the policy of a plan is a finite table of coefficients (blocks, p)."""
        self.query.check_coefficients(plan.policy)

    def checked(self, s: ChannelSession, given: Any, users: int | None = None) -> Any:
        """Check one record, or the records of ``users`` users, and return copies."""
        return self.query.checked(given, users)

    def open_device(self, s: ChannelSession) -> SkellamDevice:
        """Return the device program for the newest plan's users."""
        device: SkellamDevice = s.state["shufflers"][-1].device
        return device

    def encoder(self, s: ChannelSession) -> Encoder:
        """Return the encoder for devices of the newest plan's users."""
        return SkellamEncoder(self.query.copy(), self.open_device(s), s._plans, self.key is None)

    def simulated(
        self, s: ChannelSession, sums: Mapping[str, Floats], users: int, key: Key
    ) -> tuple[Any, ...]:
        """Return the sums of the messages of ``users`` simulated users.

        Their noise is drawn from its distribution, as a difference of two Poisson variables for each cell.
        """
        device = self.open_device(s)
        own = self.query.to_cells(self.query.sum_tables(None, sums)) / device.cell_units
        reach = users / device.cell_units
        if (own != np.round(own)).any() or (np.abs(own) > reach).any():
            raise ValueError(f"sums: must be truncated contributions of {users} users, in whole units")
        source = np.random.Generator(np.random.Philox(np.random.SeedSequence([*key.tolist(), s.users])))
        half = np.repeat([users * v // 2 for v in device.variances], np.diff(self.query.offsets))
        return (own.astype(np.int64) + source.poisson(half) - source.poisson(half),)

    def read_out(self, shuffler: Any) -> tuple[Floats, list[Any], int]:
        """Return (sums, variances of noise by family, users) of one batch and delete the batch."""
        summed: BatchSum = shuffler.output()
        noise = self.mechanism.noise_of(shuffler.variances, summed.users)
        return summed.cells * shuffler.device.cell_units, noise, summed.users

    def estimates(self, cells: Floats, components: Sequence[Any], users: int) -> dict[str, Estimate]:
        """Return the estimates of both families."""
        tables = read_only(self.query.from_cells(cells.copy()))
        return {
            name: Estimate(tables[name], self.mechanism.law(i, components[i]), "sum", users, float(users))
            for i, name in enumerate(self.query.families)
        }
