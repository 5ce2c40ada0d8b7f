"""
An audit tries to refute a claim
================================

The audit plays distinguishing games against a mechanism. In each game, the mechanism makes hundreds of
releases for each of two data sets that differ in one user. From these releases the audit computes a lower
bound on ε. The bound is valid except with a stated probability of false alarm. The audit also checks
identities of the noise: its scale is as stated in every cell, and different cells do not share noise.
"""

import shown

import discreet as dr

audit = dr.audit_privatizer(dr.Central(epsilon=1.0), runs=800, layout=dr.Layout(3, 2, 3))
print(audit.verdict)

# %%
# A lower bound above the claimed ε shows that the claim is false, up to the false-alarm probability. A lower
# bound below the claimed ε proves nothing. These games detect noise that is wrong by a factor, but not noise
# that is wrong by a few percent.

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
