"""
A learner for environments that do not change with the step
===========================================================

If the environment is declared to be the same at every step, one model can be fitted to all releases together.
This learner needs fewer users, but its results rely on that declaration.
"""

import shown

import discreet as dr

mdp = dr.make("riverswim", rewards="bernoulli", horizon=10)
private = dr.Central(epsilon=1, delta=1e-6)
learners = {"noise-aware (default)": dr.NoiseAwareUCBVI(), "joint model": dr.JointPosterior()}
results = {
    name: dr.simulate(mdp, learner, private, episodes=10_000, seeds=3, workers=1)
    for name, learner in learners.items()
}

# %%

figure, axes = shown.figure()
for colour, (name, result) in zip(shown.COLOURS, results.items(), strict=False):
    axes.plot(result.episodes, result.regret.mean(axis=0), color=colour, label=name)
    axes.plot(result.episodes, result.regret.T, color=colour, linewidth=0.6, alpha=0.5)
axes.plot(
    result.episodes,
    result.uniform_regret * result.episodes / result.users,
    ":",
    color="0.5",
    label="never learns",
)
axes.set(xlabel="people", ylabel="regret, in rewards", title="Thin: single seeds")
axes.legend()
shown.stamp([result.guarantee for result in results.values()], 3, figure)
