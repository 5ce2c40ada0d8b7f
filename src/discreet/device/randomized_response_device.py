r"""Device for randomized reports of a few random steps: sampling, randomization, one message.

A device draws m of the H steps uniformly without replacement. For each of them it draws whether to report the
reward or the move. Then it randomizes one element of a finite alphabet. The alphabets, the randomizers and
the proofs are in :mod:`discreet.mechanisms.local.randomized_response`; this module has the code.

The payload of a message is 32-bit integers, signed, little-endian. Each reported step, ascending, is written
as (step, 0 for a move or 1 for a reward, number of elements, the elements ascending). The length of the
payload is a function of the reports, so it reveals no more than they do.

Privacy loss of one message (:attr:`ReportDevice.guarantee`): there are m reports with independent randomness,
and the likelihood ratio of each between any two elements of its alphabet is at most e^(epsilon / m). Steps
and alphabets are drawn independently of the data. Therefore epsilon = m times the largest logarithm of a
ratio, computed from the probabilities in use (integers over 2^53). A form for a shuffler is marked as such;
its numbers are for the message without the shuffler.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from discreet.device import session_config as forms
from discreet.device.discrete_noise import ExactCoins
from discreet.device.message_envelope import (
    Envelope,
    MessageRejected,
    WordCoins,
    drawn_nonce,
    integer,
    opened,
)
from discreet.device.message_guarantee import MessageGuarantee
from discreet.device.shuffle_encoder import checked_life

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Plans = Literal["any", "deterministic", "stochastic"]
Found = list[tuple[int, int, Ints]]
"""(step, about, marks (d,)) of each report of a message."""

GRID = 2**53
MOVES, REWARDS_BIT = 0, 1  # subject of a report

__all__ = [
    "GRID", "MOVES", "REWARDS_BIT", "Found", "Plans", "Randomizer", "ReportCoins", "ReportDevice", "Reports",
    "decoded", "drawn", "log_ratio",
]  # fmt: skip


class ReportCoins(Protocol):
    """Random generator of a device: :class:`~discreet.device.discrete_noise.ExactCoins`, or the library's."""

    def below(self, n: int) -> int: ...
    def flip(self, numerator: int) -> bool: ...


class AllCoins(ReportCoins, WordCoins, Protocol):
    """Random generator for a report and its nonce."""


# ------------------------------------------------------------------------------ one randomizer


@dataclass(frozen=True)
class Randomizer:
    """Randomizer of one element among d.

    Parameters
    ----------
    unary : True for optimised unary encoding, else subset selection.
    elements : d.
    size : w, of a subset.
    own : numerator over 2^53 of the probability that the own element is reported.
    other : numerator over 2^53 of the probability that a given other element is reported (only for unary
        encoding, else 0).
    """

    unary: bool
    elements: int
    size: int
    own: int
    other: int

    @property
    def p(self) -> Fraction:
        """Probability p that the own element is reported."""
        return Fraction(self.own, GRID)

    @property
    def q(self) -> Fraction:
        """Probability q that a given other element is reported."""
        if self.unary:
            return Fraction(self.other, GRID)
        if self.elements == 1:
            return Fraction(0)
        return (self.p * (self.size - 1) + (1 - self.p) * self.size) / (self.elements - 1)

    @property
    def ratio(self) -> Fraction:
        """The largest likelihood ratio of an output between two elements."""
        p, q = self.p, self.q
        if self.elements == 1:
            return Fraction(1)
        if self.unary:
            return max(p * (1 - q) / (q * (1 - p)), q * (1 - p) / (p * (1 - q)))
        inside = p * (self.elements - self.size)
        outside = (1 - p) * self.size
        return max(inside / outside, outside / inside)

    @cached_property
    def moments(self) -> tuple[float, float, float, float, float]:
        """Return (p - q, var of own bit, of another, cov of own and another, of two others), as floats."""
        p, q, d, w = self.p, self.q, self.elements, self.size
        both = others = Fraction(0)
        if not self.unary and d > 1:
            both = p * Fraction(w - 1, d - 1) - p * q
        if not self.unary and d > 2:
            pair = p * (w - 1) * (w - 2) + (1 - p) * w * (w - 1)
            others = pair / ((d - 1) * (d - 2)) - q * q
        return float(p - q), float(p * (1 - p)), float(q * (1 - q)), float(both), float(others)

    @property
    def spread(self) -> float:
        """Return the mean over the elements of the variance of the debiased bit: (1 - 1/d) v_0 + v_1 / d."""
        gap, own, other, *_ = self.moments
        return ((self.elements - 1) * other + own) / (self.elements * gap * gap)

    def draw(self, element: int, coins: ReportCoins) -> list[int]:
        """Return the reported elements, ascending."""
        if self.unary:
            return [e for e in range(self.elements) if coins.flip(self.own if e == element else self.other)]
        kept = coins.flip(self.own)
        others = self.elements - 1
        taken: set[int] = set()
        # Floyd's algorithm: a uniform subset of the other elements
        for j in range(others - self.size + kept, others):
            t = coins.below(j + 1)
            t = t + 1 if t >= element else t
            if t in taken:
                t = j + 1 if j >= element else j
            taken.add(t)
        return sorted(taken | {element}) if kept else sorted(taken)


