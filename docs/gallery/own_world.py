"""
Use an environment from Gymnasium
=================================

The example is a tabular Gymnasium environment with episodes that end. ``from_gymnasium`` adds an absorbing
final state and scales the rewards.
"""

import shown

import discreet as dr

mdp = dr.from_gymnasium("FrozenLake-v1", is_slippery=False, horizon=15)
print(mdp)
privacy = {"no privacy": dr.NoPrivacy(), "(10, 1e-6)": dr.Central(epsilon=10, delta=1e-6)}
results = {
    name: dr.simulate(mdp, dr.NoiseAwareUCBVI(), one, episodes=20_000, seeds=3)
    for name, one in privacy.items()
}

# %%

figure, axes = shown.figure(height=3.3)
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
axes.set(xscale="log", yscale="log", xlabel="people", ylabel="regret: goals missed")
axes.legend()
shown.stamp([result.guarantee for result in results.values()], 3, figure)
