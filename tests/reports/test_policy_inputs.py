"""Files of policies: every format gives the same policy, origins survive, bad files are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import discreet as dr
from discreet.core.layout import Layout
from discreet.data.schema import Schema
from discreet.learners.ope.policy_gains import policy_steps
from discreet.learners.ope.policy_origin import PolicyArray
from discreet.reports.policy_files import PolicyTable, write_policy
from discreet.reports.policy_inputs import read_given_policy, save_policy

SCHEMA = Schema(
    "ward", "patient", Layout(3, 2, 4), stationary=True, terminal=(2,), first_step=1,
    state_labels=("1", "0", "end"), action_labels=("wait", "treat"),
)  # fmt: skip
ORIGIN = {"release": "a" * 64, "part": "train", "share": 0.5}
POLICY = np.array([[0, -1, -1], [1, 1, -1], [-1, 0, -1], [-1, -1, -1]])
MIXED = np.where((POLICY >= 0)[..., None], np.array([0.25, 0.75]), -1.0)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("policy", [POLICY, MIXED])
def test_a_saved_policy_and_its_origin_are_read_back(tmp_path: Path, suffix: str, policy: Any) -> None:
    """States are indices, although the labels of two of them are the numbers of other states."""
    path = tmp_path / f"mine{suffix}"
    dr.learners.save_policy(path, PolicyArray.of(policy, ORIGIN))
    found = read_given_policy(path, SCHEMA)
    np.testing.assert_array_equal(found.policy, policy)
    assert found.policy.made_from == ORIGIN
    assert (found.name, found.release) == (str(path), None)
    save_policy(path, policy)
    assert read_given_policy(path, SCHEMA).policy.made_from is None
    save_policy(path, policy, {**ORIGIN, "part": "whole"})
    assert read_given_policy(path, SCHEMA).policy.made_from == {**ORIGIN, "part": "whole"}


def test_all_formats_give_the_same_policy(tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", POLICY)
    table = PolicyTable(
        policy=np.maximum(POLICY, 0), supported=POLICY >= 0, values=np.zeros((4, 3)), first_step=1,
        state_labels=SCHEMA.state_labels, action_labels=SCHEMA.action_labels,
    )  # fmt: skip
    write_policy(tmp_path, table, "made up")
    rows = "step,state,action\n1,1,wait\n2,1,treat\n2,0,treat\n3,0,wait\n"
    (tmp_path / "labels.csv").write_text(rows)
    for name in ("mine.npy", "policy.csv", "policy.py", "labels.csv", "."):
        found = read_given_policy(tmp_path / name, SCHEMA, run_code=True)
        np.testing.assert_array_equal(found.policy, POLICY, err_msg=name)
        assert found.policy.made_from is None
    rule = tmp_path / "rule.csv"
    rule.write_text("state,action,probability\n1,wait,0.25\n1,treat,0.75\n")
    np.testing.assert_array_equal(read_given_policy(rule, SCHEMA).policy[2, 0], [0.25, 0.75])
    assert (np.asarray(read_given_policy(rule, SCHEMA).policy)[:, 1:] == -1.0).all()
    plain = replace(SCHEMA, state_labels=None, action_labels=None)
    rule.write_text("state,action\n0,1\n")
    np.testing.assert_array_equal(read_given_policy(rule, plain).policy, [[1, -1, -1]] * 4)
    rule.write_text("step,state,action\n")
    assert (np.asarray(read_given_policy(rule, plain).policy) == -1).all()


def test_what_is_read_is_a_policy_of_the_evaluation(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    save_policy(path, MIXED)
    steps = policy_steps("x", read_given_policy(path, SCHEMA).policy, SCHEMA.spec())
    layout = SCHEMA.layout
    np.testing.assert_array_equal(steps.before, POLICY < 0)
    assert steps.weights[1, layout.row_index[0, 1]] == 0.75
    assert steps.weights[:, layout.row_state == 2].sum() == 0.0


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("none.csv", None, "no such file"),
        ("mine.txt", "", "must end in .csv, .npy, .parquet, .py"),
        ("mine.csv", "# discreet.made_from {\nstep,state,action\n", "line 1: must have the origin"),
        ("mine.csv", "# discreet.made_from {}\nstep,state,action\n", "made_from = {}"),
        ("mine.csv", "# discreet.made_from null\nstep,state,action\n0,0,9\n", "line 3: action = '9'"),
        ("mine.csv", "# discreet.made_from null\nstep,state,action\n4,0,1\n", r"step = '4'.*in \[0, 3\]"),
        ("mine.csv", "step,state,action\n0,1,wait\n", r"line 2: step = '0': must be an index in \[1, 4\]"),
        ("mine.csv", "step,state,action,probability\n1,1,wait,0.5\n", "add up to 0.5"),
        ("mine.csv", "step,state,action\n1,1\n", "line 2: must have 3 cells"),
        ("mine.csv", "state,what\n", "line 1: columns"),
        ("mine.npy", "text", "mine.npy"),
        ("mine.parquet", "text", "mine.parquet"),
        ("mine.py", "x = 1", "must define act"),
        ("mine.py", "def act(step, state):\n    return 7\n", r"act\(1, 0\) = 7"),
        ("mine.py", "def act(step, state):\n    return {}[0]\n", r"act\(1, 0\) failed: KeyError"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=said):
        read_given_policy(path, SCHEMA, run_code=True)


def test_a_program_is_not_run_unasked(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(ValueError, match="is executed only with --run-code"):
        read_given_policy(path, SCHEMA)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"path": "mine.npy"}, "must end in .csv or .parquet"),
        ({"policy": POLICY - 1}, "policy holds -2"),
        ({"policy": POLICY + 0.5}, "policy has shape"),
        ({"policy": POLICY[0]}, "policy has shape"),
        ({"policy": MIXED * 2}, "policy: must hold probabilities"),
        ({"made_from": {}}, "made_from = {}"),
    ],
)
def test_bad_policies_are_not_written(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"path": "mine.csv", "policy": POLICY, "made_from": None, **change}
    with pytest.raises(ValueError, match=said):
        save_policy(tmp_path / given["path"], given["policy"], given["made_from"])
    assert not list(tmp_path.iterdir())
