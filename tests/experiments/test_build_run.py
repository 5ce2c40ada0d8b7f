"""Every learner with every privatizer, by default and with preset=paper: refusals in the user's words."""

import re
from itertools import product
from pathlib import Path

import pytest

import discreet as dr
from discreet import registry
from discreet.experiments import build_run
from discreet.experiments.run_config import RunConfig

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
PRIVATIZERS = {"none": {}, "central": BUDGET, "local": BUDGET, "shuffle": BUDGET}
PRIVATE = ("central", "local", "shuffle")
CONTEXTS = ("linear-bandit", "lin-ucb", "batched-lin-ucb", "lin-ts")
LINEAR = {
    "lsvi-ucb": "linear-mdp", "private-lsvi-ucb": "linear-mdp", "ucrl-vtr": "linear-mixture",
    "ucrl-vtr-plus": "linear-mixture", **dict.fromkeys(CONTEXTS, "shared-contexts"),
}  # fmt: skip
PRESETS = (None, "paper")
REFUSED = {
    *product(("psrl", "rlsvi"), PRIVATE, PRESETS),
    *product(LINEAR, ("shuffle",), PRESETS),
    *product(("joint", "dp-pg", "dp-npg"), ("local", "shuffle"), PRESETS),
    *product(("noise-aware", "joint", "dp-pg", "dp-npg"), ("central",), ("paper",)),
    *product(CONTEXTS, ("central", "local"), ("paper",)),
    ("lsvi-ucb", "local", "paper"), *product(("private-lsvi-ucb",), ("local",), PRESETS),
}  # fmt: skip
TYPED = re.compile(
    r"(privatizer|learner|preset|episodes|env)\b( =|:| with)|(release|response) = .*preset = 'paper'"
)


def cell(learner: str, privatizer: str, preset: str | None, episodes: int = 400) -> RunConfig:
    env = "heavy-riverswim" if learner.startswith("heavy-") else LINEAR.get(learner, "riverswim")
    options = {"horizon": 3} if "riverswim" in env else {}
    return RunConfig(
        env=env, env_options=options, learner=learner, privatizer=privatizer, preset=preset,
        episodes=episodes, **PRIVATIZERS[privatizer],
    )  # fmt: skip


@pytest.mark.parametrize("learner", [e.name for e in registry.entries("learner") if e.plugin is None])
def test_refusals_name_what_was_typed(learner: str) -> None:
    for privatizer, preset in product(PRIVATIZERS, PRESETS):
        try:
            build_run.prepare(build_run.resolved(cell(learner, privatizer, preset)))
        except ValueError as error:
            text = str(error)
            assert (learner, privatizer, preset) in REFUSED, text
            assert TYPED.match(text), text
            assert "must be" in text or "use '" in text, text  # and says what would do
        else:
            assert (learner, privatizer, preset) not in REFUSED


def test_too_few_users_are_episodes() -> None:
    with pytest.raises(ValueError, match=r"^episodes = 60: must be at least 361 users"):
        build_run.prepare(build_run.resolved(cell("sdp-pe", "none", None, 60)))


def test_a_prior_in_a_file(tmp_path: Path) -> None:
    """The table and the flat names are one configuration, which holds a hash of the prior's content."""
    path = tmp_path / "prior.csv"
    path.write_text("state,action,next,probability,reward\n0,0,0,1.0,0.5\n")
    tables = [
        {"learner": {"prior": {"file": str(path), "strength": 30}}},
        {"learner": {"prior": str(path), "prior_strength": 30.0}},
        {"prior": str(path), "prior_strength": "30"},
    ]
    found = [build_run.resolved(RunConfig(privatizer="none", options=options)) for options in tables]
    assert len({one.key for one in found}) == 1
    assert re.fullmatch(r".*prior\.csv#[0-9a-f]{16}", str(found[0].options["learner.prior"]))
    again = build_run.resolved(RunConfig.from_table(found[0].to_table()))
    assert again.key == found[0].key
    assert build_run.objects(again)[1].prior_strength == 30.0
    path.write_text("state,action,next,probability,reward\n0,0,0,1.0,0.25\n")
    with pytest.raises(ValueError, match="the file has changed"):
        build_run.resolved(found[0])
    with pytest.raises(ValueError, match="learner 'dp-ucbvi' has no prior; 'noise-aware' has one"):
        build_run.resolved(RunConfig(learner="dp-ucbvi", options={"prior": str(path)}))


def test_in_python() -> None:
    world = dr.make("riverswim", horizon=3)
    with pytest.raises(ValueError, match="^privatizer: must be 'central' .* clipped rewards"):
        dr.simulate(world, dr.JointPosterior(), dr.Local(epsilon=1.0), 60)
    with pytest.raises(ValueError, match=r"^release = 'tree' \(set by preset = 'paper'\): gives no measure"):
        dr.simulate(world, dr.NoiseAwareUCBVI(), dr.Central(epsilon=1.0, preset="paper"), 60)
    with pytest.raises(ValueError, match="^release = 'tree': gives no measure"):
        dr.simulate(world, dr.NoiseAwareUCBVI(), dr.Central(epsilon=1.0, release="tree"), 60)
    with pytest.raises(ValueError, match="^preset = 'paper': must be one of 'default'"):
        dr.NoiseAwareUCBVI(preset="paper")
