"""
How many users are needed to learn a whole policy
=================================================

The learner reads one private release of counts and then plans pessimistically. With few users, the noise of
the release dominates the error. With 100 times as many users, the noise hardly matters.
"""

import numpy as np
import shown

import discreet as dr

mdp = dr.make("random", states=5, actions=3, horizon=5, seed=3)
behaviour = dr.envs.uniform_policy(mdp)
best = float(mdp.initial @ dr.envs.optimal_values(mdp)[0][0])
people = [300, 1000, 3000, 10_000, 30_000, 100_000]
privacy = {
    "no privacy": (dr.learners.APVI(), dr.NoPrivacy()),
    "ε = 10": (dr.DPAPVI(), dr.Central(epsilon=10, delta=1e-6)),
    "ε = 1": (dr.DPAPVI(), dr.Central(epsilon=1, delta=1e-6)),
    "ε = 0.1": (dr.DPAPVI(), dr.Central(epsilon=0.1, delta=1e-6)),
}
lost, promised = {}, []
for name, (learner, privatizer) in privacy.items():
    lost[name] = []
    for users in people:
        found = [
            dr.learn_offline(
                dr.learners.SimulatedDataset(mdp, behaviour, users, run=run),
                learner,
                privatizer,
                dr.Seeded(run),
            )
            for run in range(4)
        ]
        lost[name].append(np.mean([best - dr.envs.policy_value(mdp, one.policy) for one in found]))
    promised.append(found[0].guarantee)

# %%

figure, axes = shown.figure()
for colour, (name, gaps) in zip(shown.COLOURS, lost.items(), strict=False):
    axes.plot(people, gaps, "o-", color=colour, label=name)
axes.axhline(best - dr.envs.policy_value(mdp, behaviour), color="0.5", linestyle=":", label="what people did")
axes.set(xscale="log", xlabel="people", ylabel="value lost (mean)")
axes.set_yscale("symlog", linthresh=1e-3)
axes.set_ylim(bottom=0)
axes.legend()
shown.stamp(promised, 4, figure)
