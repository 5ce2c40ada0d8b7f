"""policy.csv and policy.py: round trips, labels, abstention, and a bare Python that acts."""

import csv
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import discreet as dr
from discreet.core.layout import Layout
from discreet.data.schema import Schema
from discreet.experiments.offline_runs import SimulatedDataset, learn_offline
from discreet.learners.offline.apvi import DPAPVI
from discreet.reports.policy_files import PolicyTable, read_policy, write_policy

STATES = ("healthy", 'ill, "very"', "schwer krank – 重病", "a\nb\r'c'", " padded ")
ACTIONS = ("0", "rest; wait", 'drug "A", 5 mg')
STATEMENT = (
    'No one\'s record moves a probability by more than e^1 = 2.72: "ε = 1", C:\\temp\\new, """quoted""".'
)
H, S = 3, 5
DRAW = np.random.default_rng(1)
TABLE = PolicyTable(
    policy=DRAW.integers(3, size=(H, S)),
    supported=np.array([[1, 0, 1, 1, 0], [0, 1, 1, 1, 1], [1, 1, 0, 0, 0]], bool),
    values=DRAW.uniform(0, 3, size=(H, S)),
    behaviour=DRAW.integers(3, size=(H, S)),
)
LABELLED = replace(TABLE, state_labels=STATES, action_labels=ACTIONS, first_step=1)


