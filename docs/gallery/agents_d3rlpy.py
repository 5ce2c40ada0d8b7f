"""
Train an offline learner in a private release, with d3rlpy
==========================================================

d3rlpy's ``DiscreteCQL`` reads logged episodes only. Here they come from the model of one half of a private
release, with the penalty for uncertain actions in the rewards. The other half judges the policy.
"""

import d3rlpy
import numpy as np
import shown

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

# %%
# d3rlpy wants float32 rewards, and terminal states apart from cut episodes. Without ``action_size`` it counts
# the actions that occur.

model = dr.learners.world_model(train, spec)
envs = model.vector_env(64, observation="one-hot", time=True)
actions, draw = int(envs.single_action_space.n), np.random.default_rng(0)
seen, steps = envs.reset(seed=0)[0], []
for _ in range(50 * spec.horizon):
    chosen = draw.integers(actions, size=64)
    after, rewards, terminated, truncated, _ = envs.step(chosen)
    steps.append((seen, chosen, rewards, terminated, truncated))
    seen = after
# one environment after the other; each ends with an episode, since all episodes have H steps here
columns = [np.concatenate(np.stack(column).swapaxes(0, 1)) for column in zip(*steps, strict=True)]
dataset = d3rlpy.dataset.MDPDataset(
    observations=columns[0],
    actions=columns[1][:, None],
    rewards=columns[2][:, None].astype(np.float32),
    terminals=columns[3].astype(np.float32),
    timeouts=columns[4].astype(np.float32),
    action_space=d3rlpy.ActionSpace.DISCRETE,
    action_size=actions,
)
d3rlpy.seed(0)
cql = d3rlpy.algos.DiscreteCQLConfig(
    gamma=1.0, alpha=0.1, learning_rate=1e-3, batch_size=256, target_update_interval=50
).create(device="cpu")
cql.fit(
    dataset,
    n_steps=600,
    n_steps_per_epoch=300,
    show_progress=False,
    logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
)

# %%

policy = model.policy_table(cql.predict, "one-hot", time=True)
found = dr.learners.ope.evaluate_policies(held_out, {"CQL": policy, "exact planning": model.plan()}, spec)
shown.stamp([release.guarantee], 1)
shown.Table(
    ("policy", "gain over what people did", "95 % interval", "shown"),
    [
        (
            name,
            f"{gain.estimate:.3f}",
            f"{gain.low:.3f} to {gain.high:.3f}",
            "yes" if found.shown(name) else "no",
        )
        for name, gain in found.gains.items()
    ],
)
