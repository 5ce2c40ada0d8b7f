"""Bandits in a row and gambles: what they are, and what is refused."""

import numpy as np
import pytest

from discreet.envs import bandit, gamble, random_mdp
from discreet.mdp.planning import optimal_values


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


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="spread"):
        bandit(spread=0.0)
    with pytest.raises(ValueError, match="chance"):
        gamble(chance=0.9)
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
