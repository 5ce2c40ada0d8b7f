"""
A shuffler instead of a trusted server
======================================

Devices send bits, and a shuffler publishes only the sums over whole batches. No party sees the trajectory of
another user. The noise of one batch is as large as the noise that a trusted server would add to it. A trusted
server can still be more accurate, because it can reuse the sums of earlier batches.
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
