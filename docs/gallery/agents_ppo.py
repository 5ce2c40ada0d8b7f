"""
Train PPO of Stable-Baselines3 in a private release
===================================================

One half of a private release becomes environments, in which PPO is trained. The other half states an interval
for the gain of PPO's policy. Neither costs further budget. The cross is the true gain, which is known only in a
simulation.
"""

import numpy as np
import shown
from stable_baselines3 import PPO

import discreet as dr

mdp = dr.make("random", states=6, actions=3, horizon=6, seed=1)
behaviour = dr.envs.uniform_policy(mdp)
central = dr.Central(epsilon=3, delta=1e-6, noise="gaussian")
data = dr.learners.SimulatedDataset(mdp, behaviour, users=50_000)
learned = dr.learn_offline(data, dr.DPAPVI(), central, dr.Seeded(0))
train, held_out = dr.learners.split_release(learned.release)

model = dr.learners.world_model(train, learned.release.spec)
env = model.vector_env(64, observation="one-hot", time=True, sb3=True)
agent = PPO("MlpPolicy", env, gamma=1.0, n_steps=64, batch_size=1024, learning_rate=3e-3, seed=0, device="cpu")
