"""The site's app: what it refuses, and masks that use the whole seed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats

import discreet as dr
from discreet.core.layout import Layout
from discreet.data.schema import Schema
from discreet.pipeline.federated import BOUND, MODULUS, FederationPlan
from discreet.pipeline.flower_app import mask, refusal

SCHEMA = Schema(
    "ward", "patient", Layout(5, 3, 4), stationary=True, terminal=(3, 4), outcomes={4: 1.0}
)  # fmt: skip


BUDGET = dr.Central(epsilon=1.0, delta=1e-6)


ALARM = 1e-6


def plan_of(number: int = 3, **how: Any) -> FederationPlan:
    how = {"schema": SCHEMA, "learner": dr.DecisionPoints(), "privatizer": BUDGET, **how}
    return FederationPlan(sites=number, **how)


@pytest.mark.parametrize(
    ("n", "k", "c"), [(4, 3, 0), (4, 3, 1), (5, 4, 0), (5, 4, 1), (5, 3, 0), (5, 5, 2), (6, 5, 2)]
)
def test_honest_sites_in_whatever_a_liar_opens(n: int, k: int, c: int) -> None:
    """Every way to tell n - c honest sites who dropped out, and what the shares that they give then open."""
    honest = range(n - c)
    least = n
    told = [
        [set(gone) for gone in itertools.combinations(set(range(n)) - {w}, n - k)] + [set[int]()]
        for w in honest
    ]
    for gone in itertools.product(*told):
        dead = {u for u in honest if sum(u in one for one in gone) >= k - c}
        opened = {u for u in honest if sum(u not in one for one in gone) >= k - c}
        assert not dead & opened
        if dead | opened == set(honest):
            least = min(least, len(opened))
    assert least == plan_of(n, needed=k, colluding=c).honest


def test_refusals_of_a_site() -> None:
    """All that needs no Flower to be seen: order, sizes, names."""
    plan = plan_of(needed=3)
    setup = {
        "sample_num": 3, "share_num": 3, "threshold": 3, "clipping_range": float(BOUND),
        "target_range": 2 * BOUND, "mod_range": MODULUS, "max_weight": 1.0,
    }  # fmt: skip
    keys = {str(node): [b"", b""] for node in (7, 8, 9)}
    shown = {"stage": "share_keys", "nodes": [7, 8, 9]}
    sent = {**shown, "stage": "collect_masked_vectors"}
    sums = {"active_nids": [9, 7, 8], "dead_nids": []}
    assert refusal(plan, "setup", setup, 7, {}) is None
    assert refusal(plan, "share_keys", keys, 7, {"stage": "setup"}) is None
    assert refusal(plan, "collect_masked_vectors", {"srcs": [9, 8]}, 7, shown) is None
    assert refusal(plan, "unmask", sums, 7, sent) is None
    for name in setup:
        assert f"{name} = " in str(refusal(plan, "setup", {**setup, name: 2}, 7, {}))
    for stage, told, before, words in (
        ("setup", setup, sent, "does so once"),
        ("collect_masked_vectors", {"srcs": [9, 8]}, sent, "does so once"),
        ("collect_masked_vectors", {"srcs": [9, 8]}, {"stage": "setup"}, "does not follow"),
        ("collect_masked_vectors", {"srcs": [9, 9]}, shown, "all 2 others"),
        ("unmask", sums, {**sent, "stage": "unmask"}, "does not follow"),
        ("unmask", {**sums, "dead_nids": [8]}, sent, "named once"),
        ("unmask", {"active_nids": [9, 7], "dead_nids": [8]}, sent, "must be 3 at least"),
        ("share_keys", {**keys, "10": [b"", b""]}, {"stage": "setup"}, "keys of 4 sites"),
        ("share_keys", {"7": [], "8": [], "08": []}, {"stage": "setup"}, "keys of 2 sites"),
        ("share_keys", {"8": [], "9": [], "10": []}, {"stage": "setup"}, "this one among them"),
        ("look", {}, {}, "none of secure aggregation"),
    ):
        assert words in str(refusal(plan, stage, told, 7, before))


def test_masks_use_the_whole_seed() -> None:
    """Two seeds whose 32-bit words add up (exclusive or) to the same: one mask in Flower, two here."""
    one = bytes(range(32))
    two = one[4:8] + one[:4] + one[8:]
    shapes = [(1,), (40, 50)]
    first, second = mask(one, MODULUS, shapes), mask(two, MODULUS, shapes)
    assert [part.shape for part in first] == shapes
    assert not (first[1] == second[1]).any()
    np.testing.assert_array_equal(mask(one, MODULUS, shapes)[1], first[1])
    words = np.concatenate([first[1].ravel(), second[1].ravel()])
    assert words.min() >= 0
    assert words.max() < MODULUS
    assert stats.chisquare(np.bincount(words >> 36, minlength=16)).pvalue > ALARM
