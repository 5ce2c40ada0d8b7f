"""Privacy record of the shuffled responses of a local randomizer. All values in the record are public.

The bound on epsilon is theorem 3.1 of Feldman, McMillan and Talwar 2021. The theorem is proved in
:mod:`discreet.accounting.shuffle_amplification`. The bound depends on the number of users in a batch who
follow the protocol. All of these users must use the same randomizer, even if they follow different plans.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from discreet.accounting import shuffle_amplification as amplification
from discreet.accounting.serialization import plain_record, record_fields
from discreet.accounting.shuffled_batch_event import BatchRecord, listed, typed
from discreet.accounting.text.guarantee_sentences import up
from discreet.core import checks
from discreet.core.events import Trust


@dataclass(frozen=True)
class AmplifiedRecord(BatchRecord):
    """Privacy record of locally private responses in shuffled batches.

    For each batch the shuffler releases only how often each response occurred.

    Parameters
    ----------
    mechanism : name of the mechanism, as text.
    batches : for each batch, the number of honest users and the local epsilon0 of one user's whole message.
        Each user is in one batch. A batch can be omitted if the epsilon of another batch is proven to be at
        least as large.

    Raises
    ------
    ValueError
        If there is no batch, or a number is out of range.
    """

    mechanism: str
    batches: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        if not self.batches:
            raise ValueError("batches: must hold at least one")
        for users, own in self.batches:
            checks.integer("users", users, 1)
            checks.positive("epsilon0", own)

    @property
    def noise(self) -> str:
        """Name of the protection: ``"reports"`` for randomized responses."""
        return "reports"

    @property
    def local(self) -> float:
        """Largest local epsilon0 of any batch.

        This guarantee holds against the shuffler itself, even if all other users are dishonest.
        """
        return max(own for _, own in self.batches)

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of the worst batch at this delta in (0, 1).

        The result is at most the local epsilon0 of that batch.
        """
        return max(amplification.amplified_epsilon(own, users, delta) for users, own in self.batches)

    def worst(self, delta: float) -> tuple[int, float]:
        """Return the batch with the largest epsilon at this delta, as (honest users, local epsilon0)."""
        return max(self.batches, key=lambda one: amplification.amplified_epsilon(one[1], one[0], delta))

    def line(self, delta: float) -> str:
        """Return a line of text about the worst batch, with its epsilon at this delta."""
        users, own = self.worst(delta)
        return (
            f"{self.mechanism}: worst of {len(self.batches)} kinds of batches: {users} users, each "
            f"report {own:.6g}-locally private (in all batches at most {self.local:.6g}), amplified by "
            f"shuffling, a user in one batch: epsilon = {self.epsilon(delta)!r}"
        )

    def sentence(self, trust: Trust) -> str:
        """Return a sentence about the message and the parties that the guarantee depends on."""
        return (
            f"A device sends {self.mechanism}, without a look at the data when it chooses what to "
            "report; the shuffler lets out how often each report came in a batch, and nothing of one "
            "with fewer users than were accounted for. That rests on those users' following the "
            f"protocol; against the shuffler itself a message is {up(self.local)}-locally private."
        )

    def recomputed(self, delta: float) -> float:
        return _recomputed(self, delta)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as values that JSON stores without loss."""
        return {**plain_record(self, "amplified"), "batches": [list(batch) for batch in self.batches]}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> AmplifiedRecord:
        """Return the record that :meth:`to_dict` wrote. Raises ``ValueError`` for a wrong key or type."""
        given = record_fields(cls, "amplified", table)
        batches = tuple(
            (users, own) for users, own in (typed(x, (int, float)) for x in listed(given["batches"]))
        )
        return cls(given["mechanism"], batches)


def _recomputed(record: AmplifiedRecord, delta: float) -> float:
    """Recompute the epsilon of a record with dp-accounting, from the joint distribution of clone counts.

    The computation shares no code with :mod:`discreet.accounting.shuffle_amplification`, which sums over one
    of the two clone counts in closed form. This function lists the probability of every pair of counts, and
    dp-accounting computes epsilon from the list.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld
    from scipy.stats import binom

    users, own = record.worst(delta)
    odds, n = math.exp(own), users - 1
    mean = n / odds
    reach = 9 * math.sqrt(mean) + 40  # numbers of clones outside this range have probability 1e-15 at most
    clones = np.arange(max(0, int(mean - reach)), min(n, int(mean + reach)) + 1)
    laws: list[dict[tuple[int, int], float]] = [{}, {}]
    for c, mass in zip(clones.tolist(), binom.pmf(clones, n, 1 / odds).tolist(), strict=True):
        inner = 10 * math.sqrt(0.25 * c) + 20
        a = np.arange(max(0, int(0.5 * c - inner)), min(c, int(0.5 * c + inner)) + 1)
        for k, part in zip(a.tolist(), (mass * binom.pmf(a, c, 0.5)).tolist(), strict=True):
            for law, high in zip(laws, (odds / (odds + 1), 1 / (odds + 1)), strict=True):
                law[k + 1, c - k] = law.get((k + 1, c - k), 0.0) + part * high
                law[k, c - k + 1] = law.get((k, c - k + 1), 0.0) + part * (1 - high)
    logs = [{i: math.log(law[key]) for i, key in enumerate(sorted(law)) if law[key] > 0} for law in laws]
    found = pld.from_two_probability_mass_functions(
        *logs, value_discretization_interval=1e-4, log_mass_truncation_bound=-60, symmetric=True
    )
    return float(found.get_epsilon_for_delta(delta))
