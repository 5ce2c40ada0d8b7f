"""Fields of forms of linear sums: what is published is read back."""

import numpy as np
import pytest

from discreet import envs
from discreet.device.linear_forms import GramForm, MixtureForm, PairForm, outer, power_of_two
from discreet.mechanisms.features import Features
from discreet.mechanisms.linear.linear_queries import GramQuery, MixtureQuery

WORLD = envs.linear_mixture(states=5, actions=3, horizon=4, models=3, seed=3)
PHI = Features(np.random.default_rng(1).dirichlet(np.ones(3), (5, 3)), 1.0, nonneg=True)


@pytest.mark.parametrize(
    "query",
    [
        MixtureQuery(layout=WORLD.layout, features=WORLD.features),
        GramQuery(layout=WORLD.layout, features=PHI),
    ],
    ids=["mixture", "gram"],
)
def test_published_fields_make_the_same_form(query):
    form = query.form
    again = type(form).from_plain(form.to_plain())
    assert isinstance(again, MixtureForm | GramForm)
    assert again.shapes == form.shapes
    assert again.blocks == form.blocks
    states, actions, rewards = np.array([0, 1, 2, 3, 4]), np.array([0, 1, 2, 0]), np.full(4, 0.5)
    context = {"values": np.ones((5, 5))}
    mine, own = (one.tables(one.prepared(context), states, actions, rewards, grid=8) for one in (form, again))
    assert all(np.array_equal(mine[name], own[name]) for name in form.names)


def test_upper_triangles_hold_the_diagonal_first():
    assert outer(np.array([[1.0, 2.0, 3.0]])).tolist() == [[1.0, 4.0, 9.0, 2.0, 3.0, 6.0]]
    assert [power_of_two(x) for x in (0.3, 0.5, 1.0, 1.01)] == [0.5, 0.5, 1.0, 2.0]


def test_a_pair_without_order_is_refused():
    with pytest.raises(ValueError, match="ranges in order"):
        PairForm("gram", "response", (1.0,), (1.0,), (1.0,), (0.0,), "centred")
