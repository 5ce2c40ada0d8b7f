"""The reproduction end to end in small, what its claims are made of, and that nothing is computed twice."""

import copy
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.studies.shuffle_regret import noise_per_cell
from discreet.experiments.simulate import Setup
from discreet.learners.online.policy_elimination import SDPPE
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.utils import plot_style as style
from discreet.utils.atomic_file import write_aside
from papers.bai_2024 import STUDY, pages
from papers.bai_2024 import runs as bai
from papers.page import HOLDS
from papers.study import Job, reproduce

TINY = bai.Size(
    (200,), 2, 2, (3_000, 10_000), (10_000,), (1.0, 3.0), 10_000, (100_000,), (900,), (20_000,), 1, 1,
    (1_000,),
)  # fmt: skip
FEW = {
    (bai.SMALL, "sdp-pe"): (bai.NONE, bai.CENTRAL, bai.SHUFFLE, bai.LOCAL),
    (bai.SMALL, "apeve"): (bai.NONE,),
    (bai.SMALL, "sdp-pe-om"): (bai.NONE, bai.CENTRAL, bai.BATCHES, bai.SHUFFLE, bai.LOCAL),
    (bai.SMALL, "noise-aware"): (bai.NONE, bai.CENTRAL, bai.BATCHES, bai.SHUFFLE, bai.LOCAL),
    (bai.CHAIN, "sdp-pe-om"): (bai.NONE, bai.CENTRAL, bai.SHUFFLE, bai.LOCAL),
    (bai.CHAIN, "noise-aware"): (bai.NONE, bai.CENTRAL, bai.SHUFFLE, bai.LOCAL),
}
Small = tuple[dict[str, Any], Path, list[str]]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    """A tiny reproduction; figures are drawn but not rendered: that takes seconds."""
    folder, said = tmp_path_factory.mktemp("bai"), list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bai, "QUICK", TINY)
        patch.setattr(bai, "RUN", FEW)
        patch.setattr(style, "save_figure", lambda _, path: _drawn(path))
        found = reproduce(STUDY, Job(folder, quick=True, say=said.append))
    return found, folder, said


