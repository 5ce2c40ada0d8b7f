"""
Is it worth asking? A forecast before any data
==============================================

A gain that cannot be shown is paid for in vain. From public facts alone: how likely is it that so many
people's report shows one, in a world where the best policy gains 0.2?
"""

import shown

import discreet as dr

mdp = dr.make("random", states=6, actions=3, horizon=6, seed=1)
world = dr.PublicWorld(mdp, dr.uniform_policy(mdp), dr.Returns())
people = [1000, 3000, 10_000, 30_000]
privacy = {"no privacy": dr.NoPrivacy()}
privacy |= {f"ε = {epsilon}": dr.Central(epsilon=epsilon, delta=1e-6) for epsilon in (10, 1)}
chances = {
    name: [dr.forecast_gain(world, users, one, draws=12) for users in people] for name, one in privacy.items()
}

# %%
# The bars are 95 % intervals of these chances, from 12 simulated releases each.

figure, axes = shown.figure()
for colour, (name, found) in zip(shown.COLOURS, chances.items(), strict=False):
    axes.plot(people, [one.chance for one in found], "o-", color=colour, label=name)
    for one in found:
        axes.plot([one.users] * 2, [one.low, one.high], color=colour, alpha=0.4)
axes.set(xscale="log", xlabel="people", ylabel="chance that a gain is shown", ylim=(-0.03, 1.03))
axes.legend()
shown.stamp("central " + "; ".join(privacy) + ", δ = 1e-6", "12 draws a point", figure)
