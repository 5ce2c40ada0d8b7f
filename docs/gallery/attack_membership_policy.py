"""
Is the policy alone enough to attack?
=====================================

Three adversaries judge whether a person was in the data: who sees the noisy counts, who sees the values,
and who sees the policy alone. Without privacy, counts give everything away; with it, all three stay within
the guarantee.
"""

import shown

import discreet as dr

world = dr.make("random", states=4, actions=2, horizon=4, seed=4)
played = {
    "no privacy": (dr.learners.APVI(), dr.NoPrivacy()),
    "ε = 1": (dr.DPAPVI(), dr.Central(epsilon=1, delta=1e-6)),
}
found = {
    name: dr.membership_attack(world, *parts, 50, target="canary", games=4, shadows=20, trials=60)
    for name, parts in played.items()
}

# %%

adversaries = [roc.adversary for roc in found["ε = 1"].rocs]
shown.Table(
    ["", *(f"area under ROC: {one}" for one in adversaries), "the most that is allowed"],
    [
        [
            name,
            *(f"{attack.roc(one).auc[0]:.2f}" for one in adversaries),
            f"{attack.bound.auc:.3f}" if attack.claim.epsilon else "1 (no promise)",
        ]
        for name, attack in found.items()
    ],
)

# %%

shown.stamp([attack.claim for attack in found.values()], "4 games of 60 trials")
