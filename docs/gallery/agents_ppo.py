"""
Train PPO in a private release, with Stable-Baselines3
======================================================

One half of a private release becomes environments, in which PPO is trained. The other half gives intervals
for the gains of PPO's policy and of exact planning. Neither half costs further budget. The cross is the true
gain, which is known only in a simulation.
"""

import numpy as np
import shown
from stable_baselines3 import PPO

import discreet as dr

mdp = dr.make("random", states=6, actions=3, horizon=6, seed=1)
behaviour = dr.envs.uniform_policy(mdp)
people = dr.envs.rollout_batch(mdp, behaviour, 20_000, seed=0)
spec = dr.mechanisms.ProblemSpec(mdp.layout, stationary=True)
central = dr.Central(epsilon=3, delta=1e-6, noise="gaussian")
with central.stored(dr.DPAPVI().query(spec), dr.Seeded(0)) as session:
    session.submit_many(people, np.arange(len(people)))
    release = session.release().keep()

train, held_out = dr.learners.split_release(release)
model = dr.learners.world_model(train, spec)
env = model.vector_env(64, observation="one-hot", time=True, sb3=True)
agent = PPO(
    "MlpPolicy", env, gamma=1.0, n_steps=64, batch_size=1024, learning_rate=1e-3, seed=0, device="cpu"
)
agent.learn(100_000)
policies = {
    "PPO": model.policy_table(lambda seen: agent.predict(seen, deterministic=True), "one-hot", time=True),
    "exact planning": model.plan(),
}
found = dr.learners.ope.evaluate_policies(held_out, policies, spec)

# %%


def true_gain(policy):
    """Return the exact gain; -1 in the table continues as before."""
    mixed = np.array(behaviour)
    mixed[policy >= 0] = np.eye(mdp.actions)[policy[policy >= 0]]
    return dr.envs.policy_value(mdp, mixed) - dr.envs.policy_value(mdp, behaviour)


figure, axes = shown.figure(height=2.2)
for i, (name, policy) in enumerate(policies.items()):
    gain = found.gains[name]
    axes.plot([gain.low, gain.high], [i, i], color=shown.COLOURS[i], linewidth=4, solid_capstyle="butt")
    axes.plot(true_gain(policy), i, "x", color="black", markersize=8)
axes.axvline(0, color="0.5", linestyle=":")
axes.set(
    yticks=range(len(policies)),
    yticklabels=list(policies),
    xlabel="gain over what people did (joint 95 % intervals, × true gain)",
)
axes.invert_yaxis()
shown.stamp([release.guarantee], 1, figure)
