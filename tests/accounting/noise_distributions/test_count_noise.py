"""Bounds on the noise of counts: running maxima that grow at the steps, and need a known end."""

import numpy as np
import pytest
from every_factorization import every_walk

from discreet.accounting.noise_distributions.count_noise import bound_of, bound_steps
from discreet.accounting.noise_distributions.prefix_variance import noise_of
from discreet.audit.noise_matrix import noise_matrix
from discreet.core.correlated_noise.binary_tree import Tree
from discreet.core.correlated_noise.factorization import Walk


@every_walk
def test_bounds_are_running_maxima_and_grow_at_the_steps(walk: Walk) -> None:
    assert walk.leaves is not None
    terms = np.array([noise_of(walk).terms(n) for n in range(walk.leaves)])
    most = np.maximum.accumulate(terms)
    assert [noise_of(walk).most(n) for n in range(walk.leaves)] == pytest.approx(most.tolist())
    for parts in (1, 16):
        bounds = np.array([bound_of(walk, n, parts) for n in range(walk.leaves)])
        assert (bounds >= parts * terms - 1e-6).all()
        assert (bounds < parts * most + 1).all()
        assert bound_steps(walk, parts) == [*np.flatnonzero(np.diff(bounds)), walk.leaves - 1]


def test_steps_need_a_known_end() -> None:
    for call in (lambda: bound_steps(Tree(None)), lambda: noise_matrix(Tree(None))):
        with pytest.raises(ValueError, match="leaves = None"):
            call()  # type: ignore[operator]