def asked(folder: Path, questions: list) -> list:
    """What policy.py answers in a Python that knows nothing of this library."""
    program = (
        "import json, runpy, sys\n"
        f"act = runpy.run_path({str(folder / 'policy.py')!r})['act']\n"
        "print(json.dumps([act(step, state) for step, state in json.load(sys.stdin)]))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "utf8", "-c", program], input=json.dumps(questions), text=True,
        capture_output=True, check=True, cwd=folder, encoding="utf-8",
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.parametrize("unsupported", ["abstain", "behaviour", "policy"])
@pytest.mark.parametrize("table", [TABLE, LABELLED], ids=["plain", "labelled"])
def test_round_trip_and_a_bare_python(tmp_path: Path, table: PolicyTable, unsupported: str) -> None:
    write_policy(tmp_path, table, STATEMENT, unsupported)
    actions, supported = read_policy(tmp_path)
    instead = {"abstain": np.full((H, S), -1), "behaviour": table.behaviour, "policy": table.policy}
    np.testing.assert_array_equal(actions, np.where(table.supported, table.policy, instead[unsupported]))
    np.testing.assert_array_equal(supported, table.supported)
    np.testing.assert_array_equal(actions, table.actions(unsupported))
    moved = tmp_path / "elsewhere ü"
    moved.mkdir()
    for name in ("policy.csv", "policy.py"):
        shutil.move(tmp_path / name, moved / name)
    names = range(S) if table.state_labels is None else table.state_labels
    said = np.array([*(table.action_labels or range(3)), None], object)[actions]
    where = [(h, s) for h in range(H) for s in range(S)]
    answers = asked(moved, [(h + table.first_step, names[s]) for h, s in where])
    assert answers == [said[cell] for cell in where]
    assert answers == asked(moved, [(h + table.first_step, s) for h, s in where])


def test_the_module_states_the_privacy(tmp_path: Path) -> None:
    write_policy(tmp_path, LABELLED, STATEMENT)
    namespace: dict = {"__file__": str(tmp_path / "policy.py"), "__name__": "policy"}
    exec(compile((tmp_path / "policy.py").read_text("utf-8"), "policy.py", "exec"), namespace)
    assert " ".join(STATEMENT.split()) in " ".join(namespace["__doc__"].split())
    assert "abstains" in namespace["__doc__"]
    assert "1 to 3" in namespace["act"].__doc__
    for step, state in ((0, 0), (4, 0), (1, 5), (1, "nobody")):
        with pytest.raises(KeyError):
            namespace["act"](step, state)


def test_columns(tmp_path: Path) -> None:
    write_policy(tmp_path, LABELLED, STATEMENT)
    frame = pd.read_csv(tmp_path / "policy.csv", dtype={"action_label": str}, keep_default_na=False)
    assert list(frame) == [
        "step", "state", "state_label", "action", "action_label", "supported", "value", "behaviour",
    ]  # fmt: skip
    with open(tmp_path / "policy.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for n, row in enumerate(rows):
        h, s = divmod(n, S)
        assert (row["step"], row["state"], row["state_label"]) == (str(h + 1), str(s), STATES[s])
        assert row["value"] == (repr(LABELLED.values[h, s].item()) if LABELLED.supported[h, s] else "")
        assert row["behaviour"] == str(LABELLED.behaviour[h, s])  # type: ignore[index]
        assert (row["action"] == "") == (row["action_label"] == "") == (not LABELLED.supported[h, s])
    write_policy(tmp_path, replace(TABLE, behaviour=None), STATEMENT)
    frame = pd.read_csv(tmp_path / "policy.csv")
    assert list(frame) == ["step", "state", "action", "supported", "value", "behaviour"]
    assert frame.behaviour.isna().all()
    with pytest.raises(ValueError, match="behaviour"):
        write_policy(tmp_path, replace(TABLE, behaviour=None), STATEMENT, "behaviour")


def test_from_a_learner(tmp_path: Path) -> None:
    """The planner's own action and its value; behaviour is what people did, where many came."""
    draw = np.random.default_rng(2)
    mask = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1], [1, 1, 1], [1, 0, 1]], bool)
    mdp = dr.TabularMDP(
        draw.dirichlet(np.ones(S), (H, S, 3)), draw.uniform(size=(H, S, 3)), horizon=H, mask=mask
    )
    mostly = mask[None] * draw.uniform(0.1, 1.0, size=(H, S, 3))
    mostly /= mostly.sum(axis=-1, keepdims=True)
    learned = learn_offline(SimulatedDataset(mdp, mostly, 10**7), DPAPVI(), dr.Central(rho=1.0), dr.Seeded(0))
    came = learned.visits.sum(axis=-1) > 1e5  # everybody starts in one state
    assert came.sum() > H * S / 2
    np.testing.assert_array_equal(learned.behaviour[came], mostly.argmax(axis=-1)[came])
    layout = Layout(S, 3, H, mask)
    schema = Schema("trial", "patient", layout, first_step=1, state_labels=STATES, action_labels=ACTIONS)
    table = PolicyTable.of(learned, schema)
    np.testing.assert_array_equal(table.values, learned.values[:-1])
    assert (table.state_labels, table.action_labels, table.first_step) == (STATES, ACTIONS, 1)
    write_policy(tmp_path, table, learned.guarantee.statement, "policy")
    np.testing.assert_array_equal(read_policy(tmp_path)[0], learned.policy)
    assert PolicyTable.of(learned).first_step == 0


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"policy": np.zeros(3, int)}, "policy has shape"),
        ({"policy": TABLE.policy - 2}, "policy holds -2"),
        ({"behaviour": TABLE.policy - 1}, "behaviour holds -1"),
        ({"policy": TABLE.policy + 0.0}, "of integers"),
        ({"policy": np.full((H, S), 3), "action_labels": ACTIONS}, "actions that have labels"),
        ({"supported": TABLE.supported[:2]}, "supported"),
        ({"supported": TABLE.policy}, "supported"),
        ({"values": TABLE.values * np.nan}, "values"),
        ({"behaviour": TABLE.behaviour[:, :2]}, "behaviour"),  # type: ignore[index]
        ({"state_labels": STATES[:4]}, "state_labels has 4"),
        ({"state_labels": ("a",) * S}, "once"),
        ({"state_labels": ("", *STATES[1:])}, "not empty"),
        ({"first_step": 2}, "first_step"),
    ],
)
def test_wrong_tables_are_refused(change: dict, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        replace(TABLE, **change)
    with pytest.raises(ValueError, match="unsupported = 'guess'"):
        TABLE.actions("guess")  # type: ignore[arg-type]


def test_programs_of_decision_points_say_as_before_since_version_6(tmp_path: Path) -> None:
    """Earlier versions keep their text, so that old folders are made again byte by byte."""
    changed = replace(TABLE, intervals=(TABLE.values, TABLE.values))
    texts = {}
    for version in (4, 5, 6):
        write_policy(tmp_path, changed, "made up", version=version)
        texts[version] = (tmp_path / "policy.py").read_text()
    assert texts[4] == texts[5] != texts[6]
    assert texts[5].count("the policy abstains") == texts[6].count("people continue as before") == 2
    assert "abstains" not in texts[6]
    write_policy(tmp_path, TABLE, "made up", version=6)
    assert "(supported = 0), the policy abstains." in (tmp_path / "policy.py").read_text()


def test_as_before_is_an_empty_action(tmp_path: Path) -> None:
    policy = TABLE.policy.copy()
    policy[0, 1] = -1
    table = replace(TABLE, policy=policy, supported=np.ones((H, S), bool))
    write_policy(tmp_path, table, "made up")
    actions, _ = read_policy(tmp_path)
    np.testing.assert_array_equal(actions, policy)
    np.testing.assert_array_equal(table.actions("policy"), policy)


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("step,state", "pass,state", "columns step"),
        ("\n0,1,", "\n0,2,", "row 2"),
        ("\n1,0,", "\n2,0,", "row 6: must be of step 1 and state 0"),
        ("\n0,0,", "\n0,x,", "row 1: state = 'x'"),
        ("\n0,0,", "\n0,-1,", "row 1: state = '-1'"),
        ("\n2,4,", '\n2,4,"', "policy.csv"),
        ("\n0,0,", "\n0,0,zero", "row 1: action = 'zero"),
    ],
)
def test_a_damaged_table_is_refused(tmp_path: Path, old: str, new: str, match: str) -> None:
    with pytest.raises(ValueError, match="policy.csv: no such file"):
        read_policy(tmp_path)
    write_policy(tmp_path, TABLE, STATEMENT)
    text = (tmp_path / "policy.csv").read_bytes().decode()
    assert old in text
    (tmp_path / "policy.csv").write_bytes(text.replace(old, new, 1).encode())
    with pytest.raises(ValueError, match=match) as error:
        read_policy(tmp_path)
    assert "policy.csv" in str(error.value)
    (tmp_path / "policy.csv").write_bytes(text.rpartition("\n2,4")[0].encode())
    with pytest.raises(ValueError, match="multiple"):
        read_policy(tmp_path)