def log_ratio(one: Randomizer) -> float:
    """Return the logarithm of :attr:`Randomizer.ratio`, which is also accurate if the ratio is near 1.

    The result is infinite if an output is impossible for an element.
    """
    if one.elements == 1:
        return 0.0
    if not 0 < one.own < GRID or (one.unary and not 0 < one.other < GRID):
        return math.inf
    ratio = one.ratio
    if ratio < 2:
        return math.log1p(float(ratio - 1))
    return math.log(ratio.numerator) - math.log(ratio.denominator)


# ------------------------------------------------------------------------------ reports


class Reports(Protocol):
    """Interface of the public parameters of reports: :class:`ReportDevice`, or the server's version of it."""

    @property
    def steps(self) -> int: ...
    @property
    def share(self) -> int: ...
    @property
    def counted(self) -> int: ...
    def randomizer(self, about: int, stochastic: bool) -> Randomizer: ...


def drawn(
    reports: Reports, row_table: Ints, policy_rows: Ints | None, states: Ints, rows: Ints, rewards: Floats,
    coins: ReportCoins,
) -> list[int]:  # fmt: skip
    """Draw the integers of one message from states (T + 1,), rows and rewards (T,) of T reportable steps.

    policy_rows : (T, S) rows that a deterministic policy selects; None: the alphabet has all pairs. A user
    who did not follow the policy has a record outside the alphabet, and reports a uniformly drawn element.
    """
    message: list[int] = []
    for h in _steps(reports, coins):
        about = int(reports.share > 0 and coins.flip(reports.share))
        one = reports.randomizer(about, policy_rows is None)
        element = _element(row_table.shape[0], policy_rows, states, rows, rewards, h, about, coins)
        hits = one.draw(coins.below(one.elements) if element is None else element, coins)
        message += [h, about, len(hits), *hits]
    return message


def _steps(reports: Reports, coins: ReportCoins) -> list[int]:
    """Draw a uniform subset of m steps (Floyd's algorithm), ascending."""
    horizon, chosen = reports.counted, set[int]()
    for j in range(horizon - reports.steps, horizon):
        t = coins.below(j + 1)
        chosen.add(j if t in chosen else t)
    return sorted(chosen)


def _element(
    size: int, policy_rows: Ints | None, states: Ints, rows: Ints, rewards: Floats, h: int, about: int,
    coins: ReportCoins,
) -> int | None:  # fmt: skip
    """Return the index of the record in the alphabet; None if the user did not follow the policy."""
    s, row = int(states[h]), int(rows[h])
    if policy_rows is not None and row != policy_rows[h, s]:
        return None
    group = row if policy_rows is None else s
    if about == MOVES:
        return group * size + int(states[h + 1])
    return 2 * group + int(coins.flip(int(rewards[h] * GRID)))


