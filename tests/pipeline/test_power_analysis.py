"""Before spending: how likely a gain is shown, how many people or which epsilon it takes."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import discreet as dr
from discreet.cli import app
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.data.schema import Schema, write_schema
from discreet.envs.mdp.tabular import TabularMDP
from discreet.experiments.offline_runs import SimulatedDataset, first_visits_of
from discreet.learners.ope import deviation_gains as deviations
from discreet.learners.ope import transition_gains as transitions
from discreet.learners.ope.first_visit_query import VisitSums
from discreet.mechanisms.interfaces import ReturnBounds
from discreet.pipeline import power_analysis as power

SCHEMA = Schema(
    "clinic", "patient", Layout(8, 3, 10), stationary=True, terminal=(6, 7), low=0.0, high=20.0,
    outcomes={7: 20.0},
)  # fmt: skip


def small_world() -> power.PublicMDP:
    """Four live states that are come back to, rewards in [-1, 2], behaviour that changes by step."""
    draw = np.random.default_rng(5)
    moves = np.zeros((5, 2, 5))
    moves[:4] = draw.dirichlet(np.ones(5), (4, 2))
    moves[4, :, 4] = 1.0
    rewards = np.where(np.arange(5)[:, None] < 4, draw.random((5, 2)), 1 / 3)
    mdp = TabularMDP(moves, rewards, np.array([0.5, 0.3, 0.2, 0.0, 0.0]), horizon=6, terminal=(4,))
    return power.PublicMDP(
        mdp, draw.dirichlet(np.ones(2), (6, 5)), ReturnBounds(-1.0, 2.0, terminal=(4,), least=-4.0, most=9.0)
    )


def test_expected_sums_are_those_of_people() -> None:
    """Played people against dynamic programming. False alarm 1e-7: 6 deviations, some 70 cells."""
    world, people = small_world(), 40_000
    kept = first_visits_of(
        SimulatedDataset(world.mdp, world.behaviour, people, seed=3),
        world.question,
        dr.NoPrivacy(),
        Seeded(0),
    )
    told = world.question.read(kept)
    visits, moves, mean = world._expected
    cells = people * visits[:, None] * moves
    for found, wanted in ((told.visits, people * visits), (told.moves, cells)):
        assert (np.abs(found - wanted) <= 6.0 * np.sqrt(wanted + 1.0)).all()
    wanted = people * visits * (mean - 0.5)
    assert (np.abs(told.returns - wanted) <= 6.0 * np.sqrt(people * visits * 0.25 + 1.0)).all()
    # the behaviour's value is that of the start state, in the units of the return
    start = mean[world.question.layout.row_index[5, 0]]
    assert -4.0 + 13.0 * start == pytest.approx(-6.0 + 3.0 * world.usual, abs=1.0)


def test_drawn_releases_have_these_expectations_and_this_noise() -> None:
    world = small_world()
    scales = {"visits": 4.0, "transition_counts": 4.0, "centered_reward_sums": 2.0}
    draws: list[VisitSums] = [world.draw_release(5_000, scales, np.random.default_rng(i)) for i in range(300)]
    visits, moves, mean = world._expected
    for name, wanted, spread in (
        ("visits", 5e3 * visits, 5e3 * visits + 16.0),
        ("moves", 5e3 * visits[:, None] * moves, 5e3 * visits[:, None] * moves + 16.0),
        ("returns", 5e3 * visits * (mean - 0.5), 5e3 * visits * 0.25 + 4.0),
    ):
        table = np.array([getattr(one, name) for one in draws])
        assert (np.abs(table.mean(axis=0) - wanted) < 6.0 * np.sqrt(spread / 300)).all()
        assert table.var(axis=0).mean() == pytest.approx(spread.mean(), rel=0.1)


@pytest.mark.parametrize("gain", [0.02, 0.2, 1.0, 3.0])
def test_a_made_up_world_has_any_gain_that_was_asked_for(gain: float) -> None:
    """Small ones too: then actions differ less in where they lead."""
    world = power.synthetic_mdp(SCHEMA, gain, seed=1)
    assert world.best == pytest.approx(gain, rel=1e-3)


def test_a_made_up_world_has_the_gain_that_was_asked_for() -> None:
    world = power.synthetic_mdp(SCHEMA, 1.5, seed=2)
    assert world.best == pytest.approx(1.5, rel=1e-4)
    assert world.mdp.states == 8
    assert world.question.bounds == (0.0, 20.0)
    assert power.synthetic_mdp(SCHEMA, 1.5, seed=2).usual == world.usual
    with pytest.raises(ValueError, match="target_gain = 25.0: must be a number in"):
        power.synthetic_mdp(SCHEMA, 25.0)
    with pytest.raises(ValueError, match="target_gain = 19.9: must be smaller"):
        power.synthetic_mdp(SCHEMA, 19.9)
    with pytest.raises(ValueError, match="target_gain: must be left out with censored ends"):
        power.synthetic_mdp(replace(SCHEMA, censored=6), 1.5)


def test_more_people_and_more_budget_show_more() -> None:
    world = power.synthetic_mdp(SCHEMA, 2.0)
    one = dr.Central(epsilon=1.0, delta=1e-6)
    few, many = (power.gain_power(world, n, one, draws=30) for n in (500, 100_000))
    assert few.chance < 0.3 < 0.95 < many.chance
    assert 0.0 <= few.low <= few.chance <= few.high <= many.high == 1.0
    assert few.gain < many.gain <= many.best * (1 + 1e-9)
    assert power.gain_power(world, 500, one, draws=30) == few  # public, from a seed
    exact = power.gain_power(world, 100_000, dr.NoPrivacy(), draws=5)
    assert exact.epsilon is None
    needed = power.sample_size(world, one, draws=20)
    assert needed is not None
    assert 500 < needed < 100_000
    assert power.gain_power(world, 2 * needed, one, draws=20).chance >= 0.9
    assert power.smallest_epsilon(world, 3 * needed, 1e-6, draws=20) in (0.2, 0.3, 0.5, 1.0)
    assert power.smallest_epsilon(world, 100, 1e-6, draws=5) is None


def test_on_the_command_line(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "S.toml"
    write_schema(SCHEMA, path)

    def call(*more: str) -> str:
        asked = ["power", "--schema", str(path), "--delta", "1e-6", "--draws", "5", *more]
        done = CliRunner().invoke(app, asked)
        assert done.exit_code == 0, done.output
        return str(done.output)

    found = json.loads(call("--target-gain", "4", "--users", "40000", "--epsilon", "2", "--json"))
    assert [row["users"] for row in found["rows"]] == [13333, 40000, 120000]
    assert found["rows"][-1]["chance"] == 1.0
    assert "chance that a gain is shown" in call("--target-gain", "3", "--users", "20000")
    assert "users" in call("--target-gain", "3", "--epsilon", "5")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--target-gain", "1", "--world", "riverswim", "--users", "5"], "give either"),
        (["--target-gain", "1"], "users is missing"),
        (["--target-gain", "1", "--rho", "1", "--users", "5"], "--rho"),
        (["--world", "switching-chain", "--users", "5", "--epsilon", "1"], "same at every step"),
    ],
    ids=str,
)
def test_what_cannot_be_asked(given: list[str], message: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "S.toml"
    write_schema(SCHEMA, path)
    done = CliRunner().invoke(app, ["power", "--schema", str(path), *given])
    assert done.exit_code != 0
    assert message in f"{done.output} {done.exception}"


def test_what_counts_as_shown_is_what_the_report_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """By returns, too, where later visits that noise hides widen the interval."""
    world, scales = (
        small_world(),
        dict.fromkeys(("visits", "transition_counts", "centered_reward_sums"), 15.0),
    )
    shown = 0
    for i in range(12):
        path = deviations.path_of(world.draw_release(1500, scales, np.random.default_rng(i)))
        if path.default:
            assert path.clear(path.default) == path.gain(path.default).shown
            if path.clear(path.default):
                shown += 1
                hidden = [(1.0, 0.6, 0.0)]  # the factor of later visits may as well be below 0
                with monkeypatch.context() as patch:
                    patch.setattr(type(path), "_revisits", lambda *_, found=hidden: found)
                    assert not path.clear(path.default)
    assert shown


@pytest.mark.parametrize("people", [800, 2500])
def test_reports_on_people_show_a_gain_as_often_as_is_forecast(people: int) -> None:
    """Played people, noise of their own, 60 releases: 5 combined standard errors (false alarm 6e-7)."""
    world, draws = power.synthetic_mdp(SCHEMA, 4.0, seed=3), 60
    privatizer = dr.Central(epsilon=3.0, delta=1e-6)
    told = power.gain_power(world, people, privatizer, draws=draws)
    shown = 0
    for draw in range(draws):
        data = SimulatedDataset(world.mdp, world.behaviour, people, seed=500 + draw)
        kept = first_visits_of(data, world.question, privatizer, Seeded(draw))
        path = transitions.path_of(world.question.read(kept))
        shown += path.gain(path.default).shown
    pooled = (told.chance * draws + shown + 1) / (2 * draws + 2)
    assert abs(told.chance - shown / draws) < 5 * np.sqrt(2 * pooled * (1 - pooled) / draws)
