"""The combination lock opens by one sequence of actions only."""

import numpy as np
import pytest

from discreet.envs import combination_lock
from discreet.envs.mdp.planning import optimal_values, policy_value, uniform_policy


@pytest.mark.parametrize("options", [{}, {"states": 12, "actions": 3, "depth": 7, "seed": 4}], ids=str)
def test_combination_lock_opens_by_one_sequence_only(options) -> None:
    mdp = combination_lock(**options)
    p, depth = mdp.transitions[0], options.get("depth", 8)
    assert mdp.stationary
    assert np.abs(p.sum(-1) - 1).max() < 1e-12
    for i in range(depth - 1):
        up = p[i, :, i + 1]
        right = int(np.argmax(up))
        assert 0.5 <= up[right] <= 0.9
        assert up[right] + p[i, right, i] == pytest.approx(1)
        assert (np.delete(up, right) == 0).all()  # every other action falls behind, or into a trap
        assert (np.delete(p[i], right, axis=0)[:, i + 1 : depth] == 0).all()
    assert (p[depth:, :, 1:depth] == 0).all()  # from a trap only the start leads back
    r = mdp.rewards[0]
    assert r.max() == r[depth - 1].max()
    assert 0.7 <= r.max() <= 1
    assert np.delete(r, depth - 1, axis=0).max() <= 0.02
    best, uniform = optimal_values(mdp)[0][0, 0], policy_value(mdp, uniform_policy(mdp))
    assert uniform < 0.1 * best
    again, other = combination_lock(**options), combination_lock(**{**options, "seed": 77})
    assert np.array_equal(p, again.transitions[0])
    assert not np.array_equal(p, other.transitions[0])


def test_combination_lock_refuses() -> None:
    for options, message in (
        ({"states": 1}, "states = 1"),
        ({"actions": 1}, "actions = 1"),
        ({"depth": 9}, "depth = 9"),
        ({"depth": 1}, "depth = 1"),
        ({"rewards": "normal"}, "rewards = 'normal'"),
    ):
        with pytest.raises(ValueError, match=message):
            combination_lock(**options)
