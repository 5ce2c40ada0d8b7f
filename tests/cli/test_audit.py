"""Commands that give evidence: check-plugin, audit and warmup."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

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

    monkeypatch.setattr(audits, "audit_privatizer", audit)
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


def test_audit_runs_under_a_learner(one_audit: None, monkeypatch: pytest.MonkeyPatch) -> None:
    play = audits.core.black_box
    fewest = lambda start, plays, runs, *how: play(start, plays, 200, *how)  # noqa: E731
    monkeypatch.setattr(audits.core, "black_box", fewest)
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
