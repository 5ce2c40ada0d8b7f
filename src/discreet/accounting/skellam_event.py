"""Privacy record of shuffled batches whose devices add Skellam noise. All values in the record are public."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from discreet.accounting.serialization import plain_record, record_fields
from discreet.accounting.shuffled_batch_event import BatchRecord, listed, typed
from discreet.accounting.skellam_loss import SkellamLoss
from discreet.core import checks
from discreet.core.events import Trust


@dataclass(frozen=True)
class SkellamRecord(BatchRecord):
    """Privacy record of sums with Skellam noise of all devices of a batch.

    Parameters
    ----------
    mechanism : name of the mechanism, as text.
    batches : for each batch, the number of honest users and the five numbers of
        :class:`~discreet.accounting.skellam_loss.SkellamLoss` (mu, l1, step, shift, variance), with the noise
        of the honest users only. Each user is in one batch.

    Raises
    ------
    ValueError
        If there is no batch, or a number is out of range.
    """

    mechanism: str
    batches: tuple[tuple[int, float, float, float, float, float], ...]

    def __post_init__(self) -> None:
        if not self.batches:
            raise ValueError("batches: must hold at least one")
        for users, *loss in self.batches:
            checks.integer("users", users, 1)
            SkellamLoss(*loss)

    @property
    def noise(self) -> str:
        """Name of the noise: ``"skellam"``."""
        return "skellam"

    @property
    def by(self) -> str:
        """Name of the computation of epsilon, as text."""
        return "the best Renyi order"

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of the worst batch at this delta in (0, 1), or infinity."""
        return max(SkellamLoss(*loss).epsilon(delta) for _, *loss in self.batches)

    def renyi(self, order: float) -> float:
        """Return the Renyi divergence of the worst batch, at an order above 1."""
        return max(SkellamLoss(*loss).renyi(order) for _, *loss in self.batches)

    def worst(self, delta: float) -> tuple[int, SkellamLoss]:
        """Return the honest users and the loss of the batch with the largest epsilon at this delta."""
        users, *loss = max(self.batches, key=lambda one: SkellamLoss(*one[1:]).epsilon(delta))
        return users, SkellamLoss(*loss)

    def line(self, delta: float) -> str:
        """Return a line of text about the worst batch, with its epsilon at this delta."""
        users, loss = self.worst(delta)
        return (
            f"{self.mechanism}: worst of {len(self.batches)} kinds of batches: Skellam noise of {users} "
            f"honest users, l2 sensitivity in units of the noise {loss.mu:.6g}, changes over variances "
            f"{loss.l1:.3g}, a user in one batch; by the best Renyi order epsilon = {self.epsilon(delta)!r}"
        )

    def sentence(self, trust: Trust) -> str:
        """Return a sentence about the message and the parties that the guarantee depends on."""
        users = min(batch[0] for batch in self.batches)
        return (
            f"A device sends its {self.mechanism} to a shuffler, which publishes only the sums of a batch, "
            f"and nothing of a batch with fewer messages than were accounted for (at least {users}). Noise "
            "in the sums is that of all devices together: the guarantee rests on those users' following the "
            "protocol, and on the shuffler's not keeping single messages, whose own noise is too small to "
            "protect them."
        )

    def recomputed(self, delta: float) -> float:
        """Return the epsilon by the conversion of dp-accounting.

        Divergences of integer orders follow from theorem 3.5 of arXiv 2110.04995. Divergences of other orders
        up to 32 follow from :class:`~discreet.accounting.skellam_loss.SkellamLoss`.
        """
        from dp_accounting.rdp import rdp_privacy_accountant as rdp

        _, loss = self.worst(delta)
        between = [order / 64 for order in range(65, 2048) if order % 64]
        orders = [*range(2, 512), *between]
        found = []
        for order in orders[:510]:
            small = ((2 * order - 1) * loss.mu**2 + 6 * loss.l1) / (4 * loss.variance)
            found.append(order * loss.mu**2 / 2 + min(small, 1.5 * loss.l1))
        found += [loss.renyi(order) for order in between]
        epsilon, _ = rdp.compute_epsilon(orders, found, delta)
        return float(epsilon)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as values that JSON stores without loss."""
        return {**plain_record(self, "skellam"), "batches": [list(batch) for batch in self.batches]}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> SkellamRecord:
        """Return the record that :meth:`to_dict` wrote. Raises ``ValueError`` for a wrong key or type."""
        given = record_fields(cls, "skellam", table)
        kinds = (int, float, float, float, float, float)
        return cls(given["mechanism"], tuple(typed(x, kinds) for x in listed(given["batches"])))
