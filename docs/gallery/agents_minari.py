"""
Write the model of a release as a Minari dataset
================================================

Episodes from the model of a private release become a Minari dataset, which offline learners read. The
episodes are of no person: intervals that are computed from them describe the model, not the users.
"""

import os
import tempfile

import minari
import numpy as np
import shown
from minari.data_collector import EpisodeBuffer

import discreet as dr

mdp = dr.make("random", states=6, actions=3, horizon=6, seed=1)
behaviour = dr.envs.uniform_policy(mdp)
people = dr.envs.rollout_batch(mdp, behaviour, 20_000, seed=0)
spec = dr.mechanisms.ProblemSpec(mdp.layout, stationary=True)
central = dr.Central(epsilon=3, delta=1e-6, noise="gaussian")
with central.stored(dr.DPAPVI().query(spec), dr.Seeded(0)) as session:
    session.submit_many(people, np.arange(len(people)))
    release = session.release().keep()

# %%
# An episode has one more observation than actions. The penalty is meant for training agents, so it is 0 here.

env = dr.learners.world_model(release, spec).env(penalty=0.0, as_before=False)
env.action_space.seed(0)
episodes = []
for i in range(2_000):
    seen, _ = env.reset(seed=0 if i == 0 else None)
    one = EpisodeBuffer(id=i, observations=[seen], actions=[])
    ended = truncated = False
    while not (ended or truncated):
        action = env.action_space.sample()
        seen, reward, ended, truncated, _ = env.step(action)
        one.observations.append(seen)
        one.actions.append(action)
        one.rewards.append(reward)
        one.terminations.append(ended)
        one.truncations.append(truncated)
    episodes.append(one)

with tempfile.TemporaryDirectory() as folder:
    os.environ["MINARI_DATASETS_PATH"] = folder
    dataset = minari.create_dataset_from_buffers(
        "discreet/private-world-v0",
        episodes,
        observation_space=env.observation_space,
        action_space=env.action_space,
        description=f"made from release {env.spec.kwargs['made_from']['release']}",
    )
    returns = [episode.rewards.sum() for episode in dataset.iterate_episodes()]
shown.stamp([release.guarantee], 1)
shown.Table(
    ("episodes", "steps", "mean return", "of people"),
    [
        (
            f"{dataset.total_episodes:,}",
            f"{dataset.total_steps:,}",
            f"{np.mean(returns):.2f}",
            f"{dr.envs.policy_value(mdp, behaviour):.2f}",
        )
    ],
)
