"""
Which mechanisms one budget allows
==================================

The same budget can be spent by different mechanisms. ``estimate_run`` lists these mechanisms for the schedule
of a learner, the most accurate first. It needs no data. ``release="auto"`` selects the first one.
"""

import shown

import discreet as dr

mdp = dr.make("riverswim")
asked = {
    "sums after every user, ε = 1": (dr.DPUCBVI(replan_every=1), dr.Central(epsilon=1)),
    "sums on a schedule, (1, 1e-6)": (dr.DPUCBVI(), dr.Central(epsilon=1, delta=1e-6)),
    "measurements, (1, 1e-6)": (dr.NoiseAwareUCBVI(), dr.Central(epsilon=1, delta=1e-6)),
    "local, ε = 3": (dr.NoiseAwareUCBVI(), dr.Local(epsilon=3)),
}
rows = []
for name, (learner, privatizer) in asked.items():
    found = dr.estimate_run(dr.experiments.Setup(mdp, learner, privatizer, 20_000))
    for place, option in enumerate(found.choices[:4]):
        rows.append([name if place == 0 else "", option.release, option.noise, f"{option.ratio:.2f}"])

# %%

shown.Table(["what is asked", "mechanism", "noise", "error over the best"], rows)

# %%

shown.stamp("each line at its own true budget", "none, closed forms")