def decoded(reports: Reports, stochastic: bool, words: Ints) -> Found:
    """Return the reports in the integers of one message.

    Raises ``ValueError`` for integers that no device sends, because of wrong steps, types, sizes or order.
    """
    found: Found = []
    at, last = 0, -1
    for _ in range(reports.steps):
        if words.size < at + 3:
            raise ValueError(f"message: must hold {reports.steps} reports, ends in report {len(found) + 1}")
        h, about, count = (int(x) for x in words[at : at + 3])
        if not last < h < reports.counted:
            raise ValueError(f"message: step {h} must be in [{last + 1}, {reports.counted - 1}]")
        if about not in (0, 1) or (about == 1 and not reports.share):
            raise ValueError(f"message: type {about} must be 0{' or 1' if reports.share else ''}")
        one = reports.randomizer(about, stochastic)
        hits = words[at + 3 : at + 3 + max(count, 0)]
        if (not one.unary and count != one.size) or not 0 <= count <= one.elements or hits.size != count:
            wanted = f"at most {one.elements}" if one.unary else f"{one.size}"
            raise ValueError(f"message: {count} elements reported, {hits.size} sent; must be {wanted}")
        if count and ((np.diff(hits) <= 0).any() or hits[0] < 0 or hits[-1] >= one.elements):
            raise ValueError(f"message: elements must ascend in [0, {one.elements - 1}]")
        marks = np.zeros(one.elements, np.int64)
        marks[hits] = 1
        found.append((h, about, marks))
        at, last = at + 3 + count, h
    if at != words.size:
        raise ValueError(f"message: {words.size - at} numbers too many")
    return found


