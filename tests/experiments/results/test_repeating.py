"""Results of Python objects: names that tell runs apart, files that repeat them, units of the environment."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import discreet as dr
from discreet import registry
from discreet.envs.mdp.tabular import RewardMap
from discreet.experiments import build_run
from discreet.experiments.labels import short_labels
from discreet.experiments.results import RunFolder
from discreet.experiments.run_config import RunConfig
from discreet.utils.toml_file import read_toml
from tests.helpers.commands import call

RIVER = {"horizon": 6}
GAUSSIAN = {"epsilon": 1.0, "delta": 1e-6}


def played(learner: Any, privatizer: Any, mdp: Any = None, **options: Any) -> dr.Result:
    world = dr.make("riverswim", **RIVER) if mdp is None else mdp
    return dr.simulate(world, learner, privatizer, **{"episodes": 60, "workers": 1, **options})


def test_labels_in_sweeps(tmp_path: Path) -> None:
    """A label of a sweep's part is that of its runs, and is no part of what identifies them."""
    table = {
        "env_options": RIVER, "learner": "dp-ucbvi", "episodes": 50, "privatizer": "central",
        "runs": [{"label": "ours", "epsilon": [1.0, 5.0]}, {"epsilon": 1.0, "options": {"bonus_scale": 0.3}}],
    }  # fmt: skip
    results = dr.sweep(table, tmp_path / "swept", workers=1)
    assert [r.label for r in results] == ["ours", "ours", "dp-ucbvi (bonus_scale=0.3)"]
    assert [r.label for r in dr.load_results([tmp_path / "swept"])] == [r.label for r in results]
    assert RunConfig(label="a").key == RunConfig(label="b").key
    assert RunConfig(label="a") == RunConfig(label="b")
    with pytest.raises(ValueError, match=r"label = \['a', 'b'\]: must be a text of one line"):
        dr.sweep({**table, "label": ["a", "b"], "runs": [{}]})


def test_the_command_line_names_a_run(tmp_path: Path) -> None:
    base = ["run", "--episodes", "50", "--learner", "dp-ucbvi", "--out", str(tmp_path / "a"), "--json"]
    assert json.loads(call(*base, "--label", "ours").stdout)["label"] == "ours"
    assert dr.Result.load(tmp_path / "a").label == "ours"
    call(*base, "--seeds", "2")  # more seeds in the same folder: the name stays
    assert dr.Result.load(tmp_path / "a").label == "ours"
    call(*base, "--label", "theirs")
    loaded = dr.Result.load(tmp_path / "a")
    assert (loaded.label, len(loaded.runs)) == ("theirs", 2)
    assert read_toml(tmp_path / "a" / "config.toml")["seeds"] == 2


@pytest.mark.parametrize(
    ("learner", "privatizer"),
    [
        (dr.DPUCBVI(bonus_scale=0.2, replan_growth=1.3), dr.Central(epsilon=1.0, release="tree")),
        (dr.learners.PrivateUCBVI(preset="paper"), dr.Central(epsilon=1.0)),
        (dr.learners.PrivateUCBVI(preset="paper"), dr.Local(epsilon=2.0, preset="paper")),
        (dr.learners.PrivateUCBVI(), dr.Central(epsilon=2.0, preset="paper")),
        (dr.learners.UCBVI(bonus="bernstein", preset="theory"), dr.NoPrivacy()),
        (dr.NoiseAwareUCBVI(), dr.Central(**GAUSSIAN)),
        (dr.NoiseAwareUCBVI(), dr.Shuffle(epsilon=1.0, delta=1e-6)),
        (dr.learners.PUCB(), dr.Local(epsilon=1.0)),
    ],
)
def test_a_saved_result_repeats(learner: Any, privatizer: Any, tmp_path: Path) -> None:
    """``discreet run DIR/config.toml``: the same numbers to the last bit, and the same guarantee."""
    result = played(learner, privatizer, seeds=2, seed=3)
    result.save(tmp_path / "saved")
    call("run", tmp_path / "saved" / "config.toml", "--out", tmp_path / "again", "--workers", 1)
    loaded = dr.Result.load(tmp_path / "again")
    assert np.array_equal(loaded.regret, result.regret)
    assert np.array_equal(loaded.gap_regret, result.gap_regret)
    assert loaded.guarantee == result.guarantee
    assert loaded.environment == result.environment == "riverswim (horizon=6)"
    mdp, own, ours = build_run.objects(
        build_run.resolved(RunConfig.from_toml(tmp_path / "saved/config.toml"))
    )
    assert (own, ours) == (learner, privatizer)
    assert mdp.horizon == 6
    # and the folder itself is taken up: nothing is done twice
    call("run", tmp_path / "saved" / "config.toml", "--out", tmp_path / "saved", "--workers", 1)


def test_every_registered_pair_has_a_configuration() -> None:
    """Each name's default object is found under its own name again, with no options."""
    for found in (*registry.entries("learner"), *registry.entries("privatizer")):
        if found.plugin is not None:
            continue
        budget = {"epsilon": 1.0} if found.kind == "privatizer" and found.name != "none" else {}
        if found.name == "shuffle":
            budget["delta"] = 1e-6
        for preset in (None, *registry.presets_of(found.factory(), found.fixed)):
            try:
                made = registry.build(found.kind, found.name, preset, budget)
            except ValueError:
                continue
            named = registry.named(found.kind, made)
            assert named is not None, found.name
            assert (named.name, dict(named.options)) == (found.name, budget)
            assert (named.preset or "default") == (preset or "default")


