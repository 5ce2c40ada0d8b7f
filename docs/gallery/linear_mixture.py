"""
Features instead of tables
==========================

For a linear mixture MDP with d features, the learner needs sums of size d × d instead of one count for each
(h, s, a, s'). UCRL-VTR fits values by regression on these features. The figure compares its regret with and
without privacy. Privacy is provided by a trusted server.
"""

import shown

import discreet as dr

mdp = dr.make("linear-mixture")
privacy = {
    "no privacy": dr.NoPrivacy(),
    "(10, 1e-5)": dr.Central(epsilon=10, delta=1e-5),
    "(1, 1e-5)": dr.Central(epsilon=1, delta=1e-5),
}
results = {
    name: dr.simulate(mdp, dr.learners.UCRLVTR(), one, episodes=2000, seeds=3, workers=1)
    for name, one in privacy.items()
}

# %%

figure, axes = shown.figure()
for colour, (name, result) in zip(shown.COLOURS, results.items(), strict=False):
    axes.plot(result.episodes, result.regret.mean(axis=0), color=colour, label=name)
    shown.band(axes, result.episodes, result.regret.min(axis=0), result.regret.max(axis=0), colour)
axes.plot(
    result.episodes,
    result.uniform_regret * result.episodes / result.users,
    ":",
    color="0.5",
    label="never learns",
)
axes.set(
    xlabel="people", ylabel="regret, in rewards", title=f"S = {mdp.states}, d = {mdp.features.dimension}"
)
axes.legend()
shown.stamp([result.guarantee for result in results.values()], 3, figure)
