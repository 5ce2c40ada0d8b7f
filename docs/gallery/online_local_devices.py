"""
Learning under local privacy
============================

Under local privacy, each device randomizes the steps of its user before it sends a message. In the papers,
every device adds noise to every counter. At ε = 10 this noise is too large to learn from 20 000 users. If
each device sends randomized responses for a few random steps instead, the learner can learn.
"""

import shown

import discreet as dr

mdp = dr.make("riverswim", rewards="bernoulli")
learner = dr.NoiseAwareUCBVI()
runs = {
    "noise in every counter": dr.Local(epsilon=10, randomizer="laplace"),
    "reports of random steps": dr.Local(epsilon=10),
    "a trusted server": dr.Central(epsilon=10, delta=1e-6),
}
results = {name: dr.simulate(mdp, learner, one, episodes=20_000, seeds=4) for name, one in runs.items()}

# %%

figure, axes = shown.figure()
for colour, (name, result) in zip(shown.COLOURS, results.items(), strict=False):
    share = result.regret / (result.uniform_regret * result.episodes / result.users)
    axes.plot(result.episodes, share.mean(axis=0), color=colour, label=name)
    shown.band(axes, result.episodes, share.min(axis=0), share.max(axis=0), colour)
axes.axhline(1, color="0.5", linestyle=":")
axes.set(xscale="log", xlabel="people", ylabel="regret over that of never learning", ylim=(0, 1.25))
axes.legend(loc="lower left")
shown.stamp([result.guarantee for result in results.values()], 4, figure)
