"""
How likely can a gain be shown? A forecast without data
=======================================================

A release that cannot show a gain wastes privacy budget. This forecast uses only public information. It
estimates the probability that a report on a given number of users shows a gain. The example is a simulated
environment in which users choose actions uniformly at random and the best policy gains much.
"""

import shown

import discreet as dr

mdp = dr.make("random", states=6, actions=3, horizon=6, seed=1)
world = dr.pipeline.PublicMDP(mdp, dr.envs.uniform_policy(mdp), dr.mechanisms.ReturnBounds())
people = [100, 300, 1000, 3000, 10_000]
privacy = {"no privacy": dr.NoPrivacy()}
privacy |= {f"ε = {epsilon}": dr.Central(epsilon=epsilon, delta=1e-6) for epsilon in (10, 1)}
chances = {
    name: [dr.pipeline.gain_power(world, users, one, draws=12) for users in people]
    for name, one in privacy.items()
}

# %%
# The bars are 95 % intervals of these probabilities. Each interval comes from 12 simulated releases.

figure, axes = shown.figure()
for colour, look, (name, found) in zip(shown.COLOURS, ("o-", "s--", "^-"), chances.items(), strict=False):
    axes.plot(people, [one.chance for one in found], look, color=colour, label=name)
    for one in found:
        axes.plot([one.users] * 2, [one.low, one.high], color=colour, alpha=0.4)
axes.set(xscale="log", xlabel="people", ylabel="chance that a gain is shown", ylim=(-0.03, 1.03))
axes.legend()
shown.stamp("not private; central ε = 10 and 1, δ = 1e-6", "12 draws a point", figure)
