"""
An audit tries to refute a claim
================================

The audit plays a game against the mechanism: two crowds that differ in one person, thousands of releases,
and a lower bound on ε that holds but for a stated false alarm. A privatizer that states half of what it
costs is exposed.
"""

from dataclasses import dataclass

import shown

import discreet as dr


@dataclass(frozen=True)
class HalfTold(dr.Proposes):
    """Spends 4 and would like to say 2; the guarantee is computed from the noise, so that it cannot."""

    told: float = 2.0

    @property
    def trust(self):
        return "joint"

    @property
    def budget(self):
        return dr.Budget("joint", epsilon=self.told)

    def mechanism(self, query, schedule, randomness):
        return dr.Central(epsilon=2 * self.told, release="batches").mechanism(query, schedule, randomness)


audited = {
    "Central, ε = 1": dr.Central(epsilon=1),
    "tells 2, spends 4": HalfTold(),
}
found = {
    name: dr.audit(privatizer, runs=800, layout=dr.Layout(3, 2, 3)) for name, privatizer in audited.items()
}

# %%
# "Claimed" is what the session's guarantee says, whatever the class is called: the third one says 4.

shown.Table(
    ["audited", "typed", "claimed by the guarantee", "lower bound found", "failures"],
    [
        [
            name,
            one.budget.epsilon,
            audit.guarantee.epsilon,
            audit.epsilon,
            "; ".join(audit.failures) or "none",
        ]
        for (name, one), audit in zip(audited.items(), found.values(), strict=True)
    ],
)

# %%

shown.stamp([audit.guarantee for audit in found.values()], "800 runs a world and game")
