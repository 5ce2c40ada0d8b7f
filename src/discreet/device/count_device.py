r"""Device for counts under local privacy.

The device counts a user's trajectory, adds independent noise to every counter, and encodes one message.

A device receives two public objects. They are the form of the session (:class:`CountDevice`: sizes, families
and scales) and, for each plan, its number and policy. Every counter gets noise, including the counters of
pairs that the user did not visit. Therefore the privacy loss of a message depends only on the scales in the
form, and not on the user's trajectory.

A step ``(s, a, r, s')`` is counted as a visit of ``(s, a)``, a transition to s', and the reward r (minus 1/2
if rewards are centred). Each step has separate cells, or all steps use the same cells (``stationary``). In
addition, transitions and rewards can be pooled over steps: over all steps, or over the first visits to each
state. If ``step`` is given, only this step is counted.

*Exact noise.* If ``grid`` is given, rewards are rounded at random to multiples of 1 / grid, counts are
integers, and the noise is discrete on the same grid. The payload contains the noisy cells in units of the
grid, with one block per family (:mod:`discreet.device.integer_encoding`).

*Privacy loss of one message* (:attr:`CountDevice.guarantee`) if the trajectory is replaced by any other
trajectory. The weight w of a family is 1 / scale for Laplace noise, and 1 / scale^2 for Gaussian noise. At
each step, the weighted change is at most

    another pair:              2 w_v + 2 w_t + c w_r         (c = 2; centred rewards: 1, squared 1/2)

    same pair, other s':       2 w_t + w_r

    same pair and s':          w_r

Let W be the larger of the first two bounds for the families per step, and W' the larger one for the pooled
families. Then epsilon = H W + M W' under Laplace noise, and mu^2 = H W + M W' under Gaussian noise. M is H,
or min(S, H) if only first visits are pooled. Under Gaussian noise, H^2 replaces H for families in which the
records of all steps can be in the same cell (``stationary``, or pooled over all steps).

For squares of centred rewards, the second bound can be larger than the first. However, the sum over H steps
is then less than H W: after a step of the second case, the two trajectories are in different states, so their
next pairs differ. The largest sum is computed step by step (:func:`_in_a_row`). The proofs are in
:mod:`discreet.core.count_query`. Discrete Gaussian noise has rho = mu^2 / 2.

Source: Chowdhury and Zhou (2021), local privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.device import integer_encoding as blocks
from discreet.device import session_config as forms
from discreet.device.discrete_noise import ExactCoins, NoiseCoins, SealingCoins, checked_on_grid, drawn
from discreet.device.message_envelope import Envelope, drawn_nonce, integer, opened
from discreet.device.message_guarantee import MessageGuarantee
from discreet.device.shuffle_encoder import checked_life

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Pooled = Literal["none", "all", "first"]

VISITS, TRANSITIONS = "visits", "transition_counts"
REWARDS, CENTERED_REWARDS = "reward_sums", "centered_reward_sums"
POOLED_TRANSITIONS, POOLED_REWARDS = "pooled_transition_counts", "pooled_reward_sums"
FAMILIES = (VISITS, TRANSITIONS, REWARDS, CENTERED_REWARDS, POOLED_TRANSITIONS, POOLED_REWARDS)
_OF_PAIRS = (VISITS, REWARDS, CENTERED_REWARDS, POOLED_REWARDS)
_OF_REWARDS = (REWARDS, CENTERED_REWARDS, POOLED_REWARDS)
_POOLED = (POOLED_TRANSITIONS, POOLED_REWARDS)

__all__ = ["FAMILIES", "CountDevice"]


def _in_a_row(pair: float, successor: float, same: float, steps: int) -> float:
    """Return the largest weighted difference between the records of two users over ``steps`` steps.

    ``pair``, ``successor`` and ``same`` are the bounds of one step for different pairs, for the same pair
    with different next states, and for the same pair and next state. Users in different states have different
    pairs.
    """
    # largest difference over the remaining steps if the users are in the same state, or in different states
    together, parted = 0.0, 0.0
    for _ in range(steps):
        apart = pair + max(together, parted)
        together, parted = max(apart, successor + parted, same + together), apart
    return together


@dataclass(frozen=True)
class CountDevice(forms.OfPairs):
    """Public form of a session of counts under local privacy, and the encoder that a device uses.

    The form is fixed before any data are seen.

    Parameters
    ----------
    states, actions, horizon : numbers S of states, A of actions and H of steps.
    families : pair (name, scale) of each family, in the order of the cells. The names are in
        :data:`FAMILIES`. The scale is the scale parameter of Laplace noise, or the standard deviation of
        Gaussian noise.
    noise : "laplace" or "gaussian"
    grid : a power of two. Rewards and their noise are multiples of 1 / grid; counts and their noise are
        integers. None for noise in floating point, for simulation.
    rows : (S, A) row numbers of the pairs as tuples, -1 for inadmissible actions; None if every action is
        admissible.
    step : the only step in [0, H) that is counted; None to count all steps.
    stationary : True if the counts of all steps are in the same cells.
    centered : True if 1/2 is subtracted from rewards.
    pooled : "none", "all" or "first", the steps that the pooled families count: no steps, all steps, or the
        first visits to each state.
    session : number in [0, 2^64). Each session must have a unique number.

    Raises ``ValueError`` for values that are out of range or inconsistent.
    """

    KIND: ClassVar[Literal["counts"]] = "counts"

    states: int
    actions: int
    horizon: int
    families: tuple[tuple[str, float], ...]
    noise: Literal["laplace", "gaussian"]
    grid: int | None = None
    rows: tuple[tuple[int, ...], ...] | None = None
    step: int | None = None
    stationary: bool = False
    centered: bool = False
    pooled: Pooled = "none"
    session: int = 0

    def __post_init__(self) -> None:
        put = object.__setattr__
        self.check_sizes()
        if self.noise not in ("laplace", "gaussian"):
            raise ValueError(f"noise = {self.noise!r}: must be 'laplace' or 'gaussian'")
        if self.grid is not None:
            put(self, "grid", integer("grid", self.grid, 2, 2**20))
            if self.grid & (self.grid - 1):
                raise ValueError(f"grid = {self.grid}: must be a power of two")
        if self.pooled not in ("none", "all", "first"):
            raise ValueError(f"pooled = {self.pooled!r}: must be 'none', 'all' or 'first'")
        families = tuple((name, float(scale)) for name, scale in self.families)
        put(self, "families", families)
        names = [name for name, _ in families]
        wrong = [name for name in names if name not in FAMILIES]
        if wrong or len(set(names)) < len(names) or TRANSITIONS not in names:
            raise ValueError(f"families = {names}: must be of {', '.join(FAMILIES)}, with {TRANSITIONS!r}")
        if not all(0.0 < scale < math.inf for _, scale in families):
            raise ValueError(f"families = {families}: scales must be above 0 and finite")
        unfit = {
            "centered": (CENTERED_REWARDS in names) != self.centered or (self.centered and REWARDS in names),
            "pooled": (self.pooled != "none") != any(name in _POOLED for name in names),
            "stationary": self.stationary and (self.pooled != "none" or self.step is not None),
            "step": self.step is not None and self.pooled != "none",
        }
        for name, broken in unfit.items():
            if broken:
                raise ValueError(f"{name} = {getattr(self, name)!r}: does not fit the families {names}")

    @property
    def slots(self) -> int:
        """Number of steps that have separate cells: H, or 1 if all counted steps use the same cells."""
        return 1 if self.stationary or self.step is not None else self.horizon

    @cached_property
    def offsets(self) -> Ints:
        """(families + 1,) array: first cell of each family in the flat vector, and the number of cells."""
        sizes = [
            (1 if name in _POOLED else self.slots) * self.pairs * (1 if name in _OF_PAIRS else self.states)
            for name, _ in self.families
        ]
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    def family_grid(self, name: str) -> int | None:
        """Return the integer g such that values of the family are multiples of 1 / g.

        Returns None for continuous values.
        """
        return self.grid if self.grid is None or name in _OF_REWARDS else 1

    # ------------------------------------------------------------------------ what it gives away
    @cached_property
    def guarantee(self) -> MessageGuarantee:
        """Privacy loss of one message, as derived in the module docstring."""
        power = 1 if self.noise == "laplace" else 2
        w = {name: 1.0 / scale**power for name, scale in self.families}
        apart = 2.0 if not self.centered else 1.0 if power == 1 else 0.5
        h = self.counted
        first = self.pooled == "first"
        total = 0.0
        for visits, moves, rewards, times in (
            (VISITS, TRANSITIONS, (REWARDS, CENTERED_REWARDS), h**power if self.stationary else h),
            ("", POOLED_TRANSITIONS, (POOLED_REWARDS,), min(self.states, h) if first else h**power),
        ):
            v, t, r = w.get(visits, 0.0), w.get(moves, 0.0), sum(w.get(name, 0.0) for name in rewards)
            pair, successor = 2 * v + 2 * t + apart * r, 2 * t + r
            if successor > pair and visits and not self.stationary:
                total += _in_a_row(pair, successor, r, h)
            else:
                total += times * max(pair, successor)
        if power == 1:
            return MessageGuarantee(epsilon=total, exact=self.grid is not None)
        if self.grid is not None:
            return MessageGuarantee(rho=0.5 * total)
        return MessageGuarantee(mu=math.sqrt(total), exact=False)

    # ---------------------------------------------------------------------------------- messages
    def add(self, states: Ints, rows: Ints, rewards: Floats, cells: Floats) -> None:
        """Add the counts of one trajectory to the flat vector ``cells``.

        The trajectory consists of states (H + 1,), row numbers of its pairs (H,), and rewards (H,).
        """
        if self.step is not None:
            at = self.step
            states, rows, rewards = states[at : at + 2], rows[at : at + 1], rewards[at : at + 1]
        steps = np.zeros(rows.size, np.int64) if self.slots == 1 else np.arange(rows.size)
        shifted = rewards - 0.5 if self.centered else rewards
        for (name, _), begin in zip(self.families, self.offsets.tolist(), strict=False):
            pooled = name in _POOLED
            at_row = rows if pooled else steps * self.pairs + rows
            found = at_row if name in _OF_PAIRS else at_row * self.states + states[1:]
            values = shifted if name in _OF_REWARDS else np.ones(rows.size)
            if pooled and self.pooled == "first":
                fresh = np.sort(np.unique(states[:-1], return_index=True)[1])
                found, values = found[fresh], values[fresh]
            np.add.at(cells, begin + found, values)  # repeated cells are summed in the order of time

    def cells(self, states: Ints, rows: Ints, rewards: Floats, coins: NoiseCoins) -> Floats:
        """Return the (cells,) noisy counters of one user. Rewards are rounded first if there is a grid.

        ``coins`` is the random generator of the device.
        """
        names, scales = zip(*self.families, strict=True)
        noisy = drawn(self.noise, scales, self.offsets, coins, [self.family_grid(name) for name in names])
        if self.grid is not None:
            rewards = checked_on_grid(coins.rounded(rewards, self.grid), self.grid)
        self.add(states, rows, rewards, noisy)
        return noisy if self.grid is None else checked_on_grid(noisy, self.units)

    def __call__(
        self, plan: int, states: Any, actions: Any, rewards: Any, coins: SealingCoins | None = None
    ) -> bytes:
        """Encode the message of one user of plan ``plan``.

        The trajectory is states (H + 1,), actions (H,), and rewards (H,) in [0, 1]. ``coins`` is the random
        generator of the device; the default is the operating system's. Raises ``ValueError``, before anything
        is sent, if an entry is out of range, or if the session has no exact noise.
        """
        if self.grid is None:
            raise ValueError("grid = None: a message in bytes needs a session with exact noise (Secure())")
        own = ExactCoins() if coins is None else coins
        found = self.cells(*checked_life(self, states, actions, rewards), own)
        return self.write(plan, np.rint(found * self.units).astype(np.int64), drawn_nonce(own))

    @cached_property
    def units(self) -> Floats:
        """(cells,) array of the integers that represent the value 1 of each cell in a message."""
        return np.repeat(
            [float(self.family_grid(name) or 1) for name, _ in self.families], np.diff(self.offsets)
        )

    def write(self, plan: int, cells: Ints, nonce: bytes) -> bytes:
        """Return the bytes of a message of plan ``plan`` with the integers ``cells`` and 16 random bytes
        ``nonce``.
        """
        return Envelope(self.KIND, plan, self.digest, nonce, blocks.packed(cells, self.offsets)).to_bytes()

    def read(self, plan: int, message: Any) -> tuple[bytes, Floats]:
        """Return the nonce and the (cells,) noisy counters from a message of plan ``plan``.

        Raises :class:`~discreet.device.message_envelope.MessageRejected` if ``data`` is not such a message.
        """
        found = opened(message, self.KIND, self.digest, plan)
        return found.nonce, blocks.unpacked(found.payload, self.offsets) / self.units

    # ---------------------------------------------------------------------------------- the form
    def to_bytes(self) -> bytes:
        """Return the form as bytes to publish, in the layout of :mod:`discreet.device.session_config`."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return forms.published(self.KIND, plain | {"session": f"{self.session:016x}"})

    @classmethod
    def from_bytes(cls, published: bytes) -> CountDevice:
        """Return the device for a ``published`` form. Raises ``ValueError`` for invalid bytes."""
        _, plain = forms.taken_apart(published, (cls.KIND,))
        return forms.built(cls, plain, published)

    def of(self, session: int) -> CountDevice:
        """Return the same form with another session number."""
        return replace(self, session=session)
