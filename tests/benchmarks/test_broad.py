"""The broad suite's rows: recomputed from single runs, not run twice; the share of not learning."""

import json
import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import discreet as dr
from benchmarks.leaderboard.env_suites import World
from benchmarks.studies import broad
from benchmarks.studies.broad import BUDGETS, Row, curves, line, measure, rows
from discreet.envs.mdp.planning import optimal_values
from discreet.experiments.simulate import Setup

WORLDS = [
    World("bandit", "bandit", "bandit", {"actions": 3, "horizon": 4, "seed": 5}),
    World("gamble", "gamble", "gamble", {"seed": 5}),
]
POOLED = World("pooled", "chain", "riverswim", {"states": 4, "horizon": 8}, pooled=True)
LEARNER = dr.NoiseAwareUCBVI()


@pytest.mark.parametrize("world", [*WORLDS, POOLED], ids=lambda world: world.name)
def test_a_row_is_what_single_runs_give(world: World) -> None:
    users, seeds, seed, budget = 1200, 5, 77, "(10, 1e-6)"
    learner = dr.NoiseAwareUCBVI(stationary=world.pooled)
    setup = Setup(world.build(), learner, BUDGETS[budget], users, "batch")
    runs = [setup.run(seed, i) for i in range(seeds)]
    lost = setup.optimal_value - setup.uniform_value
    final = np.array([run.regret[-1] for run in runs])
    late = final - [np.interp(900, [0, *run.episodes], [0, *run.regret]) for run in runs]
    shares, lates, _ = curves(world, LEARNER, BUDGETS[budget], users, range(seeds), seed)
    np.testing.assert_allclose(shares, final / (users * lost), rtol=1e-12)  # in the order of seeds
    np.testing.assert_allclose(lates, late / (300 * lost), rtol=1e-9, atol=1e-12)
    assert np.unique(final).size > 1
    row = measure(world, LEARNER, budget, users, seeds, seed)
    assert (row.world, row.kind, row.budget, row.users, row.seeds) == (
        world.name, world.kind, budget, users, seeds
    )  # fmt: skip
    assert row.regret == pytest.approx(final.mean())
    assert row.error == pytest.approx(final.std(ddof=1) / math.sqrt(seeds))
    assert (row.share, row.worst) == pytest.approx((shares.mean(), shares.max()))
    assert (row.late, row.late_worst) == pytest.approx((lates.mean(), lates.max()))
    assert row.late_error == pytest.approx(lates.std(ddof=1) / math.sqrt(seeds))
    assert row.seconds > 0


def test_a_pooled_world_is_run_with_pooled_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("discreet.learners.online.noise_aware._MOST_CELLS", 0)
    one = curves(POOLED, LEARNER, BUDGETS["none"], 500, range(3), 1)[0]
    other = curves(POOLED, dr.NoiseAwareUCBVI(stationary=True), BUDGETS["none"], 500, range(3), 1)[0]
    plain = World(POOLED.name, POOLED.kind, POOLED.env, POOLED.options)
    np.testing.assert_array_equal(one, other)
    assert (one != curves(plain, LEARNER, BUDGETS["none"], 500, range(3), 1)[0]).any()


def test_cells_that_are_in_the_file_are_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, asked = tmp_path / "deep" / "rows.jsonl", []
    inner = broad.measure

    def counted(world: World, learner: object, budget: str, users: int, *more: int) -> Row:
        asked.append((world.name, budget, users, more[0]))
        return inner(world, learner, budget, users, *more)

    monkeypatch.setattr(broad, "measure", counted)
    budgets, users = ["none", "(1, 1e-6)"], [100, 200]
    first = list(rows(LEARNER, WORLDS, budgets, users, 2, 3, out))
    cells = [(w.name, b, k, 2) for k in users for b in budgets for w in WORLDS]
    assert asked == cells == [(row.world, row.budget, row.users, row.seeds) for row in first]
    assert [Row(**json.loads(text)) for text in out.read_text().splitlines()] == first
    written = out.read_text()
    assert list(rows(LEARNER, WORLDS, budgets, users, 2, 3, out)) == first
    assert asked == cells
    assert out.read_text() == written
    # a run that was stopped: what is missing is run, and only that, and it is the same
    kept = written.splitlines(keepends=True)
    out.write_text("".join(kept[:3] + kept[4:]))
    again = list(rows(LEARNER, WORLDS, budgets, users, 2, 3, out))
    assert asked[len(cells) :] == [cells[3]]
    assert sorted(out.read_text().splitlines()[:-1]) == sorted(text.strip() for text in kept[:3] + kept[4:])
    for one, other in zip(first, again, strict=True):
        assert (one.regret, one.share, one.late) == (other.regret, other.share, other.late)
    # other numbers of seeds are other cells
    list(rows(LEARNER, WORLDS[:1], ["none"], [100], 3, 3, out))
    assert asked[-1] == ("bandit", "none", 100, 3)
    assert len(out.read_text().splitlines()) == len(cells) + 1


