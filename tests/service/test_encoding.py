"""Encodings of the service: one form of JSON, and policies and releases to the bit."""

import json
import math

import numpy as np
import pytest

import discreet as dr
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.releases import Plan, Schedule
from discreet.core.rng import Seeded
from discreet.service.encoding import canonical, exact, of_exact, of_text, plan_table, policy_of, text_of


def test_json_has_one_form() -> None:
    assert canonical({"b": 1, "a": "ä"}) == b'{"a":"\\u00e4","b":1}'
    with pytest.raises(ValueError, match="JSON"):
        canonical(math.nan)


def test_forms_come_back_from_their_text() -> None:
    form = bytes(range(256))
    assert of_text(text_of(form)) == form
    assert text_of(b"") is None
    for bad in (None, "a", "a===", "ä"):
        with pytest.raises(ValueError):
            of_text(bad)


def test_policies_and_releases_come_back_to_the_bit() -> None:
    rng = np.random.default_rng(3)
    for policy in (rng.integers(2, size=(3, 2)), rng.dirichlet([1.0, 1.0], (3, 2))):
        again = policy_of(json.loads(json.dumps(plan_table(Plan(policy, 4), 1))))
        assert again.dtype == policy.dtype
        np.testing.assert_array_equal(again, policy)
    release = dr.Central(epsilon=1.0).start(CountQuery(Layout(2, 2, 3)), Schedule(5), Seeded(1)).release()
    content = exact(release)
    again = of_exact(content)
    assert exact(again) == content
    for name, estimate in release.estimates.items():
        np.testing.assert_array_equal(again.estimates[name].value, estimate.value)
    for damaged in (content[:-1], content[:40] + b"x" + content[41:], b""):
        with pytest.raises(ValueError):
            of_exact(damaged)
