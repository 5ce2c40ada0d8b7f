"""
Few changes, each shown to help
===============================

Decision points is a learner that changes the users' own actions only in states where the data show a gain. It
also states a confidence interval for the gain. Each interval in the figure comes from one private release.
The cross is the true gain, which is known only in a simulation.
"""

import numpy as np
import shown

import discreet as dr

mdp = dr.make("random", states=6, actions=3, horizon=6, seed=1)
behaviour = dr.envs.uniform_policy(mdp)
before = dr.envs.policy_value(mdp, behaviour)


def true_gain(learned):
    """Return the exact gain in value of following the learned policy in the states that it changes.

    In all other states users keep their own actions.
    """
    mixed = np.array(behaviour)
    changed = np.eye(mdp.actions)[learned.policy]
    mixed[learned.supported] = changed[learned.supported]
    return dr.envs.policy_value(mdp, mixed) - before


cases = [(10_000, 10), (10_000, 1), (100_000, 10), (100_000, 1)]
found = []
for users, epsilon in cases:
    data = dr.learners.SimulatedDataset(mdp, behaviour, users=users)
    learned = dr.learn_offline(
        data, dr.DecisionPoints(), dr.Central(epsilon=epsilon, delta=1e-6), dr.Seeded(0)
    )
    found.append((learned, true_gain(learned)))

# %%

figure, axes = shown.figure(height=3.0)
for i, (learned, truth) in enumerate(found):
    gain = learned.gain
    colour = shown.COLOURS[2] if gain.shown else shown.COLOURS[1]
    axes.plot([gain.low, gain.high], [i, i], color=colour, linewidth=4, solid_capstyle="butt")
    axes.plot(truth, i, "x", color="black", markersize=8)
axes.axvline(0, color="0.5", linestyle=":")
labels = [
    f"{users:,} people, ε = {epsilon}: {learned.changes} states"
    for (users, epsilon), (learned, _) in zip(cases, found, strict=True)
]
axes.set(
    yticks=range(len(cases)),
    yticklabels=labels,
    xlabel="gain over what people did (95 % interval, × true gain)",
)
axes.invert_yaxis()
shown.stamp([learned.guarantee for learned, _ in found], 1, figure)
