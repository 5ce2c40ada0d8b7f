"""
What an attacker learns at ε = 0.1, 1 and 10
============================================

The attacker knows the records of all users except one. For this user they know two candidate records, and
they must decide which of the two is in the data. They see the whole release and score it by the likelihood
ratio, which is the best possible test. The black lines show the largest success that the guarantee allows.
"""

import numpy as np
import shown

import discreet as dr

world = dr.make("random", states=4, actions=2, horizon=4, seed=4)
budgets = [0.1, 1.0, 10.0]
found = {
    epsilon: dr.membership_attack(
        world,
        dr.DPAPVI(),
        dr.Central(epsilon=epsilon, delta=1e-6),
        200,
        target="canary",
        games=4,
        shadows=5,
        trials=70,
    )
    for epsilon in budgets
}

# %%
# The plots show the rate of true positives against the rate of false positives. On the diagonal the attacker
# is as good as a random guess. The band is two standard errors wide on each side, from 280 trials. Parts of a
# curve above the black line are sampling error.

rates, trials = np.linspace(0, 1, 200), 4 * 70
figure, panels = shown.figure(3, width=8.4, height=3.7)
for axes, colour, (epsilon, attack) in zip(panels, shown.COLOURS, found.items(), strict=False):
    axes.plot(rates, attack.bound(rates), color="black", linewidth=1, label="the most that ε allows")
    false, true = attack.roc("release").curve
    axes.plot(false, true, color=colour, label="the attack")
    error = 2 * np.sqrt(true * (1 - true) / trials)
    shown.band(axes, false, true - error, true + error, colour)
    axes.plot([0, 1], [0, 1], ":", color="0.5")
    axes.set(title=f"ε = {epsilon:g}", xlabel="false positives")
panels[0].set_ylabel("true positives")
panels[-1].legend(loc="lower right", fontsize=7.5)
shown.stamp(
    [attack.claim for attack in found.values()], "4 games of 70 trials with and without the person", figure
)

# %%
# The area under the curve is the probability that the attacker, given one release with the user and one
# without, tells them apart correctly. The number of trials here is small. With
# ``games=8, trials=1000, seed=77``, which takes four minutes, the attacker is right in 49.9 ± 1.1 of 100
# cases at ε = 0.1, and in 55.2 ± 1.0 of 100 cases at ε = 1.

rows = []
for epsilon, attack in found.items():
    right, error = attack.roc("release").auc
    rows.append([f"{epsilon:g}", f"{100 * right:.0f} ± {200 * error:.0f}", f"{100 * attack.bound.auc:.1f}"])
shown.Table(["ε", "right of 100, ± 2 standard errors", "right at most, by ε"], rows)
