"""Before spending: how likely half of the people will show a linear policy to be better."""

import dataclasses
import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from discreet.accounting import budget
from discreet.cli import app
from discreet.core.layout import Layout
from discreet.core.rng import Secure, Seeded
from discreet.core.trajectories import Trajectories
from discreet.data.schema import Schema, write_schema
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.learners.offline.linear_pevi import DPPEVI, DPVAPVI, PEVI, schema_features
from discreet.mechanisms.features import Features
from discreet.mechanisms.policy_rows import policy_rows
from discreet.pipeline import linear_power_analysis as power

DRAW = np.random.default_rng(8)
TABLE = DRAW.dirichlet(np.full(3, 0.4), (5, 3))
SCHEMA = Schema("ward", "patient", Layout(5, 3, 4), low=0.0, high=2.0, features=TABLE, feature_bound=1.0)
FEATURES = schema_features(SCHEMA.layout, TABLE, 1.0, nonneg=True)
WORLD = power.synthetic_linear_mdp_from_schema(SCHEMA, FEATURES, 0.8, seed=1)


def test_a_made_up_world_is_linear_and_has_the_gain_that_was_asked_for():
    assert pytest.approx(0.8, rel=1e-6) == WORLD.best
    assert power.nonlinear(WORLD.mdp, FEATURES) == 0.0
    assert power.nonlinear(WORLD.mdp, Features(TABLE[:, :, :2], 1.0)) > 0.01
    with pytest.raises(ValueError, match="features: must be mixtures"):
        power.synthetic_linear_mdp_from_schema(SCHEMA, Features(0.5 * TABLE), 0.8)
    with pytest.raises(ValueError, match="target_gain = 7.9: must be smaller"):
        power.synthetic_linear_mdp_from_schema(SCHEMA, FEATURES, 7.9)
    ended = dataclasses.replace(SCHEMA, terminal=(4,))
    with pytest.raises(ValueError, match="terminal: a world with ends is generated for one-hot"):
        power.synthetic_linear_mdp_from_schema(ended, FEATURES, 0.8)


def test_with_ends_and_one_hot_features_a_world_is_made_up_too():
    ended = Schema("ward", "patient", Layout(5, 2, 3), terminal=(3, 4), high=2.0, outcomes={4: 2.0})
    world, features = power.made_up(ended, schema_features(ended.layout), 0.3)
    assert world.best == pytest.approx(0.3, rel=1e-3)
    assert power.nonlinear(world.mdp, features) == 0.0
    found = power.linear_gain_power(world, features, PEVI(), 20_000, draws=3)
    assert found.chance == found.better == 1.0
    assert found.gain <= found.best * (1 + 1e-9)


def test_more_people_and_more_budget_show_more():
    learner = DPPEVI(epsilon=3.0, delta=1e-6)
    few, many = (power.linear_gain_power(WORLD, FEATURES, learner, n, draws=8) for n in (500, 20_000))
    assert few.chance < 0.3 < 0.8 < many.chance
    assert 0.0 <= few.low <= few.chance <= few.high <= many.high == 1.0
    assert many.better == 1.0
    assert few.gain < many.gain <= many.best == WORLD.best
    assert power.linear_gain_power(WORLD, FEATURES, learner, 500, draws=8) == few
    exact = power.linear_gain_power(WORLD, FEATURES, PEVI(), 5_000, draws=4)
    assert exact.epsilon is None
    assert exact.chance == 1.0
    needed = power.linear_sample_size(WORLD, FEATURES, PEVI(), draws=6)
    assert needed is not None
    assert needed < 5_000
    found = power.linear_smallest_epsilon(WORLD, FEATURES, learner, 20_000, (0.01, 3.0), draws=6)
    assert found == 3.0


def test_noise_is_that_of_the_systems_source():
    """The scales that ``learn`` draws with are those of the forecast."""
    for learner in (DPPEVI(epsilon=2.0, delta=1e-6, judged=True), DPVAPVI(epsilon=2.0, delta=1e-6)):
        drawn = learner.open(WORLD.mdp.layout, FEATURES, Secure())
        played = power._as_drawn(learner).open(WORLD.mdp.layout, FEATURES, Seeded(0))
        assert played.records[0].scales == pytest.approx(drawn.records[0].scales)
        assert played.guarantee.rho == pytest.approx(budget.zcdp_rho(2.0, 1e-6))


def test_reports_on_people_show_a_gain_as_often_as_is_forecast():
    """Exact noise and people of their own, 24 reports; 5 combined standard errors."""
    learner, draws = DPPEVI(epsilon=3.0, delta=1e-6, judged=True), 24
    told = power.linear_gain_power(WORLD, FEATURES, learner, 3_000, draws=draws)
    rows, shown = policy_rows(WORLD.mdp.layout, WORLD.behaviour), 0
    for draw in range(draws):
        people: Trajectories = rollout_batch(WORLD.mdp, rows, 3_000, 77, draw)
        with learner.open(WORLD.mdp.layout, FEATURES, Secure()) as session:
            session.submit_many(people)
            gain = learner.ask(session)[1].gain
        shown += gain is not None and gain.shown
    pooled = (told.chance * draws + shown + 1) / (2 * draws + 2)
    error = math.sqrt(2 * pooled * (1 - pooled) / draws)
    assert abs(told.chance - shown / draws) < 5 * error


def test_on_the_command_line(tmp_path):
    plain = dataclasses.replace(SCHEMA, features=None, layout=Layout(3, 2, 3))
    write_schema(plain, tmp_path / "S.toml")

    def call(*more):
        asked = ["power", "--schema", str(tmp_path / "S.toml"), "--learner", "dp-pevi", "--draws", "3"]
        done = CliRunner().invoke(app, [*asked, "--delta", "1e-6", *more])
        assert done.exit_code == 0, done.output
        return str(done.output)

    found = json.loads(call("--target-gain", "0.6", "--users", "6000", "--epsilon", "5", "--json"))
    assert [row["users"] for row in found["rows"]] == [2000, 6000, 18000]
    assert found["best"] == pytest.approx(0.6, rel=1e-6)
    assert found["rows"][-1]["chance"] == 1.0
    assert "policy truly better" in call("--target-gain", "0.6", "--epsilon", "10")
    done = CliRunner().invoke(
        app, ["power", "--schema", str(tmp_path / "S.toml"), "--learner", "dp-pevi", "--epsilon", "1",
              "--delta", "1e-6", "--users", "10", "--world", "riverswim"]
    )  # fmt: skip
    assert done.exit_code != 0
    assert "the schema's features" in f"{done.output} {done.exception}"
