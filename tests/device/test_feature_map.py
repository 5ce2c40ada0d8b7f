"""The public map of contexts: bounds for every number, bases, errors."""

import math
from fractions import Fraction

import numpy as np
import pytest

from discreet.device.feature_map import FeatureMap
from discreet.device.linear_forms import GRID

RANGES = {"age": (18.0, 90.0), "dose": (-1.0, 1.0)}
BASES = ["linear", ("poly", 2), ("fourier", 7, 1.5, 3), ("tiles", 4, 2)]
WILD = [0.0, -0.0, 1.0, 18.0, 90.0, 1e308, -1e308, 5e-324, math.inf, -math.inf, math.nan, 2.0**1000]


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("radius", [None, 1e-100, 0.1, 3.0])
def test_norm_is_at_most_one_for_every_number(basis, intercept, radius):
    features = FeatureMap(RANGES, 2, basis=basis, intercept=intercept, radius=radius)
    x = np.array(np.meshgrid(WILD, WILD)).reshape(2, -1).T
    phi = features(x)
    assert phi.shape == (len(x), features.dimension)
    for row in np.trunc(phi / GRID).astype(int).tolist():  # what exact noise protects
        assert sum(one * one for one in row) <= round(1 / GRID) ** 2
    for row in phi:
        assert sum(Fraction(one) ** 2 for one in row.tolist()) <= 1 + Fraction(1, 10**15)


def test_values_outside_a_range_count_as_its_ends_and_missing_values_as_its_middle():
    features = FeatureMap({"age": (20.0, 40.0)}, 2, radius=2.0)
    found = features([[10.0], [20.0], [30.0], [40.0], [1e9], [math.nan], [math.inf]])[:, 0]
    assert found.tolist() == [-0.5, -0.5, 0.0, 0.5, 0.5, 0.0, 0.0]


def test_integers_beyond_every_float_count_as_missing():
    """Like infinite values: the refusal of a value would depend on the record."""
    features = FeatureMap(RANGES, 2)
    assert np.array_equal(features([10**400, -(10**400)]), features([math.nan, math.nan]))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("basis", BASES)
def test_no_value_warns(basis):
    features = FeatureMap(RANGES, 2, basis=basis, radius=1e-100)
    phi = features(np.array(np.meshgrid(WILD, WILD)).reshape(2, -1).T)
    assert np.isfinite(phi).all()


def test_sizes_have_a_limit_that_a_server_cannot_lift():
    with pytest.raises(ValueError, match="at most 10000"):
        FeatureMap(RANGES, 10**9)
    with pytest.raises(ValueError, match="at most 10000"):
        FeatureMap(RANGES, 2, basis=("fourier", 10**6, 1.0, 0), force=True)


def test_ranges_as_wide_as_floats_are_allowed():
    features = FeatureMap({"x": (-1.7e308, 1.7e308)}, 2, radius=1.0, intercept=False)
    assert features([[1.7e308], [0.0]]).ravel() == pytest.approx([1.0, 0.0])


def test_polynomials_hold_all_products():
    features = FeatureMap({"a": (-1, 1), "b": (-1, 1)}, 2, basis=("poly", 2), radius=4.0)
    assert features([0.5, -1.0]) * 4 == pytest.approx([0.5, -1.0, 0.25, -0.5, 1.0, 1.0])


def test_tiles_mark_one_tile_of_each_column():
    features = FeatureMap(RANGES, 2, basis=("tiles", 4, 2), radius=1.0, intercept=False)
    marks = features(np.random.default_rng(0).uniform(-2, 100, (50, 2))).reshape(50, 2, 5)
    assert ((marks > 0).sum(axis=2) == 1).all()
    assert np.unique(marks[marks > 0]) == pytest.approx([math.sqrt(0.5)])


def test_fourier_features_approximate_a_gaussian_kernel():
    """The inner products of 4000 features are within .05 of exp(-|z - z'|^2 / 2)."""
    features = FeatureMap({"a": (-1, 1)}, 2, basis=("fourier", 4000, 1.0, 1), radius=1e3, force=True)
    z = np.linspace(-1, 1, 9)
    phi = features(z[:, None])[:, 1:-1] * 1e3
    assert phi @ phi.T == pytest.approx(np.exp(-((z[:, None] - z) ** 2) / 2), abs=0.05)


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("form", ["per_action", "shared"])
def test_a_map_in_plain_values_is_the_same_map(basis, form):
    features = FeatureMap(RANGES, 3, form=form, basis=basis)
    again = FeatureMap.from_dict(features.to_dict())
    x = np.random.default_rng(1).uniform(-2, 100, (20, *features.shape))
    assert np.array_equal(features(x), again(x))
    assert again.to_dict() == features.to_dict()