def _drawn(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    write_aside(path, b"drawn")


def verdict(document: dict[str, Any], begins: str) -> str:
    [found] = [one["verdict"] for one in pages.claims(document) if one["claim"].startswith(begins)]
    return found


def test_structure(small: Small) -> None:
    found, folder, said = small
    assert json.loads((folder / "bai-2024.json").read_text()) == found
    assert all(len(line) == len(table["head"]) for table in found["tables"] for line in table["rows"])
    words = (f"{HOLDS}:", f"{pages.FAILS}:", f"{pages.OPEN}:")
    assert sum(line.startswith(words) for line in said) == len(found["claims"])
    keys = [(r["scenario"], r["learner"], r["privacy"], r["epsilon"], r["users"]) for r in found["rows"]]
    assert len(set(keys)) == len(keys)
    for study, names in FEW.items():
        for privacy in names:
            every = TINY.users if study[0] == bai.SMALL else TINY.chain_users
            assert [row["users"] for row in pages.against_users(found, study, privacy)] == list(every)
    for study in pages.STUDIES[:3]:
        for privacy in bai.BY_EPSILON:
            assert [row["epsilon"] for row in pages.against_epsilon(found, study, privacy)] == [1.0, 3.0]
    for row in found["rows"]:
        assert np.array(row["finals"]).shape == (row["worlds"], row["seeds"])
        if row["privacy"] == bai.NONE:
            assert row["epsilon_true"] is None
        else:
            assert 0.7 * row["epsilon"] < row["epsilon_true"] <= row["epsilon"] * (1 + 1e-9)
    for row in found["proven"]:
        if row["privacy"] == bai.PUBLISHED:
            assert row["epsilon_true"] < 0.1


def test_nothing_that_is_reported_was_tuned_on() -> None:
    for scenario in (bai.SMALL, bai.CHAIN):
        known = bai.worlds(scenario, bai.FULL).values(), bai.training(scenario, bai.FULL).values()
        for mdp in known[0]:
            for other in known[1]:
                assert mdp.transitions.shape != other.transitions.shape or not np.allclose(
                    mdp.transitions, other.transitions
                )
    assert bai.SEED != bai.TUNING_SEED


def test_tuning_takes_the_best_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size, job = replace(TINY, tried=3), Job(tmp_path, say=lambda _: None)
    wanted = [(bai.SMALL, "noise-aware", bai.LOCAL)]
    [found] = bai.tune(job, size, wanted)
    mdp, each = bai.world(900), []
    for growth in bai.GRIDS["noise-aware"]["replan_growth"][-3:]:
        learns = bai.learner("noise-aware", {"replan_growth": growth})
        setup = Setup(mdp, learns, bai.privatizer(bai.LOCAL), 20_000, "batch")
        loss = 20_000 * (setup.optimal_value - setup.uniform_value)
        each.append((setup.run(bai.TUNING_SEED, 0).regret[-1] / loss, growth))
    assert found["score"] == pytest.approx(min(each)[0])
    assert found["knobs"] == {"replan_growth": min(each)[1]}
    monkeypatch.setattr(bai, "Setup", None)
    assert bai.tune(job, size, wanted) == [found]


@pytest.mark.parametrize("name", ["sdp-pe", "sdp-pe-om", "noise-aware"])
def test_batches_of_a_trusted_server_have_the_noise_of_shuffle(name: str) -> None:
    mdp, knobs = bai.world(200), {"replan_growth": 1.4} if name == "noise-aware" else {"explore_share": 0.2}
    setups = [
        Setup(mdp, bai.learner(name, knobs, privacy), bai.privatizer(privacy), 10_000)
        for privacy in (bai.BATCHES, bai.SHUFFLE)
    ]
    central, shuffle = (noise_per_cell(setup) for setup in setups)
    assert central == pytest.approx(shuffle, rel=0.02)
    assert (setups[0].times == setups[1].times).all()


def test_watching_changes_nothing_and_tells_what_is_left() -> None:
    mdp = bai.world(200)
    watched = bai.Watched(SDPPE())
    setup = Setup(mdp, watched, NoPrivacy(), 20_000, "batch")
    run = setup.run(1, 0)
    assert (run.regret == Setup(mdp, SDPPE(), NoPrivacy(), 20_000, "batch").run(1, 0).regret).all()
    optimal, left, worst = bai.survivors(watched, setup)
    active = watched.state.memory.active
    assert optimal
    assert 1 <= left == active.sum() < active.size
    values = [setup.optimal_value - _value(setup, watched, number) for number in np.flatnonzero(active)[:20]]
    assert max(values) <= worst + 1e-12
    best = [n for n in range(active.size) if setup.optimal_value - _value(setup, watched, n) < 1e-9]
    active[best] = False
    assert bai.survivors(watched, setup)[0] is False


def _value(setup: Setup, watched: bai.Watched, number: int) -> float:
    from discreet.envs.mdp import planning

    return float(planning.policy_value(setup.mdp, watched.learner.enumeration(setup.spec).policy(number)))


def test_errors_are_within_worlds() -> None:
    values = np.array([[1.0, 3.0], [11.0, 15.0]])
    mean, error = bai.spread(values)
    assert mean == 7.5
    assert error == pytest.approx(np.sqrt(2.0 / 2 + 8.0 / 2) / 2)
    assert bai.spread(values[:, :1]) == (6.0, 0.0)


def made(cost: dict[str, float], share: float = 0.1) -> dict[str, Any]:
    """A document in which regret is √K without privacy, and the cost grows with the given exponents."""
    rows, jitter = [], np.array([[-1.0, 1.0, 0.0, 0.0]])
    for users in (10_000, 1_000_000):
        for privacy, exponent in {bai.NONE: None, **cost}.items():
            regret = users**0.5 + (0.0 if exponent is None else 10.0 * users**exponent)
            finals = regret * (1 + 0.01 * jitter)
            rows.append({
                "scenario": bai.SMALL, "learner": "sdp-pe", "privacy": privacy, "users": users,
                "epsilon": None if exponent is None else 1.0, "finals": finals.tolist(), "mean": regret,
                "error": bai.spread(finals)[1], "share": share,
            })  # fmt: skip
    return {"rows": rows, "epsilon": 1.0, "swept": 1_000_000}


def test_growth_of_the_cost() -> None:
    study = (bai.SMALL, "sdp-pe")
    found = made({bai.SHUFFLE: 0.2, bai.LOCAL: 0.7})
    slow, fast = (pages.growth(found, study, p) for p in (bai.SHUFFLE, bai.LOCAL))
    assert slow.value == pytest.approx(0.2)
    assert fast.value == pytest.approx(0.7)
    assert pages.below(slow, 0.5) == HOLDS
    assert pages.below(fast, 0.5) == pages.FAILS
    assert pages.below(pages.Measured(0.45, 0.05), 0.5) == pages.OPEN
    falls, rises = (pages.relative(found, study, p) for p in (bai.SHUFFLE, bai.LOCAL))
    assert pages.below(falls, 0.0) == HOLDS
    assert pages.below(rises, 0.0) == pages.FAILS
    unlearned = pages.growth(made({bai.SHUFFLE: 0.2}, share=0.9), study, bai.SHUFFLE)
    assert unlearned.why.startswith("not learned")
    assert pages.below(unlearned, 0.5) == pages.OPEN
    free = made({bai.SHUFFLE: 0.2})
    for row in free["rows"]:
        row["finals"] = [[1.0, 2.0, 3.0, 4.0]]
    assert pages.growth(free, study, bai.SHUFFLE).why == "within its error"


def test_verdicts_follow_the_numbers(small: Small) -> None:
    given = copy.deepcopy(small[0])
    keeps = "sdp-pe, bounds that hold, none"
    [row] = [r for r in given["proven"] if r["learner"] == "sdp-pe, theory" and r["privacy"] == bai.NONE]
    row["left"] = 10.0
    assert verdict(given, keeps) == HOLDS
    row["optimal"] = [row["optimal"][1] - 1, row["optimal"][1]]
    assert verdict(given, keeps) == pages.FAILS
    row["optimal"][0] += 1
    row["left"] = max(r["left"] for r in given["proven"])
    assert verdict(given, keeps) == pages.OPEN
    assert verdict(given, "sdp-pe as printed (C = 1), none") == pages.FAILS
    assert verdict(given, "the privatizer is (ε, β)-shuffle private, messages being single bits") == HOLDS
    assert verdict(given, "the bound on the regret of SDP-PE as printed") == pages.OPEN
    assert verdict(given, "noise of a counter under shuffle") == HOLDS
    last = max(TINY.users)
    for row in given["rows"]:
        if (row["scenario"], row["learner"], row["users"]) == (bai.SMALL, "noise-aware", last):
            factor = {bai.SHUFFLE: 105.0, bai.BATCHES: 100.0, bai.LOCAL: 500.0}.get(row["privacy"], 50.0)
            row.update(finals=[[factor, factor + 0.1]], share=0.1)
    begins = "noise-aware, small MDPs: shuffle"
    assert verdict(given, f"{begins} is at most 10 % above a trusted server's batches") == HOLDS
    assert verdict(given, f"{begins} is at most 10 % above a trusted server's best") == pages.FAILS
    assert verdict(given, f"{begins} (joint) is better than local privacy") == HOLDS


def test_the_page(small: Small) -> None:
    found, folder, _ = small
    page = (folder / "README.md").read_text()
    assert page == pages.page(found)
    assert re.findall(r"figures/([\w.-]+)", page) == ["bai-2024.png"]
    assert "{" not in page
    for line in page.splitlines():
        assert line.startswith("|") or len(line) <= 115
    assert not re.search(r"/(root|tmp|work|home)/", page)


def test_the_page_says_where_runs_without_privacy_are_stuck(small: Small) -> None:
    """Regret that grows as K does: its share of uniform play's does not fall."""
    given = copy.deepcopy(small[0])
    shares = {TINY.users[0]: 0.05, TINY.users[1]: 0.048}
    for row in given["rows"]:
        if (row["scenario"], row["learner"]) == (bai.SMALL, "noise-aware"):
            falls = row["privacy"] != bai.NONE
            row.update(finals=[[2.0, 2.0]], share=0.01 if falls else shares[row["users"]])
    said = " ".join(pages.page(given).split())
    stuck = (
        "noise-aware, small MDPs has 5.00% of uniform play's regret at K = 3,000 without privacy and still"
    )
    assert f"{stuck} 4.80% at K = 10,000" in said
    for row in given["rows"]:
        if (row["scenario"], row["learner"], row["privacy"]) == (bai.SMALL, "noise-aware", bai.NONE):
            row["share"] = shares[row["users"]] * (0.5 if row["users"] == TINY.users[1] else 1.0)
    assert "noise-aware, small MDPs has" not in " ".join(pages.page(given).split())


def test_finished_cells_are_not_run_again(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    found, folder, _ = small
    job = Job(folder, quick=True, say=lambda _: None)

    def no(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(Setup, "run", no)
    again = bai._proven(job, TINY)
    assert json.loads(json.dumps(again)) == found["proven"]
    (folder / "data-quick" / "sdp-pe-theory-none-random-200-100000.parquet").unlink()
    with pytest.raises(AssertionError, match="computed again"):
        bai._proven(job, TINY)
