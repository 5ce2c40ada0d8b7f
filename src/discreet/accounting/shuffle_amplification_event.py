"""Privacy record of the shuffled responses of a local randomizer, for one user. All values are public.

The bound is that of :mod:`discreet.accounting.shuffle_amplification`, theorem 3.1 of Feldman, McMillan and
Talwar 2021, which is proved there. The bound depends on the number of users of a batch who follow the
protocol. It requires that all of them use the same randomizer, whatever plan they follow.
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
    """Locally private responses, of which a shuffler releases only the counts of each value in a batch.

    Parameters
    ----------
    mechanism : name of the mechanism, as text.
    batches : (honest users, epsilon0 of one user's whole message), one entry for each batch. A batch may be
        omitted if another batch certainly dominates it. Each user is in one batch.

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
        """Protection of the records, by name."""
        return "reports"

    @property
    def local(self) -> float:
        """Largest epsilon0. It is valid against the shuffler, and if all other users are dishonest."""
        return max(own for _, own in self.batches)

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of the worst batch at this delta in (0, 1).

        It is never above that batch's epsilon0.
        """
        return max(amplification.amplified_epsilon(own, users, delta) for users, own in self.batches)

    def worst(self, delta: float) -> tuple[int, float]:
        """Return the batch that determines :meth:`epsilon`."""
        return max(self.batches, key=lambda one: amplification.amplified_epsilon(one[1], one[0], delta))

    def line(self, delta: float) -> str:
        """Describe the worst batch, with its epsilon at this delta."""
        users, own = self.worst(delta)
        return (
            f"{self.mechanism}: worst of {len(self.batches)} kinds of batches: {users} users, each "
            f"report {own:.6g}-locally private (in all batches at most {self.local:.6g}), amplified by "
            f"shuffling, a user in one batch: epsilon = {self.epsilon(delta)!r}"
        )

    def sentence(self, trust: Trust) -> str:
        """Return a sentence that describes the message and the parties that the guarantee depends on."""
        return (
            f"A device sends {self.mechanism}, without a look at the data when it chooses what to "
            "report; the shuffler lets out how often each report came in a batch, and nothing of one "
            "with fewer users than were accounted for. That rests on those users' following the "
            f"protocol; against the shuffler itself a message is {up(self.local)}-locally private."
        )

    def recomputed(self, delta: float) -> float:
        return _recomputed(self, delta)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as values that JSON can store, without loss."""
        return {**plain_record(self, "amplified"), "batches": [list(batch) for batch in self.batches]}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> AmplifiedRecord:
        """Return the record that :meth:`to_dict` wrote. Raises ``ValueError`` on a wrong key or type."""
        given = record_fields(cls, "amplified", table)
        batches = tuple(
            (users, own) for users, own in (typed(x, (int, float)) for x in listed(given["batches"]))
        )
        return cls(given["mechanism"], batches)


def _recomputed(record: AmplifiedRecord, delta: float) -> float:
    """Recompute the epsilon of a record with dp-accounting from the joint distribution of clone counts.

    The computation shares no code with :mod:`discreet.accounting.shuffle_amplification`, which sums over one
    of the two numbers in closed form. Here the probability of every pair of numbers is listed, and
    dp-accounting computes epsilon from the list.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld
    from scipy.stats import binom

    users, own = record.worst(delta)
    odds, n = math.exp(own), users - 1
    mean = n / odds
    reach = 9 * math.sqrt(mean) + 40  # at most 1e-15 of the clones' distribution is outside
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