@dataclass(frozen=True)
class ReportDevice(forms.OfPairs):
    """Public form of a session of reports, fixed before data, and the encoder of a device.

    Parameters
    ----------
    states, actions, horizon : S, A, H of the trajectory.
    steps : m, number of reported steps.
    share : numerator over 2^53 of the probability that a report is about the reward; 0: never.
    moves, rewards : for each, two randomizers: for deterministic and for stochastic policies.
    plans : "deterministic", "stochastic" or "any": the kind of policies that users can be given. With
        "stochastic" every alphabet is that of all pairs, whatever the policy.
    rows : (S, A) row numbers, -1 where the action is not admissible, as tuples; None: every action is.
    step : h: the only step that is reported; None: any of the H.
    shuffled : True if the message goes to a shuffler.
    session : a number in [0, 2^64) that differs from that of any other session.

    Raises ``ValueError`` for values that are out of range or do not fit together.
    """

    KIND: ClassVar[Literal["reports"]] = "reports"

    states: int
    actions: int
    horizon: int
    steps: int
    share: int
    moves: tuple[Randomizer, Randomizer]
    rewards: tuple[Randomizer, Randomizer]
    plans: Plans = "any"
    rows: tuple[tuple[int, ...], ...] | None = None
    step: int | None = None
    shuffled: bool = False
    session: int = 0

    def __post_init__(self) -> None:
        put = object.__setattr__
        self.check_sizes()
        put(self, "steps", integer("steps", self.steps, 1, self.counted))
        put(self, "share", integer("share", self.share, 0, GRID - 1))
        if self.plans not in ("any", "deterministic", "stochastic"):
            raise ValueError(f"plans = {self.plans!r}: must be 'any', 'deterministic' or 'stochastic'")
        for name, times in (("moves", self.states), ("rewards", 2)):
            for one, pairs in zip(getattr(self, name), (self.states, self.pairs), strict=True):
                if type(one) is not Randomizer or one.elements != times * pairs:
                    raise ValueError(f"{name}: must be two Randomizers, of {times} elements a state or pair")
                integer("own", one.own, 1, GRID)
                integer("other", one.other, 0, GRID if one.unary else 0)
                low, high = (0, 0) if one.unary else (1, max(1, one.elements - 1))
                integer("size", one.size, low, high)

    def randomizer(self, about: int, stochastic: bool) -> Randomizer:
        """Return the randomizer of moves (0) or rewards (1), under a deterministic or a stochastic policy."""
        return (self.moves, self.rewards)[about][int(stochastic)]

    @cached_property
    def guarantee(self) -> MessageGuarantee:
        """Privacy loss of one message, as derived in the module docstring."""
        plans = {"deterministic": (False,), "stochastic": (True,), "any": (False, True)}[self.plans]
        each = [
            log_ratio(self.randomizer(about, stochastic))
            for about in range(2 if self.share else 1)
            for stochastic in plans
        ]
        loss = self.steps * max(each)
        return MessageGuarantee(epsilon=loss, shows=1.0 if loss == math.inf else 0.0, shuffled=self.shuffled)

    def __call__(
        self, plan: int, policy: Any, states: Any, actions: Any, rewards: Any, coins: AllCoins | None = None
    ) -> bytes:
        """Encode the message to plan ``plan``: states (H + 1,), actions (H,), rewards (H,) in [0, 1].

        The device does not use the probabilities of a stochastic policy; it only needs to know that the
        policy is stochastic. Raises ``ValueError``, on the device, for a record or policy out of range.

        Parameters
        ----------
        policy : (H, S) actions, or (H, S, A) probabilities.
        coins : random generator of the device; by default the operating system's.
        """
        own = ExactCoins() if coins is None else coins
        at, rows, earned = checked_life(self, states, actions, rewards)
        played = self.policy_rows(policy)
        if self.step is not None:  # treated as a problem with only this step
            h = self.step
            at, rows, earned = at[h : h + 2], rows[h : h + 1], earned[h : h + 1]
            played = None if played is None else played[h : h + 1]
        words = drawn(self, self.row_table, played, at, rows, earned, own)
        return self.write(plan, np.array(words, np.int64), drawn_nonce(own))

    def policy_rows(self, policy: Any) -> Ints | None:
        """Return the (H, S) rows that a deterministic policy selects; None if all pairs are in the alphabet.

        Raises ``ValueError`` for a policy with another shape, or of a kind that the form does not allow.
        """
        table = np.asarray(policy)
        shape = (self.horizon, self.states)
        if table.shape == (*shape, self.actions):
            if self.plans == "deterministic":
                raise ValueError("policy: must be deterministic, as the form's plans are")
            return None
        if table.shape != shape or table.dtype.kind not in "iu":
            raise ValueError(f"policy has shape {table.shape}: must be {shape} integers, or with A behind")
        if (table < 0).any() or (table >= self.actions).any():
            raise ValueError(f"policy: every entry must be an integer in [0, {self.actions - 1}]")
        rows = self.row_table[np.arange(self.states)[None, :], table]
        if (rows < 0).any():
            raise ValueError("policy: plays an action that is not admissible in its state")
        return None if self.plans == "stochastic" else rows

    def write(self, plan: int, words: Ints, nonce: bytes) -> bytes:
        """Write the message of ``plan`` with the integers ``words``. nonce : its random bytes."""
        return Envelope("reports", plan, self.digest, nonce, words.astype("<i4").tobytes()).to_bytes()

    def words(self, plan: int, message: Any) -> tuple[bytes, Ints]:
        """Return the nonce and the integers of a message to plan ``plan``, not yet decoded.

        Raises :class:`MessageRejected` if the bytes are not such a message.
        """
        found = opened(message, "reports", self.digest, plan)
        if len(found.payload) % 4:
            raise MessageRejected(
                "malformed", f"its payload has {len(found.payload)} bytes: must be 32-bit integers"
            )
        return found.nonce, np.frombuffer(found.payload, "<i4").astype(np.int64)

    def read(self, plan: int, message: Any, stochastic: bool) -> tuple[bytes, Found]:
        """Return the nonce and the reports of a message to plan ``plan``, or raise :class:`MessageRejected`.

        stochastic : True if the plan's policy is stochastic; it selects the alphabets.
        """
        nonce, words = self.words(plan, message)
        try:
            return nonce, decoded(self, stochastic, words)
        except ValueError as error:
            raise MessageRejected("malformed", str(error)) from None

    @cached_property
    def digest(self) -> bytes:
        """16 bytes that identify this form."""
        return forms.digest_of(self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the public form (:mod:`discreet.device.session_config`), numerators as hexadecimal."""
        plain: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("moves", "rewards"):
            plain[name] = [
                [one.unary, one.elements, one.size, f"{one.own:x}", f"{one.other:x}"] for one in plain[name]
            ]
        return forms.published(
            self.KIND, plain | {"share": f"{self.share:x}", "session": f"{self.session:016x}"}
        )

    @classmethod
    def from_bytes(cls, published: bytes) -> ReportDevice:
        """Return the form whose bytes were ``published`` by :meth:`to_bytes`.

        Raises ``ValueError`` for other bytes.
        """
        _, plain = forms.taken_apart(published, (cls.KIND,))
        try:
            for name in ("moves", "rewards"):
                plain[name] = tuple(
                    Randomizer(unary, elements, size, int(own, 16), int(other, 16))
                    for unary, elements, size, own, other in plain[name]
                )
            plain["share"] = int(plain["share"], 16)
        except (KeyError, TypeError) as error:
            raise ValueError(f"published: is no form of reports ({error!r})") from None
        return forms.built(cls, plain, published)
