"""
Is the policy alone enough to attack?
=====================================

Three adversaries decide whether a user was in the data. The first sees the noisy counts, the second sees the
value estimates, and the third sees only the policy. Without privacy, the counts reveal whether the user was
in the data. With privacy, the success of all three adversaries stays within the guarantee.
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
