"""Amplification by shuffling: brute force over all inputs and histograms of tiny randomizers."""

import itertools
import math

import numpy as np
import pytest

from discreet.accounting.shuffle_amplification import amplified_delta, amplified_epsilon, local_epsilon


def histogram_law(rows):
    """Law of the histogram of independent reports, one row of probabilities each."""
    law = {(0,) * len(rows[0]): 1.0}
    for row in rows:
        new = {}
        for counts, mass in law.items():
            for j, p in enumerate(row):
                key = (*counts[:j], counts[j] + 1, *counts[j + 1 :])
                new[key] = new.get(key, 0.0) + mass * p
        law = new
    return law


def divergence(one, other, epsilon):
    return sum(max(0.0, mass - math.exp(epsilon) * other.get(key, 0.0)) for key, mass in one.items())


def randomizers(epsilon0):
    """Rows: inputs. k-ary randomized response, a lazy one, and a lopsided one."""
    e = math.exp(epsilon0)
    for k in (2, 3, 4):
        yield (np.ones((k, k)) + (e - 1) * np.eye(k)) / (e + k - 1)
    two = np.array([[e, 1.0], [1.0, e]]) / (e + 1)
    yield np.hstack([0.6 * two, np.full((2, 1), 0.4)])  # often says nothing
    yield np.array([[0.5, 0.3, 0.2], [0.5 / e, 0.3, 0.7 - 0.5 / e], [0.3, 0.3, 0.4]])


@pytest.mark.parametrize("epsilon0", [0.5, 1.2])
@pytest.mark.parametrize("users", [1, 2, 4])
def test_never_below_brute_force(epsilon0, users):
    for table in randomizers(epsilon0):
        ratios = table[:, None, :] / table[None, :, :]
        own = math.log(ratios.max())
        for epsilon in (0.05, 0.3, 0.8):
            worst = 0.0
            for x0, x1 in itertools.permutations(range(len(table)), 2):
                for rest in itertools.combinations_with_replacement(range(len(table)), users - 1):
                    laws = [histogram_law([table[x], *(table[r] for r in rest)]) for x in (x0, x1)]
                    worst = max(worst, divergence(*laws, epsilon))
            bound = amplified_delta(own, users, epsilon)
            assert bound >= worst * (1 - 1e-9)


@pytest.mark.parametrize("users", [3, 6])
def test_nearly_attained_by_binary_randomized_response(users):
    """Two outputs: clones are all but 1 - 2 / (e + 1) of the others there; counted so, within 30 %."""
    e = math.exp(1.0)
    table = np.array([[e, 1.0], [1.0, e]]) / (e + 1)
    worst = max(
        divergence(*(histogram_law([table[x], *(table[r] for r in rest)]) for x in (0, 1)), 0.3)
        for rest in itertools.combinations_with_replacement((0, 1), users - 1)
    )
    assert worst <= amplified_delta(1.0, users, 0.3, stronger=True) <= 1.3 * worst


def test_amplification_grows_with_the_batch():
    values = [amplified_epsilon(3.0, users, 1e-6) for users in (1, 100, 10_000, 1_000_000)]
    assert values == sorted(values, reverse=True)
    assert values[0] == pytest.approx(3.0, rel=1e-3)
    assert values[-1] < 0.1
    for users, published in ((1_000, 3.27), (10_000, 5.47), (100_000, 7.76)):  # privacy-mechanisms, 5
        assert local_epsilon(1.0, 1e-6, users, stronger=True) == pytest.approx(published, abs=0.006)
        proven = local_epsilon(1.0, 1e-6, users)
        assert published - 0.75 < proven < published
        assert amplified_epsilon(proven, users, 1e-6) <= 1.0 + 1e-3
    assert amplified_delta(1.0, 50, 1.0) == 0.0
    for wrong in ({"epsilon0": 0.0}, {"users": 0}, {"epsilon": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            amplified_delta(**{"epsilon0": 1.0, "users": 5, "epsilon": 0.5, **wrong})


@pytest.mark.parametrize("epsilon", [99.5, 699.0, 701.0, 5000.0])
def test_reports_that_hide_nothing_are_not_amplified(epsilon):
    """e^epsilon0 is no float there, or clones are none: the answer is what holds without the shuffler."""
    assert epsilon <= local_epsilon(epsilon, 1e-6, 10**6) <= max(epsilon, 100.0)
    assert amplified_delta(epsilon + 2.0, 10**6, epsilon + 2.0) == 0.0
    assert amplified_epsilon(5000.0, 10, 1e-6) == pytest.approx(5000.0)


def test_the_stated_epsilon_is_not_exceeded_by_rounding() -> None:
    for users in (60, 500, 3_000, 20_000):
        assert amplified_epsilon(local_epsilon(1.0, 1e-6, users), users, 1e-6) <= 1.0