@dataclass(frozen=True)
class Own(dr.DPUCBVI):
    """A learner of somebody's own."""


def test_what_no_file_repeats_says_so(tmp_path: Path) -> None:
    """Objects without a name: the file says it, the refusal names the part and what to do."""
    world = dr.make("riverswim", **RIVER)
    cases = {
        "learner": played(Own(), dr.NoPrivacy()),
        "environment": played(dr.DPUCBVI(), dr.NoPrivacy(), dr.TabularMDP(*river_tables(world), horizon=6)),
    }
    for part, result in cases.items():
        result.save(tmp_path / part)
        text = (tmp_path / part / "config.toml").read_text()
        assert f"This file does not repeat the run: its {part} has no name" in text
        refused = call("run", tmp_path / part / "config.toml", code=2)
        assert f"its {part} has no name" in " ".join(refused.stderr.split())
        assert "discreet.register" in " ".join(refused.stderr.split())
        result.save(tmp_path / part)  # the same run again
    assert cases["learner"].label == "Own"
    labels = short_labels([cases["learner"], played(Own(bonus_scale=0.7), dr.NoPrivacy())])[0]
    assert labels[0] != labels[1]
    assert "bonus_scale=0.7" in labels[1]


def river_tables(world: dr.TabularMDP) -> tuple[Any, Any]:
    return world.transitions[0], world.rewards[0]


def test_the_frame_has_privacy_preset_and_options() -> None:
    pytest.importorskip("pandas")
    result = played(dr.DPUCBVI(preset="theory", bonus_scale=0.2), dr.Central(**GAUSSIAN))
    row = result.to_pandas().iloc[-1]
    assert (row["preset"], row["options"]) == ("theory", "bonus_scale=0.2")
    assert (row["epsilon"], row["delta"]) == (result.guarantee.epsilon, result.guarantee.delta)
    assert row["label"] == result.label
    exact = played(dr.DPUCBVI(), dr.NoPrivacy()).to_pandas()
    assert exact["delta"].isna().all()


def rescaled() -> dr.TabularMDP:
    """Original rewards in [-1, 3]: mapped = 1/4 + original / 4."""
    plain = dr.make("riverswim", **RIVER)
    return dr.TabularMDP(*river_tables(plain), horizon=6, reward_map=RewardMap(0.25, 0.25), name="mapped")


def test_regret_is_in_the_units_of_the_environment(tmp_path: Path) -> None:
    """All that a person reads is four times the regret of rewards mapped by 1/4; files keep the bits."""
    mdp = rescaled()
    result = played(dr.DPUCBVI(), dr.NoPrivacy(), mdp, seeds=3)
    raw = dr.experiments.Setup(mdp, dr.DPUCBVI(), dr.NoPrivacy(), 60).run(0, 0)
    assert result.final_regret[0] == pytest.approx(4 * raw.regret[-1], rel=1e-12)
    best = float(mdp.initial @ dr.envs.optimal_values(mdp)[0][0])
    assert result.optimal_value == pytest.approx(4 * best - 6, rel=1e-12)  # six steps, each 1 too high
    assert result.uniform_regret == pytest.approx(60 * (result.optimal_value - result.uniform_value))
    assert result.summary().mean.estimate == pytest.approx(result.final_regret.mean())
    figure = result.plot()
    assert figure.axes[0].get_ylabel() == "cumulative regret (in the environment's units of reward)"
    assert figure.axes[0].lines[0].get_ydata()[-1] == pytest.approx(result.final_regret.mean())
    result.save(tmp_path / "one")
    loaded = dr.Result.load(tmp_path / "one")
    assert np.array_equal(loaded.regret, result.regret)
    assert np.array_equal(RunFolder(tmp_path / "one").read(0).regret, raw.regret)
    loaded.save(tmp_path / "two")
    assert np.array_equal(dr.Result.load(tmp_path / "two").regret, result.regret)


def test_gymnasium_regret_is_in_the_rewards_of_gymnasium() -> None:
    """CliffWalking pays -1 and -100: the best path of 13 steps is worth -13."""
    pytest.importorskip("gymnasium")
    mdp = dr.make("gym:CliffWalking-v1", horizon=30)
    result = played(dr.DPUCBVI(), dr.NoPrivacy(), mdp, episodes=20)
    assert result.optimal_value == pytest.approx(-13, abs=1e-9)
    assert result.config["env"] == "gym:CliffWalking-v1"
    assert result.uniform_regret == pytest.approx(20 * (-13 - result.uniform_value), rel=1e-12)
    assert result.final_regret[0] > 100  # twenty people fall off a cliff that costs 100


def test_results_of_two_worlds_of_one_name_are_not_paired(make_result: Callable[..., dr.Result]) -> None:
    with pytest.raises(ValueError, match=r"other.optimal_value = 4.0: must be 3.0"):
        make_result().paired(make_result(optimal_value=4.0))
