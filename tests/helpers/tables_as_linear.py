"""Tabular MDPs as linear ones, by indicator features: cross-checks of the linear worlds and learners."""

import numpy as np

from discreet.envs.mdp.linear import LinearMDP
from discreet.envs.mdp.linear_mixture import LinearMixtureMDP
from discreet.envs.mdp.tabular import TabularMDP
from discreet.mechanisms.features import MixtureFeatures, one_hot

_LARGEST = 10**7  # entries of the indicator features of a table: 80 MB


def as_linear(mdp: TabularMDP) -> LinearMDP:
    """A tabular MDP with one-hot features, mu_h(s')_{(s,a)} = P_h(s' | s, a), theta_h = r_h: exact.

    Raises ``ValueError`` for an MDP with a mask, per-successor or many-valued rewards.
    """
    if mdp.layout.mask is not None or mdp.entry_rewards is not None or mdp.reward_law == "discrete":
        raise ValueError(
            "mdp: must have all actions admissible, and deterministic or Bernoulli rewards of (s, a)"
        )
    h, pairs = mdp.horizon, mdp.states * mdp.actions
    return LinearMDP(
        one_hot(mdp.states, mdp.actions),
        mdp.transitions.reshape(h, pairs, mdp.states),
        mdp.rewards.reshape(h, pairs),
        mdp.initial,
        reward_law="bernoulli" if mdp.reward_law == "bernoulli" else "deterministic",
        name=mdp.name,
    )


def as_mixture(mdp: TabularMDP) -> LinearMixtureMDP:
    """A tabular MDP as a mixture: phi(s' | s, a) = e_{(s, a, s')} / sqrt(S), w_h = sqrt(S) P_h, d = S^2 A.

    phi_v(s, a) has the S entries v / sqrt(S), so F01 = F+- = 1 and both l1 suprema are sqrt(S);
    ||w_h|| <= C_w = S sqrt(A). For cross-checks: the table has S^4 A^2 entries.

    Raises ``ValueError`` for an MDP that is too large, has a mask, per-successor or many-valued rewards.
    """
    if mdp.layout.mask is not None or mdp.entry_rewards is not None or mdp.reward_law == "discrete":
        raise ValueError(
            "mdp: must have all actions admissible, and deterministic or Bernoulli rewards of (s, a)"
        )
    s, a = mdp.states, mdp.actions
    d = s * a * s
    if d * d > _LARGEST:
        raise ValueError(f"mdp: S = {s}, A = {a} needs {d * d} entries of features: at most {_LARGEST}")
    root = float(np.sqrt(s))
    table = (np.eye(d) / root).reshape(s, a, s, d)
    features = MixtureFeatures(
        table, s * float(np.sqrt(a)), bound=1.0, signed_bound=1.0, l1=root, signed_l1=root
    )
    return LinearMixtureMDP(
        features,
        root * mdp.transitions.reshape(mdp.horizon, d),
        mdp.rewards,
        mdp.initial,
        reward_law="bernoulli" if mdp.reward_law == "bernoulli" else "deterministic",
        name=mdp.name,
    )
