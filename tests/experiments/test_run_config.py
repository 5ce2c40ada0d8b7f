import pickle
import tomllib
from pathlib import Path

import pytest

from discreet.experiments.run_config import MADE_BY, RunConfig, identity, made_by, table_key
from discreet.utils.toml_file import read_toml, to_toml

FULL = RunConfig(
    env="gym:FrozenLake-v1",
    learner="private-ucb-vi",
    privatizer="central",
    episodes=500,
    seeds=3,
    seed=7,
    epsilon=0.1,
    delta=1e-6,
    preset="paper",
    by="batch",
    plugins=("my_module",),
    env_options={"is_slippery": False, "map_name": 'a "quoted" näme\\'},
    options={"learner.bonus_scale": 0.1, "privatizer.weights": (0.5, 0.25, 0.25), "stationary": True},
)


@pytest.mark.parametrize("config", [RunConfig(), FULL])
def test_round_trip_through_toml(config: RunConfig, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config.to_table()), encoding="utf-8")
    assert RunConfig.from_toml(path) == config
    assert pickle.loads(pickle.dumps(config)) == config


def test_a_stored_configuration_with_versions_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(to_toml({**FULL.to_table(), MADE_BY: made_by()}), encoding="utf-8")
    assert RunConfig.from_toml(path) == FULL
    assert set(read_toml(path)[MADE_BY]) == {"discreet", "kernels", "python", "numpy", "numba"}


def test_nested_tables_are_dotted_options() -> None:
    table = tomllib.loads("[options]\nlearner.bonus_scale = 0.1\n[options.privatizer]\nnoise = 'laplace'")
    assert dict(RunConfig.from_table(table).options) == {
        "learner.bonus_scale": 0.1,
        "privatizer.noise": "laplace",
    }


def test_identity_leaves_out_the_number_of_seeds_only() -> None:
    assert RunConfig(seeds=3).key == RunConfig(seeds=30).key
    others = [
        RunConfig(seed=1), RunConfig(episodes=100), RunConfig(epsilon=1.0), RunConfig(by="batch"),
        RunConfig(options={"bonus_scale": 0.5}), RunConfig(env_options={"horizon": 5}),
        RunConfig(preset="paper"),
    ]  # fmt: skip
    assert len({RunConfig().key, *(config.key for config in others)}) == len(others) + 1


def test_identity_holds_the_compiled_code_and_no_other_version() -> None:
    table = RunConfig().to_table()
    here, newer = {"kernels": "a", "python": "3.11"}, {"kernels": "a", "python": "3.12"}
    assert identity({**table, MADE_BY: here}) == identity({**table, MADE_BY: newer})
    assert table_key({**table, MADE_BY: here}) != table_key({**table, MADE_BY: {"kernels": "b"}})


def test_name_is_readable_and_safe_for_a_folder() -> None:
    assert FULL.name == f"gym-FrozenLake-v1-private-ucb-vi-central-eps0.1-paper-{FULL.key}"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"episodes": 0}, "episodes = 0: must be an integer of at least 1"),
        ({"episodes": 2.5}, "episodes = 2.5"),
        ({"seeds": True}, "seeds = True"),
        ({"seed": -1}, "seed = -1"),
        ({"epsilon": "one"}, "epsilon = 'one'"),
        ({"epsilon": float("nan")}, "epsilon = nan"),
        ({"by": "magic"}, "by = 'magic': must be one of 'auto', 'episode', 'batch'"),
        ({"learner": ""}, "learner = ''"),
        ({"lerner": "x"}, "'lerner' is not a setting of a run: must be one of by, delta"),
        ({"epsilon": [1.0, 2.0]}, "discreet sweep"),
        ({"options": [1]}, "options"),
        ({"options": {"x": object()}}, "options.x"),
        ({"plugins": "my_module"}, "plugins = 'my_module'"),
    ],
)
def test_bad_settings_are_refused(table: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RunConfig.from_table(table)


def test_options_cannot_be_changed_afterwards() -> None:
    with pytest.raises(TypeError):
        FULL.options["x"] = 1  # type: ignore[index]
