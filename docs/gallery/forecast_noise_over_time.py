"""
Noise over time, by strategy
============================

Three noise strategies are compared: a binary tree, correlated noise (square-root factorization), and fresh
noise for each batch. All three give the same guarantee, but their errors differ. The figure shows the
standard deviation of the noise in one transition count, summed over all users so far.
"""

import shown

import discreet as dr

mdp = dr.make("riverswim")
query = dr.mechanisms.CountQuery(mdp.layout, visits=False, center_rewards=True)
schedule = dr.Schedule(20_000, growth=1.2)
times = [int(n) for n in schedule.release_times if n >= 10]
strategies = ["tree", "square-root", "batches"]
noise, promised = {}, []
for release in strategies:
    privatizer = dr.Central(epsilon=1, delta=1e-6, noise="gaussian", release=release)
    mechanism = privatizer.mechanism(query, schedule, dr.Seeded(0))
    noise[release] = [mechanism.laws_at(n)["transition_counts"].std() for n in times]
    promised.append(mechanism.guarantee)

# %%

figure, axes = shown.figure(height=3.4)
for colour, (release, deviations) in zip(shown.COLOURS, noise.items(), strict=False):
    axes.plot(times, deviations, color=colour, drawstyle="steps-post")
    place = (times[-1], deviations[-1])
    axes.annotate(release, place, xytext=(4, 0), textcoords="offset points", color=colour, va="center")
axes.set(xscale="log", xlabel="people so far", ylabel="noise of one count", ylim=(0, None))
shown.stamp(promised, "none, closed forms", figure)
