"""
An audit tries to refute a claim
================================

The audit plays games against a mechanism: two crowds that differ in one person, hundreds of releases
each, and a lower bound on ε that holds but for a stated false alarm. Beside these it checks identities of
the noise: that it is as large as stated, in every cell, and not shared.
"""

import shown

import discreet as dr

audit = dr.audit_privatizer(dr.Central(epsilon=1.0), runs=800, layout=dr.Layout(3, 2, 3))
print(audit.verdict)

# %%
# A lower bound above the claim would be a proof that the claim is false. One below it is no proof of
# anything: these games see what is wrong by a factor, not by a percent.

shown.Table(
    ["game, identity", "claimed ε", "lower bound on ε", "contradicts the claim"],
    [
        *(
            [
                name,
                f"{found.guarantee.epsilon:.3f}",
                f"{found.epsilon:.3f}",
                "YES" if found.exceeded else "no",
            ]
            for name, found in zip(audit.games, audit.evidence, strict=True)
        ),
        *([one.name, "", "", "YES" if one.passed is False else "no"] for one in audit.identities),
    ],
)

# %%

shown.stamp([audit.guarantee], f"{audit.runs} runs a world and game, false alarm {audit.alarm:g}")