def test_without_a_file_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(list(rows(LEARNER, WORLDS[:1], ["none"], [50], 2, 3))) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("world", [WORLDS[0], POOLED], ids=lambda world: world.name)
def test_late_share_of_a_learner_that_never_learns_is_one(world: World) -> None:
    """A bonus above every cap leaves random ties: random policies, as good as the uniform one on average.

    16 000 independent policies of 5 users each, whose shares lie in [0, B]: by Hoeffding's inequality their
    mean is further than B sqrt(ln(2 / 1e-6) / 32 000) from 1 with a probability below 1e-6.
    """
    learner = dr.learners.UCBVI(bonus_scale=1e9, replan_every=20, tie_batches=4)
    shares, late, _ = curves(world, learner, BUDGETS["none"], 20_000, range(16), 11)
    setup = Setup(world.build(), learner, BUDGETS["none"], 20_000, "batch")
    mdp = setup.mdp
    assert (mdp.initial > 0).sum() == 1  # a policy's regret is exact
    worst = dr.TabularMDP(mdp.transitions, 1.0 - mdp.rewards, mdp.initial, horizon=mdp.horizon)
    least = mdp.horizon - float(mdp.initial @ optimal_values(worst)[0][0])
    most = (setup.optimal_value - least) / (setup.optimal_value - setup.uniform_value)
    assert abs(late.mean() - 1.0) < most * math.sqrt(math.log(2e6) / 32_000)
    assert abs(shares.mean() - 1.0) < most * math.sqrt(math.log(2e6) / (4 * 32_000))
    assert np.ptp(late) > 0


def test_a_line_of_the_table() -> None:
    row = Row(
        "w", "bandit", "none", 20_000, 2, 12345.6, 7.0, 0.5, 0.75, 0.001, 0.0005, 0.002, 1.0, "learner", 0
    )
    assert line(row) == "| w | none | 2e+04 | 12 346 ± 7 | 50.000% | 75.000% | 0.1000% | 0.2000% |"


def test_the_page_sums_up_every_row_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(world: str, users: int, share: float, late: float, seeds: int = 2, **other: object) -> Row:
        stated = {"budget": "none", "learner": repr(LEARNER), "seed": 9, **other}
        return Row(
            world=world, kind="k", users=users, seeds=seeds, regret=1.0, error=0.1, share=share,
            worst=2 * share, late=late, late_error=0.0, late_worst=3 * late, seconds=1.0, **stated,
        )  # fmt: skip

    stored = [
        made("gamble", 100, 0.04, 0.2),
        made("RiverSwim", 100, 0.01, 0.4),
        made("bandit", 100, 0.02, 0.1, seeds=8, budget="pure 10"),
        made("bandit", 100, 0.9, 0.9, learner="another"),
        made("bandit", 100, 0.9, 0.9, seed=8),
    ]
    out, page = tmp_path / "rows.jsonl", tmp_path / "page.md"
    out.write_text("".join(json.dumps(asdict(row)) + "\n" for row in stored) + '{"cut off')
    argv = ["broad", "--worlds", "no such world", "--seed", "9", "--out", str(out), "--page", str(page)]
    monkeypatch.setattr("sys.argv", argv)
    broad.main()
    lines = page.read_text().splitlines()
    # the geometric mean of .01 and .04 is .02; RiverSwim is the one world of the older list
    assert "| none | 100 | 1 % | 2 % | 30 % | 40 % (RiverSwim), 20 % (gamble) | 120 % (RiverSwim) |" in lines
    assert "| pure 10 | 100 | - | 2 % | 10 % | 10 % (bandit) | 30 % (bandit) |" in lines
    assert "| bandit | 2 % (4 %) | 10 % (30 %) |" in lines
    assert [text for text in lines if text.endswith("runs a cell.")] == ["2 runs a cell.", "8 runs a cell."]
    assert "90 %" not in page.read_text()
