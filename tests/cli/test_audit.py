"""Commands that give evidence: check-plugin, check-noise, check-vector, audit and warmup."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import call, document

from discreet import registry
from discreet.audit import conformance
from discreet.audit import replay_audit as replay
from discreet.audit import run as audits
from discreet.core.layout import Layout


@pytest.fixture
def one_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked for as JSON and in words is played once, and small: audits are tested elsewhere."""
    played: dict[str, Any] = {}

    def audit(*given: Any, _audit: Any = audits.audit_privatizer, **more: Any) -> Any:
        key = repr((given, more))
        if key not in played:
            played[key] = _audit(*given, layout=Layout(4, 2, 8), **more)
        return played[key]

    play = audits.core.black_box

    def fewest(start: Any, plays: Any, runs: int, *how: Any) -> Any:
        return play(start, plays, runs if runs > 800 else min(runs, 200), *how)

    monkeypatch.setattr(audits, "audit_privatizer", audit)
    monkeypatch.setattr(audits.core, "black_box", fewest)
    monkeypatch.setattr(replay, "_FIRST", 6)
    monkeypatch.setattr(replay, "_SEEDS", 8)
    monkeypatch.setattr(replay, "_TARGETS", 2)


def test_audit_prints_bounds_identities_and_what_a_pass_means(one_audit: None) -> None:
    known = ["audit", "--privatizer", "local", "--epsilon", "2", "--runs", "800"]
    out = document(*known)
    assert out["passed"]
    assert 0 <= out["lower_bound"]["epsilon"] <= out["claimed"]["epsilon"] == pytest.approx(2.0)
    assert out["lower_bound"]["mu"] is None
    assert 0 <= out["power_half_scale"] <= 1
    assert len(out["games"]) == 3
    assert out["mechanism"] == {"asked": "subset", "games": "subset"}
    assert not any(one["passed"] is False for one in out["identities"])
    assert "saved and restored three times" in str(out["identities"])
    assert "no certificate" in out["verdict"]
    text = call(*known, "--set", "randomizer=gaussian", "--delta", "1e-6").stdout
    assert "no certificate" in text
    assert "mu at least" in text
    assert "Mechanism at the size asked for: gaussian; in the games: gaussian." in text


def test_audit_runs_under_a_learner(one_audit: None) -> None:
    out = document(
        "audit", "--privatizer", "central", "--learner", "private-ucb-vi", "--epsilon", "1",
        "--delta", "1e-6", "--runs", "800",
    )  # fmt: skip
    assert out["passed"]
    assert out["learner"] == "private-ucb-vi"


def test_audit_of_a_false_claim_is_status_one(monkeypatch: pytest.MonkeyPatch, one_audit: None) -> None:
    from discreet.mechanisms.local.noisy_vector_session import NoisyVectorEncoder

    encode = NoisyVectorEncoder.__call__
    monkeypatch.setattr(
        NoisyVectorEncoder, "__call__",
        lambda self, life, plan, coins: replace(
            report := encode(self, life, plan, coins),
            message=(report.message + 3 * self.query.to_cells(self.query.contribution(life))) / 4,
        ),
    )  # fmt: skip
    wrong = (
        "audit",
        "--privatizer",
        "local",
        "--set",
        "randomizer=laplace",
        "--runs",
        "1600",
        "--epsilon",
        "2",
    )
    out = document(*wrong, code=1)
    assert not out["passed"]
    assert {"a lower bound exceeds the claim", "noise has the claimed law and scale"} <= set(out["failures"])
    shown = call(*wrong, code=1).stdout
    assert "FAILED" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--privatizer", "none"], "privatizer = 'none': claims no guarantee"),
        ([], "privatizer is missing"),
        (["--privatizer", "centrale"], "did you mean 'central'"),
        (["--privatizer", "central", "--epsilon", "0"], "epsilon"),
        (["--privatizer", "central", "--runs", "10"], "runs"),
        (["--privatizer", "central", "--alarm", "2"], "alarm"),
        (["--privatizer", "central", "--all"], "--all"),
        (["--privatizer", "central", "--set", "colour=red"], "colour"),
    ],
)
def test_audit_refuses_bad_input(arguments: list[str], message: str) -> None:
    result = call("audit", *arguments, code=2)
    assert message in result.stderr
    assert result.stdout == ""


def test_check_of_a_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registry, "_added", {})
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "toy_cli_module.py").write_text(
        "import discreet as dr\n"
        "def lake(*, size: int = 3):\n"
        "    return dr.make('random', states=size)\n"
        "dr.register('environment', 'lake', lake)\n"
        "def broken():\n"
        "    raise RuntimeError('out of order')\n"
        "dr.register('environment', 'broken', broken)\n"
    )
    text = call("check-plugin", "toy_cli_module", code=1).stdout
    assert "passed  environment lake: world is sound" in text
    assert "failed  environment broken: world is sound: RuntimeError: out of order" in text
    assert "2 passed, 0 not applicable, 2 failed" in text
    found = document("check-plugin", "toy_cli_module", code=1)
    assert (found["passed"], found["failed"], found["skipped"]) == (2, 2, 0)


