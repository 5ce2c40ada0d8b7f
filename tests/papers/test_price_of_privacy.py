"""The price of privacy: its definitions on curves made by hand, its plan, and a tiny study end to end."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import discreet as dr
from benchmarks.leaderboard.env_suites import SUITE, TRAINING
from discreet.experiments import build_run
from discreet.experiments.results import RunFolder
from discreet.experiments.run_config import RunConfig
from discreet.experiments.simulate import Setup
from discreet.utils import plot_style as style
from discreet.utils.atomic_file import write_aside
from papers.price_of_privacy import STUDY
from papers.price_of_privacy import pages as price_pages
from papers.price_of_privacy import runs as price
from papers.price_of_privacy.runs import Budget, Cell, Size, users_until_within
from papers.study import Job, reproduce

TINY = Size(
    worlds=(SUITE[0], SUITE[2]),
    epsilons=(1.0,),
    users=200,
    chain_users=(300,),
    long_users=400,
    seeds=2,
    chain_seeds=3,
    long_seeds=2,
    long_chain_seeds=2,
    square_seeds=1,
    grid={"priv_scale": (0.1, 0.2)},
    grid_seeds=1,
)


def prepare(config: RunConfig) -> tuple[RunConfig, Setup]:
    resolved = build_run.resolved(config)
    return resolved, build_run.prepare(resolved)


# ------------------------------------------------------------------------------------ definitions
AT = np.array([10, 20, 50, 100])


@pytest.mark.parametrize(
    ("lost", "answer"),
    [
        ((0.2, 0.2, 0.2, 0.2), 0),  # never loses more than 10 % of 2: from the start
        ((1.0, 0.2, 0.1, 0.0), 10),
        ((0.1, 1.0, 0.1, 0.1), 20),  # a later lapse counts
        ((1.0, 0.0, 0.21, 0.1), 50),
        ((0.0, 0.0, 0.0, 0.3), None),  # the last interval is bad: censored
    ],
)
def test_users_until_within_ten_percent(lost: tuple[float, ...], answer: int | None) -> None:
    regret = np.cumsum(np.array(lost) * np.diff(AT, prepend=0))
    assert users_until_within(AT, regret, 2.0) == answer


def test_gains_multiply() -> None:
    square: dict[tuple[str, price.Mechanism], float] = {
        ("dp-ucbvi", "theirs"): 0.9, ("dp-ucbvi", "ours"): 0.3,
        ("noise-aware", "theirs"): 0.6, ("noise-aware", "ours"): 0.1,
    }  # fmt: skip
    found = price.gain(square, "dp-ucbvi")
    assert found == pytest.approx(
        {"mechanism": 3, "learner": 3, "both": 9, "mechanism_for_ours": 6, "learner_on_theirs": 1.5}
    )
    assert found["both"] == pytest.approx(found["mechanism"] * found["learner"])
    assert found["both"] == pytest.approx(found["mechanism_for_ours"] * found["learner_on_theirs"])


def test_lower_bounds() -> None:
    mdp, users = dr.make("riverswim"), 20_000
    sampling = math.sqrt(6 * 2 * 20**3 * users)
    assert price.lower_bound(mdp, users, Budget("none")) == pytest.approx(sampling)
    joint = price.lower_bound(mdp, users, Budget("joint", 0.1))
    assert joint == pytest.approx(sampling + 240 * math.log(400_000) / 0.1)
    local = price.lower_bound(mdp, users, Budget("local", 0.1))
    assert local == pytest.approx(max(sampling, 20 * math.sqrt(12 * users) / math.expm1(0.1)))
    assert price.lower_bound(mdp, users, Budget("local", 10.0)) == pytest.approx(sampling)


def test_budgets_are_named_and_kept_apart() -> None:
    names = [str(budget) for budget in price.budgets(price.FULL)]
    assert names[:4] == ["no privacy", "joint (0.1, 1e-6)", "joint (1, 1e-6)", "joint (10, 1e-6)"]
    assert len(names) == len(set(names)) == 13


# ------------------------------------------------------------------------------------------- plan
def test_their_mechanism_is_the_papers_at_a_true_epsilon() -> None:
    for trust, said in (("joint", "tree, a leaf is a user"), ("local", "each user's own counters")):
        budget = Budget(trust, 2.0, 1e-6)  # type: ignore[arg-type]
        for learner in ("dp-ucbvi", "private-ucb-vi", "noise-aware"):
            _, setup = prepare(Cell(SUITE[0], learner, "theirs", budget, 500, 0).config())
            guarantee = setup.guarantee
            assert guarantee.epsilon == pytest.approx(2.0)
            assert guarantee.delta == 0
            assert said in " ".join((guarantee.statement, *map(str, guarantee.composition)))
            assert "laplace" in guarantee.statement.lower()
            assert set(setup.query.row_families) == {"visits", "transition_counts", "reward_sums"}


def test_our_side_is_the_defaults() -> None:
    cell = Cell(SUITE[0], "noise-aware", "ours", Budget("joint", 1.0, 1e-6), 500, 0)
    config, setup = prepare(cell.config())
    assert not config.options
    assert setup.learner == dr.NoiseAwareUCBVI()
    assert setup.privatizer == dr.Central(epsilon=1.0, delta=1e-6)


def test_the_plan_pairs_users_and_shares_runs() -> None:
    tables = price.plan(price.FULL)
    cells = [cell for table in tables.values() for cell in table]
    assert len({cell.config() for cell in cells}) < len(cells)  # what two tables need is run once
    seeds = {
        (cell.world.name, cell.seed) for name, table in tables.items() for cell in table if name != "grid"
    }
    assert len(seeds) == len({seed for _, seed in seeds}) == 11  # one seed a world, of its own
    assert {cell.seed for cell in tables["grid"]}.isdisjoint(seed for _, seed in seeds)
    assert not {cell.world.name for cell in cells} & {world.name for world in TRAINING}
    trusts = {(c.budget.trust, c.budget.delta, c.budget.epsilon) for c in tables["main"]}
    assert set(itertools.product(("joint", "local"), (None, 1e-6), (0.1, 1.0, 10.0))) < trusts
    assert all(cell.config().by == "batch" for cell in cells)
    assert {world.kind for world in price.QUICK.worlds} == {world.kind for world in SUITE}


# ------------------------------------------------------------------------------------ end to end
def test_a_tiny_study_and_its_resumption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn but not rendered: that takes seconds (test_chowdhury_zhou_2021.py does)."""
    reports: dict[int, int] = {}
    monkeypatch.setattr(price, "QUICK", TINY)
    (tmp_path / "figures").mkdir()
    monkeypatch.setattr(style, "save_figure", lambda _, path: write_aside(path, b"drawn"))
    job = Job(tmp_path, True, 2, lambda _: None, reports.__setitem__)
    found = json.loads(json.dumps(reproduce(STUDY, job)))
    document = json.loads((tmp_path / "price-of-privacy.json").read_text())
    study = price.measured(tmp_path, TINY, 2)
    assert document == found == {**found, **json.loads(json.dumps(study.to_json()))}
    assert sum(reports.values()) <= price.runs_planned(quick=True)
    for name in ("price-of-privacy-riverswim.png", "price-of-privacy-suite.png"):
        assert (tmp_path / "figures" / name).exists()
    main = [row for row in study.rows["main"] if row.budget == "joint (1, 1e-6)"]
    assert [(row.world, row.seeds, row.users) for row in main] == [
        ("RiverSwim", 3, 200),
        ("dense S=6 #1001", 2, 200),
    ]
    assert main[0].epsilon_true == pytest.approx(1.0)
    assert main[0].share == pytest.approx(main[0].mean / main[0].uniform_regret)
    suite = {entry["budget"]: entry for entry in document["suite"]}["joint (1, 1e-6)"]
    assert suite["geometric_mean"]["estimate"] == pytest.approx(math.sqrt(main[0].share * main[1].share))
    page = (tmp_path / "README.md").read_text()
    for line in ("# The price of privacy", "| joint pure 1 |", "## Users until", "## Learner or mechanism?"):
        assert line in page
    assert all(
        table[0] and len({len(line) for line in table}) == 1 for _, table in price_pages.summary(study)
    )
    tuned = study.rows["tuned"]
    assert [row.seeds for row in tuned] == [3] * len(price.TARGETS)
    assert all(row.options["learner.priv_scale"] in (0.1, 0.2) for row in tuned)

    written: list[int] = []
    monkeypatch.setattr(RunFolder, "write", lambda self, run: written.append(run.run))
    again = price.measured(tmp_path, TINY, 1)
    assert not written  # every seed was there
    assert json.dumps(again.to_json()) == json.dumps(study.to_json())
    monkeypatch.undo()

    folder = next(iter((tmp_path / "runs").iterdir()))
    lost = next(iter((folder / "seeds").iterdir()))
    content = lost.read_bytes()
    lost.unlink()  # as if interrupted: that seed alone is run again
    more = price.measured(tmp_path, TINY, 1)
    assert json.dumps(more.to_json()) == json.dumps(study.to_json())
    assert len(lost.read_bytes()) == pytest.approx(len(content), abs=64)


def test_bad_workers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="workers = 0"):
        price.measured(tmp_path, TINY, 0)


def test_an_interrupted_study_stops(tmp_path: Path) -> None:
    def fail(number: int, runs: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        price.measured(tmp_path, replace(TINY, grid=None), 1, fail)
