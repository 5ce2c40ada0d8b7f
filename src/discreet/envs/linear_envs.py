r"""Environments with public features: linear mixtures, hypercubes, and random and wide linear MDPs.

Random numbers are drawn from ``numpy.random.default_rng(seed)`` in the order that each docstring states. For
an environment X, the function ``X_mdp`` returns the linear model with its weights. The function ``X`` returns
the same MDP as a :class:`~discreet.envs.mdp.tabular.TabularMDP` with its features.
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
    """Return a function that has the options of ``world`` and returns the MDP of ``world`` as a table.

    name : name of the returned function. words : first line of its docstring.
    """

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

    Model: Jia et al. (2020) and Ayoub et al. (2020). The features are phi_i(s' | s, a) = P^i(s' | s, a) /
    sqrt(m), where P^i is base model i. The weights w_h are sqrt(m) times a vector in the simplex. Therefore d
    = m and C_w = sqrt(m). The declared bounds are F01 = F+- = 1. The first state is uniform.

    Draws, in this order:

    * (m, S, A) base rows ~ Dirichlet(``concentration``) over the S states;
    * H weight vectors ~ Dirichlet(1/2) over the m models;
    * the set of (h, s, a) with a reward, where each (h, s, a) is included with probability ``rewarding``;
    * mean rewards (H, S, A) uniform on [0, 1], which are set to 0 outside this set.

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
        Distribution of the rewards. Bernoulli rewards are 0 or 1 and have the same means.
    reward_models : int, optional
        Number p of base tables of mean rewards, at least 1. Then p tables (S, A) are drawn as described
        above, instead of H. The mean rewards of step h are a mixture of these tables. The weights of the
        mixtures are drawn last, H vectors ~ Dirichlet(1/2) over the p tables. The public reward features
        (``features.rewards``) are psi(s, a) = (the p base rewards at (s, a)) / sqrt(p), so that ||psi|| <= 1
        and ||theta_h|| <= sqrt(p). None: rewards have no features.

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

    States 0 to H - 1 are a chain. State H is the end of the chain and has no reward. State H + 1 has reward 1
    at every step. States H and H + 1 are absorbing. Actions are the corners a of {-1, 1}^(d-1), in the order
    of ``itertools.product``. From chain state j, action a at step h leads to H + 1 with probability delta +
    <mu_h, a>, and otherwise to j + 1. Here delta = 1 / H, mu_h is in {-gap, gap}^(d-1), and ||mu_h||_1 = D =
    gap (d - 1).

    The features are ``phi(j + 1 | j, a) = (a0 (1 - delta), -b0 a)``, ``phi(H + 1 | j, a) = (a0 delta, b0
    a)``, and ``phi(x | x, a) = (a0, 0)`` in the absorbing states x. The weights are ``w_h = (1 / a0, mu_h /
    b0)``, with a0^2 = 1 / (1 + D) and b0^2 = gap / (1 + D). The bound C_w is 1 + D. The bounds F01 and F+-
    are suprema that are computed by enumeration; F01 <= 1 and F+-^2 = max(1, (1 - 2 delta)^2 + 4 D) / (1 +
    D).

    Parameters
    ----------
    dimension : int
        d, 2..12. There are 2^(d-1) actions.
    horizon : int
        H, at least 2. There are H + 2 states.
    gap : float, optional
        Absolute value of the coordinates of mu_h, above 0, with D <= min(delta, 1 - delta). None: delta / (2
        (d - 1)), half of the largest allowed value.
    seed : int
        Seed of the signs of mu (H, d - 1), at least 0.

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

    * phi(s, a) ~ Dirichlet(0.3) over the d coordinates for every (s, a), so ||phi||_2 <= ||phi||_1 = 1;
    * for every step and coordinate, the distribution mu_h[i] ~ Dirichlet(0.3) over the S states;
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
        Distribution of the rewards. Bernoulli rewards are 0 or 1 and have the same means.

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


CLIMB, WORK, SLIP = 0, 1, 2  # effects of actions in the wide MDP; effects 3 and higher restart at level 0
_MAIN, _ASIDE = 0.9, 0.1  # probabilities of the two levels to which a feature coordinate leads


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
    """Return a linear MDP with many states and a small feature dimension d = levels x actions.

    State s has the level l = s mod L, which tabular learners do not observe. In every state, a separate
    random permutation assigns an *effect* to each action. The effects are: climb one level; work (stay at
    level l with reward ((l + 1) / L)^2); slip down one level; or restart at level 0.

    The features are phi(s, a) = (1 - u) e_{(l, e)} + u e_{(l, e')}. Here e is the effect of the action, e' is
    another effect, and u is the share of e', at most ``blend``. Features are in the simplex: ||phi||_2 <=
    ||phi||_1 = 1. Coordinate (l, e) leads with probability 0.9 to the level that follows from effect e. With
    probability 0.1, the coordinate leads one level down if e is work, and to level l if e is another effect.
    At this level, a coordinate reaches ``support`` states with weights ~ Dirichlet(1).

    Transitions and rewards are the same at every step. The first state is uniform on level 0.

    Draws, in this order:

    * a permutation of the effects for each state;
    * e' for each (s, a), uniform among the other effects;
    * u for each (s, a), uniform on [0, ``blend``];
    * for each level, a permutation of its states, which is used cyclically;
    * weights for the next ``support`` states of a level's permutation, for each coordinate and target level.

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
        Largest share u of the effect e', in [0, 1/2]. With 0, all states of a level are equal up to the
        permutation of their actions.
    support : int
        Number of states that a coordinate reaches at one level, at least 1. If the level has fewer states,
        the coordinate reaches all of them.
    seed : int
        Seed of the draws, at least 0.
    rewards : "deterministic" or "bernoulli"
        Distribution of the rewards. Bernoulli rewards are 0 or 1 and have the same means.

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
    """Draw next-state distributions (n a, S) and mean rewards (n a,) for each pair of a level and an effect.

    level : (S,) level of each state. n : number of levels. a : number of effects. most : largest number of
    states that a pair reaches at one level.
    """
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
