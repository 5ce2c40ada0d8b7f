"""
A shuffler in place of a trusted server
=======================================

Devices send bits, a shuffler lets out sums of whole batches, and nobody sees a trajectory. The noise of a
batch is that of a server that adds it itself; what a server can do better is to reuse old sums.
"""

import shown

import discreet as dr

mdp = dr.make("riverswim", rewards="bernoulli", horizon=10)
learner = dr.NoiseAwareUCBVI(replan_growth=1.2)
runs = {
    "shuffled bits": dr.Shuffle(epsilon=1, delta=1e-6),
    "trusted server, batches": dr.Central(epsilon=1, delta=1e-6, release="batches"),
    "trusted server, default": dr.Central(epsilon=1, delta=1e-6),
}
results = {
    name: dr.simulate(mdp, learner, one, episodes=20_000, seeds=4, workers=1) for name, one in runs.items()
}

# %%

figure, axes = shown.figure()
for colour, (name, result) in zip(shown.COLOURS, results.items(), strict=False):
    axes.plot(result.episodes, result.regret.mean(axis=0), color=colour, label=name)
    shown.band(axes, result.episodes, result.regret.min(axis=0), result.regret.max(axis=0), colour)
never = result.uniform_regret * result.episodes / result.users
axes.plot(result.episodes, never, ":", color="0.5", label="never learns")
axes.set(xscale="log", yscale="log", xlabel="people", ylabel="regret, in rewards")
axes.legend()
shown.stamp([result.guarantee for result in results.values()], 4, figure)
