"""
Write a privatizer
==================

The privatizer below spends a chosen share of the budget on transition counts and the rest on the other
families. A privatizer proposes noise scales, and the library computes the privacy cost of these scales. A bad
proposal gives more noise, but it cannot give a false ε.
"""

from dataclasses import dataclass

import shown

import discreet as dr


@dataclass(frozen=True)
class Shares(dr.mechanisms.Proposes):
    """Joint privacy with a chosen share of the budget for transition counts."""

    epsilon: float
    delta: float
    share: float

    @property
    def trust(self):
        return "joint"

    def mechanism(self, query, schedule, randomness):
        names = list(query.row_families)
        rest = (1 - self.share) / (len(names) - 1)
        weights = tuple(self.share if name == "transition_counts" else rest for name in names)
        central = dr.Central(epsilon=self.epsilon, delta=self.delta, weights=weights)
        return central.mechanism(query, schedule, randomness)


query = dr.mechanisms.CountQuery(dr.make("riverswim").layout)
schedule = dr.Schedule(20_000, growth=1.2)
last = int(schedule.release_times[-1])
shares = [0.1, 0.3, 0.5, 0.7, 0.9]
mechanisms = [Shares(1.0, 1e-6, share).mechanism(query, schedule, dr.Seeded(0)) for share in shares]

# %%

figure, axes = shown.figure(height=3.3)
for colour, look, family in zip(shown.COLOURS, ("o-", "o-", "s:"), query.row_families, strict=False):
    axes.plot(
        shares, [one.laws_at(last)[family].std() for one in mechanisms], look, color=colour, label=family
    )
axes.set(xlabel="share of the budget for transition counts", ylabel="noise of one count", yscale="log")
axes.legend()
shown.stamp([one.guarantee for one in mechanisms], "none, closed forms", figure)
