"""
Which baseline is privacy compared with?
========================================

The price of privacy is a ratio of regrets, so it depends on the baseline in the denominator. Posterior
sampling (PSRL) and randomised value functions (RLSVI) are strong baselines without privacy. Both need exact
sums. The noise that RLSVI adds for exploration gives no privacy guarantee.
"""

import shown

import discreet as dr

mdp = dr.make("riverswim", rewards="bernoulli")
learners = {
    "PSRL": dr.learners.PSRL(),
    "RLSVI": dr.learners.RLSVI(),
    "UCBVI (Bernstein)": dr.learners.UCBVI(bonus="bernstein", bonus_scale=0.1, replan_every=1),
    "noise-aware": dr.NoiseAwareUCBVI(),
}
results = {
    name: dr.simulate(mdp, learner, dr.NoPrivacy(), episodes=2000, seeds=3)
    for name, learner in learners.items()
}
private = dr.simulate(mdp, dr.NoiseAwareUCBVI(), dr.Central(epsilon=1, delta=1e-6), episodes=2000, seeds=3)

# %%
# The last column is the mean regret of the private learner divided by that of the baseline. The same private
# runs give four different prices of privacy, one for each baseline.

shown.Table(
    ["baseline without privacy", "final regret", "least", "most", "price of (1, 1e-6)"],
    [
        [
            name,
            f"{result.final_regret.mean():,.0f}",
            f"{result.final_regret.min():,.0f}",
            f"{result.final_regret.max():,.0f}",
            f"{private.final_regret.mean() / result.final_regret.mean():.1f}",
        ]
        for name, result in results.items()
    ],
)

# %%

shown.stamp([private.guarantee], 3)
