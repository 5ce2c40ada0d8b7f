"""
What privacy costs while learning
=================================

Twenty thousand users arrive one after the other. The policy for each user is learned from the users before
them. The private learner sees only noisy sums, and the learner without privacy sees exact sums. With the same
seed, both learners meet the same simulated users.
"""

import shown

import discreet as dr

mdp = dr.make("riverswim", rewards="bernoulli")
privacy = {"no privacy": dr.NoPrivacy(), "ε = 10": dr.Central(epsilon=10, delta=1e-6)}
privacy["ε = 1"] = dr.Central(epsilon=1, delta=1e-6)
results = {
    name: dr.simulate(mdp, dr.NoiseAwareUCBVI(), privatizer, episodes=20_000, seeds=8)
    for name, privatizer in privacy.items()
}

# %%
# The dotted line is the regret of a policy that never learns. A private learner whose curve is below that
# line has learned. A curve that does not bend shows no learning, whatever its height.

figure, axes = shown.figure()
for colour, (name, result) in zip(shown.COLOURS, results.items(), strict=False):
    mean = result.regret.mean(axis=0)
    axes.plot(result.episodes, mean, color=colour)
    shown.band(axes, result.episodes, result.regret.min(axis=0), result.regret.max(axis=0), colour)
    axes.annotate(
        name, (result.episodes[-1], mean[-1]), xytext=(4, 0), textcoords="offset points", color=colour
    )
plain = results["no privacy"]
axes.plot(plain.episodes, plain.uniform_regret * plain.episodes / plain.users, ":", color="0.5")
axes.annotate("never learns", (1000, 3400), xytext=(-70, 4), textcoords="offset points", color="0.4")
axes.set(
    xscale="log",
    yscale="log",
    xlabel="people",
    ylabel="regret, in rewards",
    title="RiverSwim: mean and range",
)
shown.stamp([result.guarantee for result in results.values()], 8, figure)

# %%
# The last column is the difference from the run without privacy, paired by seed: both runs of a pair have the
# same simulated users.

rows = []
for name, result in results.items():
    paired = "" if result is plain else str(result.paired(plain))
    rows.append([name, f"{result.final_regret.mean():,.0f}", f"{100 * result.late_share:.1f} %", paired])
shown.Table(["", "final regret", "late share", "minus no privacy"], rows)
