"""How the noise of sums is mixed, for each stream of releases, against its definition."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from discreet.audit.noise_matrix import noise_matrix as of_program
from discreet.audit.noise_model import noise_matrix
from discreet.core.correlated_noise.binary_tree import Tree


def session(stream: str, **parts: Any) -> SimpleNamespace:
    return SimpleNamespace(mechanism=SimpleNamespace(stream=stream, **parts))


def test_batches_add_up_and_devices_add_noise_for_each_user() -> None:
    np.testing.assert_array_equal(noise_matrix(session("batches"), [3, 5]), [[1, 0], [1, 1]])
    np.testing.assert_array_equal(noise_matrix(session("local"), [1, 3]), [[1, 0, 0], [1, 1, 1]])


@pytest.mark.parametrize("decay", [0.3, 0.9])
def test_decaying_sums_undo_their_decay(decay: float) -> None:
    times = [2, 4, 6, 8]
    found = noise_matrix(session("decaying", decay=decay), times)
    assert found is not None
    gain = 1.0 / found[0, 0]
    # measured are c_i = decay c_{i-1} + batch_i, each with noise: batches, and their sums, are linear in them
    filtered = np.array([[decay ** (i - j) if j <= i else 0.0 for j in range(4)] for i in range(4)])
    undo = np.tril(np.ones((4, 4))) @ np.linalg.inv(filtered)
    np.testing.assert_allclose(found * gain, undo, atol=1e-12)


def test_walks_are_rows_of_their_program_without_unused_draws() -> None:
    walk = Tree(9)
    full, _ = of_program(walk)
    found = noise_matrix(session("walk", walk=walk, leaf="user"), [2, 5])
    assert found is not None
    np.testing.assert_array_equal(found @ found.T, full[[1, 4]] @ full[[1, 4]].T)
    assert (found != 0).any(axis=0).all()


def test_a_session_may_state_its_own_and_unknown_ones_have_none() -> None:
    own = SimpleNamespace(noise_matrix=lambda times: np.eye(len(times)))
    np.testing.assert_array_equal(noise_matrix(own, [1, 2]), np.eye(2))
    assert noise_matrix(session("exact"), [1]) is None
    assert noise_matrix(session("batches"), []) is None
    assert noise_matrix(SimpleNamespace(), [1]) is None
