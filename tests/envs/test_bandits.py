"""Bandits in a row and gambles: what they are, and what is refused."""

import numpy as np
import pytest

from discreet.envs import bandit, gamble, random_mdp
from discreet.envs.mdp.planning import optimal_values


def test_bandit_shows_contexts_uniformly_whatever_is_done() -> None:
    mdp = bandit(contexts=3, actions=4, horizon=5, spread=0.2, seed=1)
    assert np.allclose(mdp.transitions, 1 / 3)
    assert np.allclose(mdp.initial, 1 / 3)
    assert mdp.rewards.min() >= 0.4
    assert mdp.rewards.max() <= 0.6
    assert optimal_values(mdp)[0][0] @ mdp.initial == pytest.approx(5 * mdp.rewards[0].max(axis=1).mean())


@pytest.mark.parametrize("seed", range(5))
def test_the_best_first_action_of_a_gamble_mostly_loses(seed: int) -> None:
    mdp = gamble(seed=seed, chance=0.05, safe=0.3, horizon=10)
    wins = mdp.transitions[0, 0, :, 1]
    even = 0.3 * 10 / 9
    assert sorted(wins) == pytest.approx([0.0, (even + 0.05) / 2, even + 0.05])
    values, q, _ = optimal_values(mdp)
    assert q[0, 0].argmax() == wins.argmax()
    assert values[0, 0] == pytest.approx(9 * (even + 0.05))
    assert values[0, 0] > 10 * 0.3


def test_one_context_is_a_plain_bandit_and_seeds_are_means() -> None:
    mdp = bandit(actions=7, horizon=3, seed=4)
    assert (mdp.states, mdp.actions, mdp.horizon, mdp.reward_law) == (1, 7, 3, "bernoulli")
    assert np.unique(mdp.rewards[0]).size == 7
    assert (bandit(actions=7, horizon=3, seed=4).rewards == mdp.rewards).all()
    assert (bandit(actions=7, horizon=3, seed=5).rewards != mdp.rewards).all()
    narrow = bandit(actions=7, horizon=3, seed=4, spread=0.1)
    np.testing.assert_allclose(narrow.rewards - 0.5, 0.1 * (mdp.rewards - 0.5), atol=1e-15)


@pytest.mark.parametrize("options", [{}, {"actions": 6, "horizon": 20, "chance": 0.1}, {"horizon": 2}])
def test_every_other_gamble_is_worse_than_safety_and_pays_less_at_once(options: dict[str, float]) -> None:
    """Only the best gamble beats the safe action, at the first step by ``chance`` (H - 1), later by less."""
    mdp = gamble(seed=3, **options)
    q, last = optimal_values(mdp)[1], mdp.horizon - 1
    safe, best = int(mdp.rewards[0, 0].argmax()), int(mdp.transitions[0, 0, :, 1].argmax())
    others = [a for a in range(mdp.actions) if a not in (safe, best)]
    alone = 0.3 * mdp.horizon  # staying for ever
    assert q[0, 0, best] - alone == pytest.approx(options.get("chance", 0.05) * last)
    assert (q[0, 0, others] < alone).all()
    assert q[0, 0, others] == pytest.approx(q[0, 0, best] / 2)
    assert mdp.rewards[0, 0, safe] == 0.3
    assert mdp.rewards[0, 0, [best, *others]].max() == 0.0
    assert q[last, 0].argmax() == safe  # nothing is left to be won
    assert mdp.rewards[0, 1].min() == 1.0
    assert mdp.rewards[0, 2].max() == 0.0
    assert (mdp.transitions[0, [1, 2], :, [1, 2]] == 1.0).all()


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="spread"):
        bandit(spread=0.0)
    with pytest.raises(ValueError, match="chance"):
        gamble(chance=0.9)
    for options in ({"safe": 0.0}, {"safe": 1.0}, {"chance": 0.0}, {"actions": 1}, {"horizon": 1}):
        with pytest.raises(ValueError, match=f"{next(iter(options))} = "):
            gamble(**options)
    for options in ({"contexts": 0}, {"actions": 0}, {"horizon": 0}, {"spread": 1.5}, {"seed": -1}):
        with pytest.raises(ValueError, match=f"{next(iter(options))} = "):
            bandit(**options)
    with pytest.raises(ValueError, match="varies"):
        random_mdp(varies="rows")
    with pytest.raises(ValueError, match="terminal"):
        random_mdp(states=4, terminal=4)


def test_random_worlds_vary_what_is_asked_and_end_where_it_is_said() -> None:
    rows = random_mdp(stationary=False, varies="rows", seed=3)
    assert np.ptp(rows.rewards, axis=0).max() == 0
    assert np.ptp(rows.transitions, axis=0).max() > 0
    means = random_mdp(stationary=False, varies="rewards", seed=3)
    assert np.ptp(means.transitions, axis=0).max() == 0
    assert np.ptp(means.rewards, axis=0).max() > 0
    ends = random_mdp(states=5, terminal=2, rewarding=10, seed=3)
    assert ends.terminal == (3, 4)
    assert ends.rewards[0, 3:].max() == 0
    assert (ends.transitions[0, [3, 4], :, [3, 4]] == 1).all()
