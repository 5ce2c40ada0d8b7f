"""
Noise bits that each device adds
================================

In the shuffle model, each device adds noise bits to its bits. The noise bits of all devices in a batch
together protect each user. The more users are in a batch, the fewer noise bits each device adds.
The noise of a count hardly depends on the size of the batch, so it becomes smaller relative to the count.
"""

import shown

import discreet as dr

query = dr.mechanisms.CountQuery(dr.make("riverswim").layout, visits=False, center_rewards=True)
sizes = [300, 1000, 3000, 10_000, 30_000]
forms = {"flips": [], "noise": []}
for users in sizes:
    schedule = dr.Schedule.one_shot(users)
    mechanism = dr.Shuffle(epsilon=1, delta=1e-6).mechanism(query, schedule, dr.Seeded(0))
    forms["noise"].append(mechanism.laws_at(users)["transition_counts"].std())

# %%

figure, axes = shown.figure(height=3.2)
axes.plot(
    sizes, [noise / n for noise, n in zip(forms["noise"], sizes, strict=True)], "o-", color=shown.COLOURS[0]
)
for users, noise in zip(sizes, forms["noise"], strict=True):
    axes.annotate(f"{noise:.1f}", (users, noise / users), xytext=(5, 5), textcoords="offset points")
axes.set(xscale="log", yscale="log", xlabel="people in the batch", ylabel="noise of a count / people")
axes.set_title("Numbers: standard deviation of one transition count")
shown.stamp([mechanism.guarantee], "none, closed forms", figure)
