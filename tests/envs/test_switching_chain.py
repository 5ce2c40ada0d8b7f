"""The switching chain varies over steps and swaps its actions."""

import numpy as np
import pytest

from discreet.envs import switching_chain


def test_switching_chain_varies_and_swaps() -> None:
    mdp = switching_chain(seed=3)
    assert not mdp.stationary
    p = mdp.transitions
    assert (p[0, :-1, 0] == p[1, :-1, 0]).all()  # going left is certain and the same
    assert (p[2, :-1, 1] == p[0, :-1, 0]).all()  # swapped at every third step
    forward = np.array([p[h, 2, 0 if h % 3 == 2 else 1, 3] for h in range(20)])
    assert np.unique(forward).size == 20
    assert ((forward >= 0.1) & (forward <= 0.7)).all()
    assert switching_chain(seed=3).transitions.tolist() == p.tolist()
    with pytest.raises(ValueError, match="states = 1"):
        switching_chain(states=1)
