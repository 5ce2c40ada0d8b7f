r"""Device for randomized reports of a few random steps.

It samples steps, randomizes their records, and encodes one message.

A device draws m of the H steps uniformly without replacement. For each of these steps, it draws at random
whether to report the reward or the transition (the move). The reward or the transition is an element of a
finite alphabet, and the device randomizes this element. The module
:mod:`discreet.mechanisms.local.randomized_response` describes the alphabets and the randomizers, and has the
proofs.

The payload of a message is signed, little-endian 32-bit integers. The reported steps are in ascending order.
Each step is written as (step, 0 for a move or 1 for a reward, number of elements, the elements in ascending
order). The length of the payload is a function of the reports, so it reveals no more than the reports.

*Privacy loss of one message* (:attr:`ReportDevice.guarantee`). There are m reports with independent
randomness. In each report, the likelihood ratio of any two elements of the alphabet is at most e^(epsilon /
m). Steps and alphabets are independent of the data. Therefore epsilon is m times the largest logarithm of a
ratio. It is computed from the probabilities that the device uses, which are integers over 2^53. If the form
is intended for a shuffler, ``shuffled`` is True. Even then, the stated privacy loss is the loss of the
message without the shuffler.
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
"""List with (step, about, marks) for each report of a message. The array marks (d,) is 1 for each reported
element of the alphabet, and otherwise 0.
"""

GRID = 2**53
MOVES, REWARDS_BIT = 0, 1  # values of ``about``: the report is about the transition or about the reward

__all__ = [
    "GRID", "MOVES", "REWARDS_BIT", "Found", "Plans", "Randomizer", "ReportCoins", "ReportDevice", "Reports",
    "decoded", "drawn", "log_ratio",
]  # fmt: skip


class ReportCoins(Protocol):
    """Interface of random generators for reports.

    A device uses :class:`~discreet.device.discrete_noise.ExactCoins`. The library's other generators have the
    same interface.
    """

    def below(self, n: int) -> int: ...
    def flip(self, numerator: int) -> bool: ...


class AllCoins(ReportCoins, WordCoins, Protocol):
    """Interface of random generators for the reports of a message and for its nonce."""


# ------------------------------------------------------------------------------ one randomizer


@dataclass(frozen=True)
class Randomizer:
    """Randomizer of one element of an alphabet. Its output is a set of reported elements.

    Parameters
    ----------
    unary : True for optimised unary encoding, False for subset selection.
    elements : number d of elements of the alphabet.
    size : number w of elements in a reported subset (only for subset selection).
    own : numerator over 2^53 of the probability that the user's element is reported.
    other : numerator over 2^53 of the probability that a given other element is reported; 0 for subset
        selection.
    """

    unary: bool
    elements: int
    size: int
    own: int
    other: int

    @property
    def p(self) -> Fraction:
        """Probability p that the user's element is reported."""
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
        """Largest ratio of the probabilities of an output under two elements."""
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
        """Moments of the bits that indicate the reported elements, as floats.

        They are p - q, the variance of the bit of the user's element, the variance of another bit, the
        covariance of the user's bit and another bit, and the covariance of two other bits.
        """
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
        """Mean variance of the debiased bits, over the elements of the alphabet: (1 - 1/d) v_0 + v_1 / d.

        Here v_1 is the variance for the user's element, and v_0 the variance for another element.
        """
        gap, own, other, *_ = self.moments
        return ((self.elements - 1) * other + own) / (self.elements * gap * gap)

    def draw(self, element: int, coins: ReportCoins) -> list[int]:
        """Randomize ``element``, and return the reported elements in ascending order."""
        if self.unary:
            return [e for e in range(self.elements) if coins.flip(self.own if e == element else self.other)]
        kept = coins.flip(self.own)
        others = self.elements - 1
        taken: set[int] = set()
        # Floyd's algorithm draws a uniform subset of the other elements
        for j in range(others - self.size + kept, others):
            t = coins.below(j + 1)
            t = t + 1 if t >= element else t
            if t in taken:
                t = j + 1 if j >= element else j
            taken.add(t)
        return sorted(taken | {element}) if kept else sorted(taken)


def log_ratio(one: Randomizer) -> float:
    """Return the logarithm of :attr:`Randomizer.ratio`, accurately even if the ratio is near 1.

    The result is infinite if an output has probability 0 under one element and not under another.
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
    """Interface of the public parameters of reports.

    :class:`ReportDevice` and the corresponding class of the server have this interface.
    """

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
    """Draw the reports about one trajectory, and return the integers of the message.

    The T steps of the trajectory that can be reported have states (T + 1,), row numbers of the pairs ``rows``
    (T,), and rewards (T,). ``policy_rows`` (T, S) are the rows that a deterministic policy selects. If it is
    None, the alphabet has all pairs. If a user did not follow the policy, their record is outside the
    alphabet, and the report is a uniformly drawn element.
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
    """Draw a uniform subset of m steps by Floyd's algorithm, and return it in ascending order."""
    horizon, chosen = reports.counted, set[int]()
    for j in range(horizon - reports.steps, horizon):
        t = coins.below(j + 1)
        chosen.add(j if t in chosen else t)
    return sorted(chosen)


