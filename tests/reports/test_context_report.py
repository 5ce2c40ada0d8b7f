"""Report on a policy of contexts, and its file."""

from __future__ import annotations

import json

import numpy as np
import pytest

from discreet.device.feature_map import FeatureMap
from discreet.learners.offline.linear_advantage import AdvantagePolicy
from discreet.mechanisms.linear.context_sums import ContextRelease
from discreet.reports.context_report import ContextReport, read_context_policy, write_context_policy

FEATURES = FeatureMap({"age": (18.0, 90.0), "pulse": (30.0, 200.0)}, 2)
THETA = np.array([[0.0, 0.5, 0.0], [0.0, -0.5, 0.1]])


def report():
    """Return the report on a policy with known coefficients."""
    policy = AdvantagePolicy(FEATURES, THETA)
    release = ContextRelease(FEATURES, 3, 10, np.zeros((2, 3, 3)), np.zeros((2, 3)), 1.5, 2.5)
    return ContextReport(policy, release, ("wait", "treat"), "patient")


def test_slopes_are_changes_of_the_advantage():
    facts = report().to_dict()
    middle, high = np.array([[54.0, 115.0], [54.0, 200.0]])
    policy = report().policy
    assert facts["slopes"][0][1] == pytest.approx((policy.advantages(high) - policy.advantages(middle))[0])
    assert facts["slopes"][0][0] == pytest.approx(-facts["slopes"][1][0])


def test_page_names_actions_columns_and_noise():
    text = report().to_markdown()
    for words in ("| column | wait | treat |", "| pulse |", "People in the release: 10", "1.5"):
        assert words in text
    assert report().figures(".") == []


def test_policy_is_written_and_read(tmp_path):
    policy = report().policy
    write_context_policy(tmp_path, policy, ("wait", "treat"), "a note")
    again = read_context_policy(tmp_path)
    x = np.random.default_rng(0).uniform(0, 200, (50, 2))
    assert np.array_equal(again(x), policy(x))
    assert json.loads((tmp_path / "policy.json").read_text())["privacy"] == "a note"


DAMAGES = [
    lambda one: {}, lambda one: {**one, "theta": [[1.0]]}, lambda one: {**one, "format": "x"},
    lambda one: {**one, "features": 3},
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_refused(tmp_path, damage):
    write_context_policy(tmp_path, report().policy, ("wait", "treat"), "")
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(damage(json.loads(path.read_text()))))
    with pytest.raises(ValueError, match="policy"):
        read_context_policy(path)


def test_missing_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="policy"):
        read_context_policy(tmp_path / "none.json")
