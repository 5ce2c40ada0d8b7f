r"""Environments with public features: linear mixtures, hypercubes, and random and wide linear MDPs.

Each environment is a function of its options and a seed. It is drawn by ``numpy.random.default_rng(seed)`` in
the order that its docstring states. ``X_mdp`` returns the model with its weights. ``X`` returns the same MDP
as a :class:`~discreet.envs.mdp.tabular.TabularMDP` with the features, which simulations run. A learner
receives only the public facts and the features.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Literal, ParamSpec

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.envs.mdp.linear import LinearMDP
from discreet.envs.mdp.linear_mixture import LinearMixtureMDP
from discreet.envs.mdp.tabular import TabularMDP
from discreet.mechanisms.features import Features, MixtureFeatures

RewardLaw = Literal["deterministic", "bernoulli"]
Options = ParamSpec("Options")


def _as_table(
    world: Callable[Options, LinearMDP | LinearMixtureMDP], name: str, words: str
) -> Callable[Options, TabularMDP]:
    """Return a factory with the same options that returns the same MDP as a table."""

    @wraps(world)
    def table(*args: Options.args, **options: Options.kwargs) -> TabularMDP:
        return world(*args, **options).to_tabular()

    table.__name__ = table.__qualname__ = name
    _, _, rest = (world.__doc__ or "").partition("\n")
    table.__doc__ = f"{words}\n{rest}"
    table.__signature__ = signature(world).replace(return_annotation="TabularMDP")  # type: ignore[attr-defined]
    return table


# ------------------------------------------------------------------------------- linear mixtures
def linear_mixture_mdp(
    *,
    states: int = 8,
    actions: int = 4,
    horizon: int = 5,
    models: int = 5,
    concentration: float = 0.15,
    rewarding: float = 0.15,
    seed: int = 0,
    rewards: RewardLaw = "deterministic",
    reward_models: int | None = None,
) -> LinearMixtureMDP:
    """Return a linear mixture MDP of m base models, with separate weights at every step.

    Model: Jia et al. (2020) and Ayoub et al. (2020).
    phi_i(s' | s, a) = P^i(s' | s, a) / sqrt(m) and w_h = sqrt(m) times weights in the simplex, so d = m and
    C_w = sqrt(m). F01 = F+- = 1, because every coordinate of phi_v is an average of v divided by sqrt(m). The
    first state is uniform.

    Draws, in this order:

    * base rows (m, S, A) ~ Dirichlet(``concentration``) over the S states;
    * weights (H,) ~ Dirichlet(1/2) over the m models;
    * the set of (h, s, a) with a reward, each with probability ``rewarding``;
    * mean rewards (H, S, A) uniform on [0, 1], 0 for pairs without reward.

    Parameters
    ----------
    states, actions, horizon : int
        S, A, H, each at least 1.
    models : int
        Number of base models m, at least 1.
    concentration : float
        Parameter of the Dirichlet distribution of base rows, above 0.
    rewarding : float
        Probability that an (h, s, a) has a reward, in [0, 1].
    seed : int
        Seed of the draws, at least 0.
    rewards : "deterministic" or "bernoulli"
        Distribution of the rewards; Bernoulli rewards are 0 or 1 and have the same means.
    reward_models : int, optional
        Number p of base tables of mean rewards, at least 1. Mean rewards are then mixtures of p base tables,
        drawn instead and in the same way (p, S, A), with weights (H,) ~ Dirichlet(1/2) over them, drawn last.
        Their public features (``features.rewards``) are psi(s, a) = base rewards / sqrt(p), so that
        ||psi|| <= 1 and ||theta_h|| <= sqrt(p). None: mean rewards without features.

    Raises
    ------
    ValueError
        If a value is outside its range.
    """
    s, a = checks.integer("states", states, 1), checks.integer("actions", actions, 1)
    h, m = checks.integer("horizon", horizon, 1), checks.integer("models", models, 1)
    share = checks.real("rewarding", rewarding, 0.0, 1.0)
    draw = np.random.default_rng(checks.integer("seed", seed, 0))
    base = draw.dirichlet(np.full(s, checks.positive("concentration", concentration)), (m, s, a))
    simplex = draw.dirichlet(np.full(m, 0.5), h)
    tables = h if reward_models is None else checks.integer("reward_models", reward_models, 1)
    earning = draw.uniform(size=(tables, s, a)) < share
    means = earning * draw.uniform(size=(tables, s, a))
    psi = None
    if reward_models is not None:
        most = tables**0.5
        psi = Features(means.transpose(1, 2, 0) / most, 1.0, l1=most, nonneg=True)
        means = np.tensordot(draw.dirichlet(np.full(tables, 0.5), h), means, axes=1)
    root = m**0.5
    features = MixtureFeatures(
        base.transpose(1, 2, 3, 0) / root, root, bound=1.0, signed_bound=1.0, l1=root, signed_l1=root,
        rewards=psi,
    )  # fmt: skip
    return LinearMixtureMDP(
        features, root * simplex, means, np.full(s, 1 / s), reward_law=rewards, name=f"linear-mixture-{seed}"
    )


linear_mixture = _as_table(
    linear_mixture_mdp,
    "linear_mixture",
    "Return the mixture of :func:`linear_mixture_mdp` as a table; its ``features`` are phi (S, A, S, m).",
)


def hypercube_mdp(
    *, dimension: int = 5, horizon: int = 6, gap: float | None = None, seed: int = 0
) -> LinearMixtureMDP:
    """Return the hard linear mixture of Zhou, Gu and Szepesvari (2021) on a hypercube.

    At each step, the best action is one unknown corner of the cube.

    States 0 .. H - 1 are a chain. State H is its end without reward, and state H + 1 has reward 1 at every
    step; both are absorbing. Actions are the corners a of {-1, 1}^(d-1), in the order of
    ``itertools.product``. From chain state j, action a at step h leads to H + 1 with probability delta +
    <mu_h, a>, and otherwise to j + 1. Here delta = 1 / H, mu_h is in {-gap, gap}^(d-1), and ||mu_h||_1 = D =
    gap (d - 1).

    The features are ``phi(j + 1 | j, a) = (a0 (1 - delta), -b0 a)``, ``phi(H + 1 | j, a) = (a0 delta, b0
    a)``, and ``phi(x | x, a) = (a0, 0)`` in the absorbing states. The weights are ``w_h = (1 / a0, mu_h /
    b0)``, a0^2 = 1 / (1 + D) and b0^2 = gap / (1 + D). Then C_w = 1 + D; F01 and F+- are the enumerated
    suprema, F01 <= 1 and F+-^2 = max(1, (1 - 2 delta)^2 + 4 D) / (1 + D).

    Parameters
    ----------
    dimension : int
        d, 2..12; there are 2^(d-1) actions.
    horizon : int
        H, at least 2; there are H + 2 states.
    gap : float, optional
        Above 0, with D <= min(delta, 1 - delta); None: delta / (2 (d - 1)). The lower bound's gap, of order
        sqrt(delta / K), cannot be learned in K episodes.
    seed : int
        Seed of the signs of mu (H, d - 1), at least 0; one fair draw of ``integers(2)`` each.

    Raises
    ------
    ValueError
        If a value is outside its range.
    """
    d, h = checks.integer("dimension", dimension, 2, 12), checks.integer("horizon", horizon, 2)
    delta = 1.0 / h
    most = min(delta, 1.0 - delta) / (d - 1)
    step = most / 2 if gap is None else checks.real("gap", gap, 0.0, most, open_low=True)
    total = step * (d - 1)
    draw = np.random.default_rng(checks.integer("seed", seed, 0))
    mu = step * (2.0 * draw.integers(2, size=(h, d - 1)) - 1.0)
    corners = np.array(list(itertools.product((-1.0, 1.0), repeat=d - 1)))
    a0, b0 = (1.0 / (1.0 + total)) ** 0.5, (step / (1.0 + total)) ** 0.5
    table = np.zeros((h + 2, len(corners), h + 2, d))
    for j in range(h):
        table[j, :, j + 1, 0], table[j, :, j + 1, 1:] = a0 * (1.0 - delta), -b0 * corners
        table[j, :, h + 1, 0], table[j, :, h + 1, 1:] = a0 * delta, b0 * corners
    for end in (h, h + 1):
        table[end, :, end, 0] = a0
    weights = np.concatenate([np.full((h, 1), 1.0 / a0), mu / b0], axis=1)
    means = np.zeros((h, h + 2, len(corners)))
    means[:, h + 1] = 1.0
    return LinearMixtureMDP(MixtureFeatures(table, 1.0 + total), weights, means, name=f"hypercube-{seed}")


hypercube = _as_table(
    hypercube_mdp,
    "hypercube",
    "Return the hard instance of :func:`hypercube_mdp` as a table, with ``features`` (S, A, S, d).",
)


# ------------------------------------------------------------------------------------ linear MDPs
def random_linear_mdp(
    *,
    states: int = 6,
    actions: int = 3,
    horizon: int = 4,
    dimension: int = 4,
    seed: int = 0,
    rewards: RewardLaw = "deterministic",
) -> LinearMDP:
    """Return a random linear MDP with features in the simplex.

    Model: Jin, Yang, Wang and Jordan (2020), assumption A.

    Draws, in this order:

    * phi (S, A) ~ Dirichlet(0.3) over d coordinates, so ||phi||_2 <= ||phi||_1 = 1;
    * mu (H, d) ~ Dirichlet(0.3) over S;
    * theta (H, d) uniform on [0, 1].

    The first state is 0.

    Parameters
    ----------
    states, actions, horizon : int
        S, A, H, each at least 1.
    dimension : int
        d, at least 1.
    seed : int
        Seed of the draws, at least 0.
    rewards : "deterministic" or "bernoulli"
        Distribution of the rewards; Bernoulli rewards are 0 or 1 and have the same means.

    Raises
    ------
    ValueError
        If a value is outside its range.
    """
    s, a = checks.integer("states", states, 1), checks.integer("actions", actions, 1)
    h, d = checks.integer("horizon", horizon, 1), checks.integer("dimension", dimension, 1)
    draw = np.random.default_rng(checks.integer("seed", seed, 0))
    phi = draw.dirichlet(np.full(d, 0.3), (s, a))
    mu = draw.dirichlet(np.full(s, 0.3), (h, d))
    theta = draw.uniform(size=(h, d))
    return LinearMDP(
        Features(phi, l1=1.0, nonneg=True), mu, theta, reward_law=rewards, name=f"linear-mdp-{seed}"
    )


random_linear = _as_table(
    random_linear_mdp,
    "random_linear",
    "Return the MDP of :func:`random_linear_mdp` as a table; its ``features`` are phi (S, A, d).",
)


CLIMB, WORK, SLIP = 0, 1, 2  # effects of the wide MDP; all further effects restart
_MAIN, _ASIDE = 0.9, 0.1  # probabilities of the two levels to which a coordinate leads


def wide_linear_mdp(
    *,
    states: int = 2000,
    actions: int = 4,
    horizon: int = 8,
    levels: int = 6,
    blend: float = 0.5,
    support: int = 60,
    seed: int = 0,
    rewards: RewardLaw = "deterministic",
) -> LinearMDP:
    """Return a linear MDP with many states and small feature dimension d = levels x actions.

    State s has the hidden level s mod L. It can have thousands of states, of which a user visits about H. In
    every state, a separate random permutation assigns an *effect* to each action. The effects are: climb one
    level; work (stay, with reward ((l + 1) / L)^2 at level l); slip one level; or restart at level 0.
    Therefore a tabular learner learns nothing about other states from one state. The features phi(s, a) =
    (1 - u) e_{(l, e)} + u e_{(l, e')} contain everything: mostly effect e, and a share u <= ``blend`` of
    another effect e'. Coordinate (l, e) leads to the level of its effect with probability 0.9. With
    probability 0.1 it falls one level (if the effect is work) or stays (all other effects). Within a level, a
    coordinate leads to ``support`` states with Dirichlet(1) weights, so rows have at most 4 x support
    successors. Features are in the simplex, ||phi||_2 <= ||phi||_1 = 1.

    Transitions and rewards are the same at every step; the first state is uniform on level 0. The myopic
    policy works at every step; the optimal policy climbs first.

    Draws, in this order:

    * effects (a permutation of the actions for each state);
    * e' (uniform among the other effects);
    * u uniform on [0, ``blend``];
    * for each level a permutation of its states, used cyclically;
    * for each coordinate and each of its two levels, weights of the permutation's next ``support`` states.

    All states are reached unless support is small.

    Parameters
    ----------
    states : int
        S, at least 2.
    actions : int
        A, at least 3.
    horizon : int
        H, at least 1.
    levels : int
        L, 2..S.
    blend : float
        Largest share of the other effect, in [0, 1/2]; 0: all states of a level are equal up to the names of
        their actions.
    support : int
        States that a coordinate leads to within a level, at least 1 (all of them, if the level has fewer).
    seed : int
        Seed of the draws, at least 0.
    rewards : "deterministic" or "bernoulli"
        Distribution of the rewards; Bernoulli rewards are 0 or 1 and have the same means.

    Raises
    ------
    ValueError
        If a value is outside its range.
    """
    s, a = checks.integer("states", states, 2), checks.integer("actions", actions, 3)
    n, most = checks.integer("levels", levels, 2, s), checks.integer("support", support, 1)
    widest = checks.real("blend", blend, 0.0, 0.5)
    draw = np.random.default_rng(checks.integer("seed", seed, 0))
    level = np.arange(s) % n
    effect = draw.permuted(np.tile(np.arange(a), (s, 1)), axis=1)
    other = (effect + draw.integers(1, a, size=(s, a))) % a
    share = draw.uniform(0.0, widest, size=(s, a))
    phi, first = np.zeros((s, a, n * a)), level[:, None] * a
    np.put_along_axis(phi, (first + effect)[..., None], 1.0 - share[..., None], axis=2)
    np.put_along_axis(phi, (first + other)[..., None], share[..., None], axis=2)
    mu, theta = _coordinates(draw, level, n, a, most)
    start = (level == 0) / (level == 0).sum()
    return LinearMDP(
        Features(phi, l1=1.0, nonneg=True), mu[None], theta[None], start,
        reward_law=rewards, horizon=checks.integer("horizon", horizon, 1), name=f"wide-linear-{seed}",
    )  # fmt: skip


def _coordinates(
    draw: np.random.Generator, level: NDArray[np.int64], n: int, a: int, most: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return next-state distributions (n a, S) and mean rewards (n a,) of pairs of a level and an effect."""
    s = level.size
    decks = [draw.permutation(np.flatnonzero(level == i)) for i in range(n)]
    dealt = [0] * n
    mu, theta = np.zeros((n * a, s)), np.zeros(n * a)
    for i in range(n * a):
        here, e = divmod(i, a)
        to = {CLIMB: min(here + 1, n - 1), WORK: here, SLIP: max(here - 1, 0)}.get(e, 0)
        aside = max(here - 1, 0) if e == WORK else here
        for target, mass in ((to, _MAIN), (aside, _ASIDE)):
            deck = decks[target]
            size = min(most, len(deck))
            cards = (dealt[target] + np.arange(size)) % len(deck)
            dealt[target] += size
            mu[i, deck[cards]] += mass * draw.dirichlet(np.ones(size))
        if e == WORK:
            theta[i] = ((here + 1) / n) ** 2
    return mu, theta


wide_linear = _as_table(
    wide_linear_mdp,
    "wide_linear",
    "Return :func:`wide_linear_mdp` as a table: one slot, about 1.9 million transition entries by default.",
)
