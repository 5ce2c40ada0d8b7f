"""Privacy record of the shuffle protocol, in which random bits provide the noise.

All values in the record are public.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from discreet.accounting import binomial_noise as accountant
from discreet.accounting.binomial_noise import Flips, Noise, Way
from discreet.accounting.pld_calibration import extremes
from discreet.accounting.serialization import plain_record, record_fields
from discreet.accounting.shuffled_batch_event import BatchRecord, listed, typed
from discreet.core import checks
from discreet.core.events import Trust
from discreet.device.shuffle_payload import COIN

_LEAST = 1e-9  # smallest epsilon that a guarantee states


@dataclass(frozen=True)
class BinomialRecord(BatchRecord):
    """Privacy record of random bits in counters that a shuffler sums over a batch.

    Parameters
    ----------
    mechanism : name of the mechanism, as text.
    batches : for each batch, the flips that users add to a counter of each family. Each user is in one batch.
        A batch can be omitted if the privacy loss of another batch is proven to be at least as large.
    ways : ways to replace a user that can have the largest loss. Each way is a tuple of changes (family,
        change of each counter, number of counters).

    Raises
    ------
    ValueError
        If ``batches`` or ``ways`` is empty, or if a way changes counters of a family without noise.
    """

    mechanism: str
    batches: tuple[Noise, ...]
    ways: tuple[Way, ...]

    def __post_init__(self) -> None:
        if not self.batches or not self.ways:
            raise ValueError("batches, ways: must hold at least one each")
        for noise in self.batches:
            names = {name for name, _ in noise}
            for way in self.ways:
                for name, by, count in way:
                    checks.integer("by", abs(by), 1, 2)
                    checks.integer("count", count, 1)
                    if name not in names:
                        raise ValueError(f"ways: move {name!r}, which has no noise in some batch")

    @property
    def noise(self) -> str:
        """Name of the noise distribution."""
        return "binomial"

    def epsilon(self, delta: float) -> float:
        """Return a positive epsilon at this delta, for the worst batch and the worst way to replace a user.

        The result is infinity if no epsilon is valid. At a large delta even epsilon 0 is valid, but a
        guarantee must state a positive number.
        """
        return max(_LEAST, *(accountant.epsilon_of(noise, self.ways, delta) for noise in self.batches))

    def worst(self, delta: float) -> Noise:
        """Return the noise of the batch with the largest epsilon at this delta."""
        return max(self.batches, key=lambda noise: accountant.epsilon_of(noise, self.ways, delta))

    def line(self, delta: float) -> str:
        """Return a line of text about the worst batch, with its epsilon at this delta."""
        parts = []
        for name, flips in self.worst(delta):
            pairs = " (half of them of the complement)" if flips.paired else ""
            parts.append(f"{name} {flips.users} x {flips.each} flips{pairs}, p = {flips.chance:.6g}")
        changes = max(sum(abs(by) * count for _, by, count in way) for way in self.ways)
        return (
            f"{self.mechanism}: worst of {len(self.batches)} kinds of batches: {'; '.join(parts)}; a "
            f"user moves counters by {changes} in all, a user in one batch: "
            f"epsilon = {self.epsilon(delta)!r}"
        )

    def sentence(self, trust: Trust) -> str:
        """Return a sentence that describes the messages and how they are processed."""
        return (
            f"A device adds coin flips to every counter, visited or not ({self.mechanism}); the "
            "shuffler lets out each counter's sum over a batch and nothing that tells its senders apart."
        )

    def recomputed(self, delta: float) -> float:
        return _recomputed(self, delta)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as values that JSON stores without loss."""
        return {
            **plain_record(self, "flips"),
            "batches": [
                [[name, f.users, f.each, f.coin, f.paired] for name, f in noise] for noise in self.batches
            ],
            "ways": [[list(move) for move in way] for way in self.ways],
        }

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> BinomialRecord:
        """Return the record that :meth:`to_dict` wrote. Raises ``ValueError`` for a wrong key or type."""
        table = record_fields(cls, "flips", table)
        batches = tuple(
            tuple(
                (name, Flips(*numbers))
                for name, *numbers in (typed(flips, (str, int, int, int, bool)) for flips in listed(noise))
            )
            for noise in listed(table["batches"])
        )
        ways = tuple(
            tuple(typed(move, (str, int, int)) for move in listed(way)) for way in listed(table["ways"])
        )
        return cls(table["mechanism"], batches, ways)


def _recomputed(record: BinomialRecord, delta: float) -> float:
    """Recompute the epsilon of a record with dp-accounting, as an independent check.

    The computation shares no code with :mod:`discreet.accounting.binomial_noise`. SciPy computes the
    probabilities. dp-accounting rounds losses up to its grid and uses both orders of the two neighbours. The
    result is for the worst batch and the worst way to replace a user.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld
    from scipy.stats import binom

    def log_masses(flips: Flips, by: int) -> dict[int, float]:
        if not flips.paired or flips.coin == COIN // 2:
            n, p = flips.number, flips.chance if not flips.paired else 0.5
            reach = 12 * math.sqrt(n * p * (1 - p)) + 40
            z = np.arange(max(0, int(n * p - reach)), min(n, int(n * p + reach)) + 1)
            found = zip((z + by).tolist(), binom.logpmf(z, n, p).tolist(), strict=True)
            return {value: x for value, x in found if x > -80}
        half, p = flips.number // 2, flips.chance
        reach = 12 * math.sqrt(half * p * (1 - p)) + 40
        ends = [(max(0, int(m - reach)), min(half, int(m + reach))) for m in (half * p, half * (1 - p))]
        masses = [
            binom.pmf(np.arange(low, high + 1), half, q)
            for (low, high), q in zip(ends, (p, 1 - p), strict=True)
        ]
        first = ends[0][0] + ends[1][0] + by
        return {first + i: math.log(m) for i, m in enumerate(np.convolve(*masses).tolist()) if m > 1e-35}

    noise = record.worst(delta)
    by_name = dict(noise)
    worst = 0.0
    for way in extremes(record.ways):
        total: Any = None
        number = sum(count for *_, count in way)
        for name, by, count in way:
            one = pld.from_two_probability_mass_functions(
                log_masses(by_name[name], 0),
                log_masses(by_name[name], by),
                value_discretization_interval=2e-3 / number,
                log_mass_truncation_bound=-60,
                symmetric=False,
            )
            many = one.self_compose(count)
            total = many if total is None else total.compose(many)
        worst = max(worst, float(total.get_epsilon_for_delta(delta)))
    return worst
