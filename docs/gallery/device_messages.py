"""
What one message reveals
========================

A device sends a few randomized elements. Any single message could
come from any other user, with a probability that differs by a factor of at most e^ε.
The sum of the messages of thousands of devices estimates the counts. The device computes its own guarantee.
"""

import numpy as np
import shown

import discreet as dr

mdp = dr.make("riverswim", horizon=6)
query = dr.mechanisms.CountQuery(mdp.layout, visits=False, center_rewards=True)
users, privatizer = 3000, dr.Local(epsilon=4.0, randomizer="subset")
session = privatizer.start(query, dr.Schedule.one_shot(users), dr.Seeded(0))
session.release()
plan = dr.Plan(np.ones((6, mdp.states), int), users=users)  # every user chooses action 1 (swim right)
encode = session.begin(plan)
people = dr.envs.rollout_batch(mdp, plan.policy, users, seed=5)
sizes = []
for i in range(users):
    person = dr.Trajectory(people.states[i], people.actions[i], people.rewards[i])
    message = encode(person, plan, dr.mechanisms.SeededRng(np.array([7, 7], np.uint64), i))
    sizes.append(len(message.message))
    session.submit(message)
release = session.release()
print(encode.guarantee)

# %%
# The points are estimates from the sum of all messages. The bars are the true numbers of users who moved
# right at the second step. In a real run no party would see these true numbers.

estimate = release.estimates["transition_counts"]
states = range(mdp.states)
truth = [np.sum((people.states[:, 1] == s) & (people.states[:, 2] == s + 1)) for s in states]
told = [estimate.value[1, s, 1, s + 1] if s + 1 < mdp.states else 0.0 for s in states]
figure, axes = shown.figure(height=3.2)
axes.bar(states, truth, color="0.8", label="truth")
axes.errorbar(
    states, told, yerr=2 * estimate.law.std(), fmt="o", capsize=3, label="from messages, ± 2 deviations"
)
axes.set(xlabel="state at step 1", ylabel=f"of {users:,} people, moved right")
axes.legend()
shown.stamp([session.guarantee], 1, figure)
