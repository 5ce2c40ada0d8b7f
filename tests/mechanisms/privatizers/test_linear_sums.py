"""The average noise of schedules."""

import pytest

from discreet.core.correlated_noise.binary_tree import Tree
from discreet.mechanisms.interfaces import Schedule
from discreet.mechanisms.privatizers.linear_sums import linear_choices


@pytest.mark.parametrize(("growth", "own", "tree"), [(2.0, 12.4, 10.7), (1.5, 19.6, 13.1), (1.1, 67, 23.3)])
def test_average_noise_of_schedules(growth, own, tree):
    # section 1.3 at K = 10^4
    schedule = Schedule(10**4, growth=growth)
    errors = {}
    for choice in linear_choices(schedule, "auto", "batch", False, False):
        name = "plain" if isinstance(choice.walk, Tree) else choice.release
        errors.setdefault(name, choice.error**2)
    assert errors["batches"] == pytest.approx(own, rel=0.01)
    assert errors["plain"] == pytest.approx(tree, rel=0.01)
    assert min(errors.values()) == errors["square-root"] < errors["plain"] / 2
    exact = linear_choices(schedule, "auto", "batch", False, True)
    assert exact[0].release == "square-root"
    assert exact[0].error ** 2 == pytest.approx(errors["square-root"], rel=0.01)
    every = linear_choices(Schedule(10**4), "tree", "batch", False, False)[0]
    assert every.nodes == 14
    assert every.error**2 == pytest.approx(90, rel=0.02)
