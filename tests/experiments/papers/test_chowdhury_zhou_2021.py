"""The public code's replica against the specification's table, and the reproduction end to end."""

import json
from pathlib import Path

import numpy as np
import pytest

import discreet as dr
from discreet.experiments.papers.chowdhury_zhou_2021 import REFERENCE, published_code_setup, reproduce
from discreet.experiments.simulate import iterate_runs


@pytest.mark.parametrize("key", REFERENCE, ids=str)
def test_replica_of_the_public_code_after_5000_users(key: tuple[str, str, float]) -> None:
    kind, privatizer, epsilon = key
    learner = "private-ucb-vi" if kind == "VI" else "private-ucb-po"
    setup = published_code_setup(learner, privatizer, dr.make("riverswim"), 5000, epsilon)
    assert setup.guarantee.epsilon is None
    runs = list(iterate_runs(setup, 7, range(6)))
    at_1000 = np.mean([np.interp(1000, r.episodes, r.gap_regret) for r in runs])
    at_5000 = np.mean([r.gap_regret[-1] for r in runs])
    assert at_1000 == pytest.approx(REFERENCE[key][0], rel=0.1)
    assert at_5000 == pytest.approx(REFERENCE[key][1], rel=0.1)


def test_quick_reproduction(tmp_path: Path) -> None:
    document = reproduce(tmp_path, quick=True, say=lambda _: None)
    assert json.loads((tmp_path / "figure-2.json").read_text()) == document
    assert (tmp_path / "figure-2.png").stat().st_size > 20_000
    assert sorted(p.name for p in tmp_path.iterdir()) == ["figure-2.json", "figure-2.pdf", "figure-2.png"]
    true = {(c["column"], c["curve"]): c["epsilon_true"] for c in document["curves"]}
    assert true["as the public code does it", "VI central, stated ε = 1"] is None
    assert true["the paper's stated noise", "VI local, stated ε = 1"] == pytest.approx(2.0)
    assert true["the paper's stated noise", "VI central, stated ε = 1"] == pytest.approx(
        2 * 11 / np.log2(2000)
    )
    assert true["the paper's stated noise", "PO local, stated ε = 1"] == pytest.approx(2.0)
    assert true["at a true ε", "PO central, stated ε = 0.5"] == pytest.approx(0.5)


def test_bad_arguments() -> None:
    mdp = dr.make("riverswim")
    with pytest.raises(ValueError, match="learner = 'pucb'"):
        published_code_setup("pucb", "none", mdp, 10, None)
    with pytest.raises(ValueError, match="epsilon = None"):
        published_code_setup("oppo", "local", mdp, 10, None)
