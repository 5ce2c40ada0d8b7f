"""Tuning: equal effort, never worse than the default in training, resumable, and apart from reports."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import discreet as dr
from discreet import registry
from discreet.experiments import build_run, simulate
from discreet.experiments.run_config import RunConfig
from discreet.experiments.search_space import search_space
from discreet.experiments.sweep import Sweep
from discreet.experiments.training_worlds import CONTEXT_WORLDS, TRAINING_WORLDS
from discreet.experiments.tuning import Trial, Tuning, _same_public, _trial, mark_of, tune, worlds_of
from discreet.utils.toml_file import read_toml, to_toml

WORLDS = [
    {"env": "random", "env_options": {"states": 3, "horizon": 4, "seed": 1}},
    {"name": "two arms", "env": "bandit", "env_options": {"actions": 2, "horizon": 3, "seed": 2}},
]
SMALL: dict[str, Any] = {
    "worlds": WORLDS, "users": 60, "trials": 4, "seeds": 2, "workers": 1, "options": {"replan_growth": 1.5},
}  # fmt: skip
ALL_BUT_ONE = {"prior_visits": 0.03, "prior_rewards": 0.1}
PRIVATE = {"epsilon": 1.0, "delta": 1e-6}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tuning, Path]:
    out = tmp_path_factory.mktemp("tuning")
    return tune("dp-ucbvi", "central", **PRIVATE, **SMALL, out=out), out


def test_trial_0_is_the_default_and_the_best_is_no_worse(done: tuple[Tuning, Path]) -> None:
    found, _ = done
    assert [one.number for one in found.trials] == [0, 1, 2, 3]
    assert found.trials[0].options == {}
    assert found.best.score == min(one.score for one in found.trials) <= found.trials[0].score
    assert found.effort == {
        "trials": 4, "worlds": 2, "seeds": 2, "users": 60, "simulated_runs": 16, "simulated_users": 960,
    }  # fmt: skip
    assert [one.name for one in found.worlds] == ["random horizon=4 seed=1 states=3", "two arms"]


def test_the_score_is_the_geometric_mean_of_regret_over_uniform_plays(done: tuple[Tuning, Path]) -> None:
    found, _ = done
    trial, shares = found.trials[2], []
    for world in WORLDS:
        mdp = dr.make(world["env"], **world["env_options"])  # type: ignore[arg-type]
        learner = dr.DPUCBVI(replan_growth=1.5, **trial.options)
        result = dr.simulate(mdp, learner, dr.Central(**PRIVATE), 60, seeds=2, seed=31, workers=1)
        shares.append(result.final_regret.mean() / result.uniform_regret)
    assert trial.shares == pytest.approx(shares, rel=1e-12)
    assert trial.score == pytest.approx(np.exp(np.mean(np.log(shares))), rel=1e-12)


def test_a_share_of_0_counts_as_1e_5_and_ties_go_to_the_default(done: tuple[Tuning, Path]) -> None:
    assert Trial(0, {}, (0.0, 0.1)).score == pytest.approx(1e-3)
    same = tuple(Trial(i, {}, (0.5, 0.5)) for i in range(3))
    assert Tuning(done[0].config, done[0].worlds, {}, same).best.number == 0


def test_a_tuning_continues_and_grows(done: tuple[Tuning, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    found, out = done
    ran: list[tuple[str, int]] = []
    real = simulate.iterate_runs

    def listening(setup: Any, seed: int, runs: Any, *rest: Any, **named: Any) -> Any:
        ran.extend((setup.mdp.name, run) for run in runs)
        return real(setup, seed, runs, *rest, **named)

    monkeypatch.setattr(simulate, "iterate_runs", listening)
    assert tune("dp-ucbvi", "central", **PRIVATE, **SMALL, out=out) == found
    assert ran == []
    more = tune("dp-ucbvi", "central", **PRIVATE, **{**SMALL, "trials": 5}, out=out)
    assert more.trials[:4] == found.trials
    assert len(ran) == 4  # two worlds, two seeds
    tune("dp-ucbvi", "central", **PRIVATE, **SMALL, out=out)


def test_objects_engines_and_made_worlds_give_the_same(done: tuple[Tuning, Path]) -> None:
    found, _ = done
    worlds = [WORLDS[0], dr.make("bandit", actions=2, horizon=3, seed=2)]
    calls: set[int] = set()
    with ThreadPoolExecutor(1) as pool:
        again = tune(
            dr.DPUCBVI(replan_growth=1.5), dr.Central(**PRIVATE), worlds=worlds, users=60, trials=4, seeds=2,
            executor=pool, progress=lambda run, users: calls.add(run),
        )  # fmt: skip
    assert again.trials == found.trials
    assert found.options.items() <= again.options.items()  # the object also states replan_every
    assert calls == {*range(16)}
    assert tune("dp-ucbvi", "central", **PRIVATE, **SMALL, seed=7).trials != found.trials


def test_the_file_is_a_configuration_and_is_read_again(done: tuple[Tuning, Path]) -> None:
    found, out = done
    path = out / "tuning.toml"
    assert Tuning.load(path) == found
    config = build_run.resolved(RunConfig.from_toml(path))
    assert (config.learner, config.privatizer, config.epsilon) == ("dp-ucbvi", "central", 1.0)
    assert dict(config.options) == found.options
    assert (config.env, config.seed) == (RunConfig.env, RunConfig.seed)  # those of the report
    json.dumps(found.to_dict(), allow_nan=False)
    (run,) = Sweep.from_toml(path).runs
    assert build_run.resolved(run) == config


def test_runs_and_sweeps_name_a_tuning(done: tuple[Tuning, Path], tmp_path: Path) -> None:
    found, out = done
    (tmp_path / "tuned.toml").write_bytes((out / "tuning.toml").read_bytes())
    (tmp_path / "run.toml").write_text('tuning = "tuned.toml"\n[options]\nlearner.replan_growth = 2.0\n')
    config = RunConfig.from_toml(tmp_path / "run.toml")
    assert (config.learner, config.privatizer) == ("dp-ucbvi", "none")
    assert dict(config.options) == {**found.options, "learner.replan_growth": 2.0}
    (tmp_path / "sweep.toml").write_text(
        'privatizer = "central"\nepsilon = [1.0, 10.0]\n[[runs]]\ntuning = "tuned.toml"\n'
        '[[runs]]\nlearner = "psrl"\nprivatizer = "none"\n'
    )
    plan = Sweep.from_toml(tmp_path / "sweep.toml").runs
    assert [(one.learner, one.epsilon) for one in plan[:3]] == [
        ("dp-ucbvi", 1.0), ("dp-ucbvi", 10.0), ("psrl", 1.0)
    ]  # fmt: skip
    assert dict(plan[0].options) == found.options
    for text, words in (
        ('tuning = "run.toml"', "tuning = 'run.toml': must be a file of `discreet tune`"),
        ("tuning = 3", "tuning = 3: must be the path of a file of `discreet tune`"),
        ('learner = "psrl"\ntuning = "tuned.toml"', "learner = 'psrl': must be 'dp-ucbvi', as in tuned.toml"),
        ('tuning = "none.toml"', "none.toml: must be a readable TOML file"),
    ):
        (tmp_path / "bad.toml").write_text(text)
        with pytest.raises(ValueError, match=words):
            RunConfig.from_toml(tmp_path / "bad.toml")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "must be a file of `discreet tune`, with a table tuning of format 1"),
        ({"best": 9}, "the options must be those of the best trial, number "),
        ({"trials": 3}, "must have every trial, with one share for each environment"),
        ({"seeds": 0}, "seeds = 0: must be"),
    ],
)
def test_a_changed_file_is_refused(
    done: tuple[Tuning, Path], tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    table = read_toml(done[1] / "tuning.toml")
    table["tuning"] |= change
    (tmp_path / "changed.toml").write_text(to_toml(table))
    with pytest.raises(ValueError, match=words):
        Tuning.load(tmp_path / "changed.toml")


def test_options_of_another_trial_are_refused(done: tuple[Tuning, Path], tmp_path: Path) -> None:
    table = read_toml(done[1] / "tuning.toml")
    table["options"]["learner"]["bonus_scale"] = 2.5
    (tmp_path / "changed.toml").write_text(to_toml(table))
    with pytest.raises(ValueError, match="the options must be those of the best trial"):
        Tuning.load(tmp_path / "changed.toml")


def test_reports_are_kept_apart(done: tuple[Tuning, Path]) -> None:
    found, _ = done
    mine = dr.make("random", states=3, horizon=9, seed=1)  # another horizon is the same environment
    other = dr.make("random", states=3, horizon=4, seed=5)
    found.check_apart({"other": other}, [0, 32])
    with pytest.raises(ValueError, match="worlds = mine: must not be among the environments of the tuning"):
        found.check_apart({"other": other, "mine": mine}, [0])
    with pytest.raises(ValueError, match="seed = 31: must not be the seed of the tuning"):
        found.check_apart({"other": other}, range(30, 40))


def test_a_mark_sees_transitions_rewards_and_first_states() -> None:
    one = mark_of(dr.make("riverswim"))
    assert one == mark_of(dr.make("riverswim", rewards="bernoulli"))
    assert one != mark_of(dr.make("riverswim", states=7))
    marks = {mark_of(dr.make(env, **options)) for _, _, env, options in TRAINING_WORLDS}
    assert len(marks) == len(TRAINING_WORLDS) == 16


@pytest.mark.parametrize("learner", [one.name for one in registry.entries("learner") if one.plugin is None])
def test_draws_change_nothing_that_is_public(learner: str) -> None:
    """The sums, their times and the guarantee are those of the default in every trial."""
    private = learner not in ("psrl", "rlsvi")
    linear = {"ucrl-vtr": "linear-mixture", "ucrl-vtr-plus": "linear-mixture"}
    linear |= dict.fromkeys(("lsvi-ucb", "private-lsvi-ucb"), "linear-mdp")
    linear |= dict.fromkeys(("linear-bandit", "lin-ucb", "batched-lin-ucb", "lin-ts"), "shared-contexts")
    world = linear.get(learner, "random")
    options = {"seed": 1} if learner in linear else {"states": 2, "horizon": 2, "seed": 1}
    if learner.startswith("heavy-"):
        world, options = "heavy-riverswim", {"states": 2, "horizon": 2}
    config = build_run.resolved(
        RunConfig(
            env=world,
            env_options=options,
            learner=learner,
            episodes=500,
            seed=31,
            privatizer="central" if private else "none",
            epsilon=1.0 if private else None,
            delta=1e-6 if private else None,
        )
    )
    first = [build_run.prepare(config)]
    space = search_space(learner)
    drawn = [_trial([config], first, space, number, True) for number in range(1, 7)]
    assert any(options for options, _ in drawn)
    # nearly every draw is accepted at once: the tables leave out what would be refused
    plain = [_trial([config], first, space, number, False)[0] for number in range(1, 7)]
    assert plain == [options for options, _ in drawn]


def test_only_a_named_option_changes_the_times() -> None:
    def setup(growth: float) -> Any:
        table = {**WORLDS[0], "learner": "dp-ucbvi", "episodes": 60, "options": {"replan_growth": growth}}
        return build_run.prepare(build_run.resolved(RunConfig.from_table(table)))

    one, other = setup(1.5), setup(2.0)
    assert _same_public(one, one, True)
    assert not _same_public(one, other, True)
    assert _same_public(one, other, False)
    few = {**SMALL, "options": None, "trials": 2, "seeds": 1}
    found = tune("psrl", search={"replan_growth": (1.5, 2.0)}, **few)
    assert "replan_growth" in found.space


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"trials": 0}, "trials = 0: must be"),
        ({"worlds": []}, r"worlds = \[\]: must be at least one environment"),
        ({"worlds": ["bandit", "bandit"]}, "worlds: 'bandit' is there twice"),
        ({"worlds": [{"states": 3}]}, "worlds: 'states' is unknown"),
        ({"worlds": [{"name": "one"}]}, "worlds: env = None: must be the name of an environment"),
        ({"worlds": [object()]}, "must be a name in the registry, a mapping with env and env_options"),
        ({"epsilon": 1.0}, "epsilon = 1: privatizer 'none' takes no budget"),
        ({"options": {"bonus": 1}}, "option 'bonus': unknown"),
        (
            {"options": ALL_BUT_ONE, "search": {"samples": "0"}},
            "search: no options in these ranges were accepted in 200 draws",
        ),
    ],
)
def test_bad_arguments_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tune("psrl", **{**SMALL, "options": None, **change})


def test_a_learner_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="must be registered, or the name of a learner"):
        tune(object(), **SMALL)


def test_worlds_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "worlds.toml").write_text(to_toml({"worlds": WORLDS}))
    assert worlds_of(tmp_path / "worlds.toml") == worlds_of(WORLDS)
    assert [one.name for one in worlds_of(None)] == [name for _, name, *_ in TRAINING_WORLDS]


def test_tables_for_people(done: tuple[Tuning, Path]) -> None:
    found, _ = done
    frame = found.to_pandas()
    assert frame["score"].tolist() == [one.score for one in found.trials]
    assert frame["two arms"].tolist() == [one.shares[1] for one in found.trials]
    assert found.rows(1)[0][0] == str(found.best.number)
    assert "as given" in [row[2] for row in found.rows()]
    assert "<table>" in found._repr_html_()
    assert "dp-ucbvi: best of 4 trials is number" in str(found)


def test_worlds_of_contexts_have_marks_and_are_the_default_for_their_learners() -> None:
    found = tune("lin-ucb", "central", epsilon=1.0, delta=1e-6, users=60, trials=1, seeds=1, workers=1)
    assert [one.env for one in found.worlds] == [env for _, _, env, _ in CONTEXT_WORLDS]
    assert len({one.mark for one in found.worlds}) == len(CONTEXT_WORLDS)
    with pytest.raises(ValueError, match="worlds = one"):
        found.check_apart({"one": dr.make("fixed-arms", dimension=6, actions=12, seed=127)}, [1])
    found.check_apart({"one": dr.make("fixed-arms", dimension=6, actions=12, seed=5)}, [1])
