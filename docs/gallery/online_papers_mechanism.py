"""
The papers' mechanism at a true ε
=================================

Published private learners add Laplace noise in a binary tree and release sums after every user. With the
noise that a true ε = 1 requires, the regret of DP-UCBVI equals that of a policy that never learns. Two other
learners in the figure do learn. The first is UCBVI, the same algorithm without noise. The second is a
noise-aware learner, which knows the distribution of its noise. It uses Gaussian noise and a public schedule.
"""

import shown

import discreet as dr

mdp = dr.make("riverswim", rewards="bernoulli")
each = {"bonus_scale": 0.1, "replan_every": 1}  # a release after every user, as in the papers
runs = {
    "DP-UCBVI, tree, ε = 1": (dr.DPUCBVI(**each), dr.Central(epsilon=1, release="tree")),
    "the same, ε = 10": (dr.DPUCBVI(**each), dr.Central(epsilon=10, release="tree")),
    "UCBVI, no privacy": (dr.learners.UCBVI(bonus="bernstein", **each), dr.NoPrivacy()),
    "noise-aware, (1, 1e-6)": (dr.NoiseAwareUCBVI(), dr.Central(epsilon=1, delta=1e-6)),
}
results = {name: dr.simulate(mdp, *parts, episodes=10_000, seeds=4) for name, parts in runs.items()}

# %%
# Each bar ends at the mean over seeds. The thin line is the range over seeds.

figure, axes = shown.figure(height=2.9)
for i, (_name, result) in enumerate(results.items()):
    share = result.final_regret / result.uniform_regret
    axes.barh(i, share.mean(), color=shown.COLOURS[i], height=0.6)
    axes.plot([share.min(), share.max()], [i, i], color="black", linewidth=1)
axes.axvline(1, color="0.5", linestyle=":")
axes.set(
    yticks=range(len(results)), yticklabels=results, xlabel="regret, as a share of never learning (dotted)"
)
axes.invert_yaxis()
shown.stamp([result.guarantee for result in results.values()], 4, figure)
