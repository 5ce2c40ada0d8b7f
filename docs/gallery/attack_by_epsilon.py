"""
What an attacker learns at ε = 0.1, 1 and 10
============================================

Somebody knows everybody in the data but one, and everything about the two records that this one may be.
She sees the whole release, and scores it by the likelihood ratio: nobody can do better. The lines are
what the guarantee allows.
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
# True positives against false positives: on the diagonal the attacker tosses a coin. The band is two
# standard errors of 280 trials: what reaches over the black line is luck of these trials.

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
# She is given one release with the person and one without, and says which is which. These are few trials:
# with ``games=8, trials=1000, seed=77``, four minutes, she is right 49.9 ± 1.1 times of 100 at ε = 0.1, and
# 55.2 ± 1.0 times at ε = 1.

rows = []
for epsilon, attack in found.items():
    right, error = attack.roc("release").auc
    rows.append([f"{epsilon:g}", f"{100 * right:.0f} ± {200 * error:.0f}", f"{100 * attack.bound.auc:.1f}"])
shown.Table(["ε", "right of 100, ± 2 standard errors", "right at most, by ε"], rows)