def test_shared_features_are_of_each_action():
    features = FeatureMap({"a": (0, 1)}, 3, form="shared")
    assert features.shape == (3, 1)
    assert features(np.zeros((7, 3, 1))).shape == (7, 3, 2)
    assert (features.blocks, FeatureMap({"a": (0, 1)}, 3).blocks) == (1, 3)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"ranges": {}}, "ranges = {}: must map at least one column"),
        ({"ranges": {"a": "data"}}, r"ranges\['a'\] = 'data': must be \(low, high\)"),
        ({"ranges": {"a": (1, 1)}}, r"ranges\['a'\] = \(1, 1\): must be finite numbers, low < high"),
        ({"ranges": {"a": (0, math.inf)}}, "must be finite numbers"),
        ({"ranges": {"a": (0, math.nan)}}, "must be finite numbers"),
        ({"ranges": {"a": (0, True)}}, "must be a number"),
        ({"ranges": {1: (0, 1)}}, "must be a name"),
        ({"actions": 1}, "actions = 1: must be an integer, at least 2"),
        ({"form": "block"}, "form = 'block': must be 'per_action' or 'shared'"),
        ({"basis": "cubic"}, "basis = 'cubic': must be 'linear'"),
        ({"basis": ("poly", 3)}, "must be 'linear'"),
        ({"basis": ("fourier", 0, 1.0, 0)}, "basis m = 0"),
        ({"basis": ("fourier", 3, 0.0, 0)}, r"basis scale = 0\.0"),
        ({"basis": ("fourier", 3, 1.0, -1)}, "basis seed = -1"),
        ({"basis": ("tiles", 2, None)}, "basis seed = None"),
        ({"radius": 0.0}, r"radius = 0\.0: must be finite, at least 1e-100"),
        ({"radius": 1e-310}, "radius = 1e-310: must be finite, at least 1e-100"),
        ({"ranges": {"a": (0.0, 5e-324)}}, "must be finite numbers, low < high"),
        ({"radius": "data"}, "radius = 'data': must be a number"),
        ({"intercept": 1}, "intercept = 1: must be True or False"),
        ({"basis": ("fourier", 300, 1.0, 0)}, "gives 302 features, at most 200"),
    ],
)
def test_what_is_not_a_map_is_refused(more, message):
    with pytest.raises(ValueError, match=message):
        FeatureMap(**{"ranges": {"a": (0, 1)}, "actions": 2, **more})


def test_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"x has shape \(3,\): must end with \(2,\)"):
        FeatureMap(RANGES, 2)(np.zeros(3))
    with pytest.raises(ValueError, match="feature map: is not written"):
        FeatureMap.from_dict({"ranges": 1})


@pytest.mark.parametrize("basis", ["linear", ("poly", 2), ("fourier", 5, 1.0, 3), ("tiles", 4, 2)])
def test_a_clipped_context_has_the_same_features(basis):
    """Bit for bit, with numbers outside the ranges, missing numbers and extreme ranges."""
    features = FeatureMap({"a": (-1, 1), "b": (0.1, 0.3), "c": (-1e308, 1e308)}, 2, basis=basis)
    x = np.random.default_rng(4).uniform(-1.5, 1.5, size=(500, 3)) * [1.0, 1.0, 1e308]
    x[:20, 0], x[5:9, 1], x[7:30, 2] = np.nan, np.inf, -np.inf
    x[30:33, 1] = 0.1, 0.3, np.nextafter(0.1, 0)
    clipped = features.clipped(x)
    assert np.array_equal(features(clipped), features(x))
    low, high = np.array(list(features.ranges.values())).T
    assert (np.isnan(clipped) | ((clipped >= low) & (clipped <= high))).all()
    assert np.array_equal(np.isnan(clipped), ~np.isfinite(x))
    with pytest.raises(ValueError, match=r"x has shape \(2,\): must end with \(3,\)"):
        features.clipped([1.0, 2.0])
