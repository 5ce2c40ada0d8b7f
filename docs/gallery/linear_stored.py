"""
Stored data with linear features
================================

DP-PEVI reads one release, which contains a noisy Gram matrix and noisy regression responses for each step.
The privacy cost is computed for the whole release. The learner then plans pessimistically. The figure shows
the loss of value on a stored data set of 3000 users, at several budgets of zero-concentrated DP.
"""

import numpy as np
import shown

import discreet as dr

mdp = dr.envs.synthetic_linear_mdp(seed=0)  # Qiao and Wang (2023)
table = mdp.to_tabular()
data = dr.envs.rollout_batch(table, dr.envs.synthetic_linear_behaviour(), 3000, seed=1)
best = float(table.initial @ dr.envs.optimal_values(table)[0][0])


def suboptimality(learner, seed):
    found = dr.learners.learn_linear(learner, mdp.layout, mdp.features, data, dr.Seeded(seed))
    return best - dr.envs.policy_value(table, found.policy), found.guarantee


budgets, rows, promised = [0.1, 0.5, 2.0, 10.0], [], []
for rho in budgets:
    found = [suboptimality(dr.DPPEVI(rho=rho), seed) for seed in range(3)]
    rows.append([gap for gap, _ in found])
    promised.append(found[0][1])
exact, _ = suboptimality(dr.learners.PEVI(), 0)
people = best - dr.envs.policy_value(table, dr.envs.synthetic_linear_behaviour())

# %%

figure, axes = shown.figure(height=3.2)
axes.errorbar(
    budgets,
    np.mean(rows, axis=1),
    yerr=[np.mean(rows, axis=1) - np.min(rows, axis=1), np.max(rows, axis=1) - np.mean(rows, axis=1)],
    marker="o",
    capsize=3,
    label="DP-PEVI: mean and range",
)
axes.axhline(exact, color=shown.COLOURS[1], label="PEVI, no privacy")
axes.axhline(people, color="0.5", linestyle=":", label="what people did")
axes.set(xscale="log", yscale="log", xlabel="ρ of zCDP, for a person's whole record", ylabel="value lost")
axes.legend()
shown.stamp(promised, 3, figure)
