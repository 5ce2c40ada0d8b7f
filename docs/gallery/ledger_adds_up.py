"""
Total privacy cost of releases from the same users
==================================================

A ledger records every release before its noise is drawn, and computes the exact guarantee of all recorded
releases together. It refuses a release that would exceed the limit that the data owner has set. The total ε
of ten releases at ε = 0.5 is less than 5.
"""

import tempfile
from pathlib import Path

import shown

import discreet as dr

query = dr.mechanisms.CountQuery(dr.Layout(states=4, actions=2, horizon=5), center_rewards=True)
privatizer = dr.Central(epsilon=0.5, delta=1e-7)
spent, promised = [], None
with tempfile.TemporaryDirectory() as folder, dr.Ledger.open(Path(folder) / "study.sqlite") as ledger:
    ledger.set_limit("ward", epsilon=2.0, delta=1e-6)
    for release in range(1, 21):
        with privatizer.stored(query, dr.Secure()) as session:
            promised = session.guarantee
            try:
                ledger.reserve(
                    "ward", session.records, delta=1e-6, users=10_000, purpose=f"release {release}"
                )
            except ValueError as refused:
                print(f"release {release} is refused:", str(refused).split(";")[0][:150])
                break
        spent.append(ledger.totals("ward", delta=1e-6).epsilon)

# %%

count = range(1, len(spent) + 1)
figure, axes = shown.figure(height=3.2)
axes.plot(count, spent, "o-", label="what the ledger holds at δ = 1e-6")
axes.plot(count, [0.5 * n for n in count], ":", color="0.5", label="if ε were simply added")
axes.axhline(2.0, color=shown.COLOURS[1], label="the owner's limit")
axes.set(xlabel="releases of the same people", ylabel="ε of all of them", ylim=(0, None))
axes.legend()
shown.stamp([promised], "none; each release", figure)