DECLARED = """
import numpy as np
import discreet as dr

class Half(dr.mechanisms.Laplace):
    name = "half"
    def cost(self, shift, scale):
        return 0.5 * shift / scale
    def log_mass(self, values, scale, grid):
        unit = 1 / (scale * grid)
        return -np.abs(values) * unit + np.log(np.tanh(unit / 2))

class Honest(Half):
    name = "honest"
    cost = dr.mechanisms.Laplace.cost

class Needy(Honest):
    def __init__(self, width):
        pass

honest = Honest()

def states(record, context):
    return np.bincount(record.states, minlength=6) * context.get("w", 1.0)

seen = []
def remembers(record, context):
    seen.append(record.states[0])
    return np.full(6, len(seen))

vector = dr.mechanisms.BoundedVector("visited", 6, 9.0, states)
leak = dr.mechanisms.BoundedVector("leak", 6, 900.0, remembers)
"""


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "toy_declared", raising=False)
    (tmp_path / "toy_declared.py").write_text(DECLARED)
    return tmp_path


def test_check_of_a_noise(declared: Path) -> None:
    few = "--draws", "10000", "--grid", "16", "--scale", "2"
    for name in ("honest", "Honest"):
        text = call("check-noise", f"toy_declared:{name}", *few).stdout
        assert "passed  noise honest: cost bounds the privacy loss: nearest at shift" in text
        assert "12 passed, 0 not applicable, 0 failed" in text
    text = call("check-noise", "toy_declared:Half", *few, code=1).stdout
    assert (
        "failed  noise half: cost bounds the privacy loss: shift 1: largest log-likelihood ratio 0.5" in text
    )
    found = document("check-noise", "toy_declared:Half", *few, "--largest", "0.5", code=1)
    assert (found["passed"], found["skipped"], found["failed"]) == (11, 0, 1)
    assert len(found["cases"]) == 12


def test_check_of_a_vector(declared: Path) -> None:
    text = call("check-vector", "toy_declared:vector", "--records", "20").stdout
    assert "passed  vector visited: equal results in any order: 20 records" in text
    assert "2 B = 18 is assumed" in text
    assert "6 passed, 0 not applicable, 0 failed" in text
    np.savez(declared / "public.npz", w=np.arange(6.0))
    more = "--env", "random", "--env-option", "states=4", "--context", str(declared / "public.npz")
    found = document("check-vector", "toy_declared:vector", "--records", "20", *more)
    assert (found["passed"], found["failed"]) == (6, 0)
    found = document("check-vector", "toy_declared:leak", "--records", "20", code=1)
    failed = {one["check"] for one in found["cases"] if one["status"] == "failed"}
    assert "equal results in any order" in failed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check-noise", "toy_declared"], "noise = 'toy_declared': must be MODULE:NAME"),
        (["check-noise", "toy_declared:nothing"], "has no 'nothing'"),
        (["check-noise", "no_such_module:noise"], "cannot be imported"),
        (["check-noise", "toy_declared:Needy"], "class has no such instance"),
        (["check-noise", "toy_declared:vector"], "noise = BoundedVector"),
        (["check-noise", "toy_declared:honest", "--grid", "10"], "grid = 10: must be a power of two"),
        (["check-vector", "toy_declared:honest"], "vector = Honest"),
        (["check-vector", "toy_declared:vector", "--env", "nowhere"], "nowhere"),
        (["check-vector", "toy_declared:vector", "--records", "1"], "records"),
        (["check-vector", "toy_declared:vector", "--context", "absent.npz"], "no such file"),
    ],
)
def test_checks_of_declarations_refuse_bad_input(declared: Path, arguments: list[str], message: str) -> None:
    result = call(*arguments, code=2)
    assert message in result.stderr
    assert result.stdout == ""


def test_mechanisms_are_every_combination_that_fits() -> None:
    names = dict(registry.mechanisms(1.0, 1e-6))
    assert {
        "central tree laplace", "central tree gaussian tree estimate optimal",
        "central signed-digits laplace",
        "central square-root gaussian", "central decaying gaussian",
        "central reports",
        "central paper", "local laplace", "local gaussian", "local subset", "local oue", "local krr",
    } <= set(names)  # fmt: skip
    assert len(set(names)) == len(names)
    assert names["local gaussian"].delta == 1e-6
    assert names["local krr"].delta is None
    assert not any(name.startswith("none") for name in names)


def test_warmup_says_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a few pairs: `make test` runs it on all of them before, and the slow suite counts them."""
    few = [*conformance._pairs_of(registry.entries("learner")[:1])][:4]
    monkeypatch.setattr(conformance, "_pairs_of", lambda _: iter(few))
    result = call("warmup", "--json")
    assert json.loads(result.stdout)["combinations"] > len(few)
    assert "kernels ready after" in result.stderr


@pytest.mark.statistics
def test_warmup_runs_every_combination() -> None:
    assert json.loads(call("warmup", "--json").stdout)["combinations"] >= 8 * 3 * 4