def _element(
    size: int, policy_rows: Ints | None, states: Ints, rows: Ints, rewards: Floats, h: int, about: int,
    coins: ReportCoins,
) -> int | None:  # fmt: skip
    """Return the index in the alphabet of the record at step h; None if the user did not follow the policy.

    A reward is first rounded to a bit at random. ``size`` is the number of states.
    """
    s, row = int(states[h]), int(rows[h])
    if policy_rows is not None and row != policy_rows[h, s]:
        return None
    group = row if policy_rows is None else s
    if about == MOVES:
        return group * size + int(states[h + 1])
    return 2 * group + int(coins.flip(int(rewards[h] * GRID)))


def decoded(reports: Reports, stochastic: bool, words: Ints) -> Found:
    """Decode the reports from the integers ``words`` of one message.

    Raises ``ValueError`` for integers that no device sends: wrong steps, types, sizes or order.
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
    """Public form of a session of reports, and the encoder that a device uses.

    The form is fixed before any data are seen.

    Parameters
    ----------
    states, actions, horizon : S, A, H of the trajectory.
    steps : number m of reported steps.
    share : numerator over 2^53 of the probability that a report is about the reward; 0 if reports are never
    about rewards.
    moves : two randomizers of moves, one for deterministic and one for stochastic policies.
    rewards : two randomizers of rewards, one for deterministic and one for stochastic policies.
    plans : "deterministic", "stochastic" or "any": the kind of policies that users can be given. With
        "stochastic", every alphabet contains all pairs, for every policy.
    rows : (S, A) row numbers of the pairs as tuples, -1 for inadmissible actions; None if every action is
        admissible.
    step : the only step h that can be reported; None if every step can be reported.
    shuffled : True if the message goes to a shuffler.
    session : number in [0, 2^64). Each session must have a unique number.

    Raises ``ValueError`` for values that are out of range or inconsistent.
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
        """Return the randomizer for reports about moves (0) or rewards (1).

        ``stochastic`` : True for the alphabet of stochastic policies.
        """
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
        """Encode the message of one user of plan ``plan``.

        The trajectory is states (H + 1,), actions (H,), and rewards (H,) in [0, 1]. The device does not use
        the probabilities of a stochastic policy. Raises ``ValueError``, before anything is sent, if an entry
        of the trajectory or the policy is out of range.

        Parameters
        ----------
        policy : (H, S) actions, or (H, S, A) probabilities.
        coins : random generator of the device; the default is the operating system's.
        """
        own = ExactCoins() if coins is None else coins
        at, rows, earned = checked_life(self, states, actions, rewards)
        played = self.policy_rows(policy)
        if self.step is not None:  # the trajectory is reduced to this step
            h = self.step
            at, rows, earned = at[h : h + 2], rows[h : h + 1], earned[h : h + 1]
            played = None if played is None else played[h : h + 1]
        words = drawn(self, self.row_table, played, at, rows, earned, own)
        return self.write(plan, np.array(words, np.int64), drawn_nonce(own))

    def policy_rows(self, policy: Any) -> Ints | None:
        """Return the (H, S) rows that a deterministic policy selects; None if the alphabet has all pairs.

        Raises ``ValueError`` for a policy with a wrong shape or of a kind that the form does not allow.
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
        """Return the bytes of a message of plan ``plan`` with the integers ``words`` and 16 random bytes
        ``nonce``.
        """
        return Envelope("reports", plan, self.digest, nonce, words.astype("<i4").tobytes()).to_bytes()

    def words(self, plan: int, message: Any) -> tuple[bytes, Ints]:
        """Return the nonce and the integers, not yet decoded, of a message of plan ``plan``.

        Raises :class:`MessageRejected` if the bytes are not such a message.
        """
        found = opened(message, "reports", self.digest, plan)
        if len(found.payload) % 4:
            raise MessageRejected(
                "malformed", f"its payload has {len(found.payload)} bytes: must be 32-bit integers"
            )
        return found.nonce, np.frombuffer(found.payload, "<i4").astype(np.int64)

    def read(self, plan: int, message: Any, stochastic: bool) -> tuple[bytes, Found]:
        """Return the nonce and the reports of a message of plan ``plan``.

        ``stochastic`` : True if the policy of the plan is stochastic, which determines the alphabets. Raises
        :class:`MessageRejected` if the bytes are not such a message.
        """
        nonce, words = self.words(plan, message)
        try:
            return nonce, decoded(self, stochastic, words)
        except ValueError as error:
            raise MessageRejected("malformed", str(error)) from None

    def to_bytes(self) -> bytes:
        """Return the form as bytes to publish, in the layout of :mod:`discreet.device.session_config`.

        Numerators of probabilities are written as hexadecimal digits.
        """
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
        """Return the device for a ``published`` form. Raises ``ValueError`` for invalid bytes."""
        _, plain = forms.taken_apart(published, (cls.KIND,))
        try:
            for name in ("moves", "rewards"):
                plain[name] = tuple(
                    Randomizer(unary, elements, size, int(own, 16), int(other, 16))
                    for unary, elements, size, own, other in plain[name]
                )
            plain["share"] = int(plain["share"], 16)
        except (KeyError, TypeError) as error:
            raise ValueError(f"published: is not a form of reports ({error!r})") from None
        return forms.built(cls, plain, published)
