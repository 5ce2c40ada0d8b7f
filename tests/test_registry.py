from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

import discreet as dr
from discreet import registry
from discreet.experiments import build_run
from discreet.experiments.run_config import RunConfig


@dataclass(frozen=True)
class Toy:
    """A learner that only has options.

    More words.
    """

    scale: float = 1.0
    steps: int | None = None
    greedy: bool = False
    cap: Literal["H", "H-h+1"] | None = None
    weights: tuple[float, ...] | None = None
    pair: tuple[int, float] | None = None
    mixed: float | str | None = None
    thing: Any = None
    shared: int = 0
    preset: str = "default"
    PRESETS: ClassVar[dict[str, Any]] = {"default": {}, "paper": {}}


@dataclass(frozen=True)
class ToyPrivatizer:
    """A privatizer that only has options."""

    epsilon: float
    delta: float | None = None
    noise: str = "laplace"
    shared: int = 0


def toy_world(
    size: int, *, rewards: Literal["deterministic", "bernoulli"] = "deterministic"
) -> tuple[int, str]:
    """A world of a size."""
    return size, rewards


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_added", {})
    dr.register("learner", "toy", Toy)
    dr.register("learner", "toy-greedy", Toy, greedy=True, fits="anything", baseline="toy")
    dr.register("privatizer", "toy-privatizer", ToyPrivatizer)
    dr.register("environment", "toy-world", toy_world)


@pytest.mark.parametrize(
    ("option", "given", "value"),
    [
        ("scale", "0.1", 0.1),
        ("scale", "1e-3", 1e-3),
        ("scale", 2, 2.0),
        ("steps", "7", 7),
        ("steps", "none", None),
        ("steps", None, None),
        ("greedy", "true", True),
        ("greedy", "No", False),
        ("greedy", True, True),
        ("cap", "H", "H"),
        ("weights", "0.5,0.25,0.25", (0.5, 0.25, 0.25)),
        ("weights", (0.5, 0.5), (0.5, 0.5)),
        ("weights", [1], (1.0,)),
        ("pair", "(3, 0.5)", (3, 0.5)),
        ("mixed", "2", 2.0),
        ("mixed", "e", "e"),
    ],
)
def test_options_are_typed_by_the_class(option: str, given: Any, value: Any) -> None:
    built = registry.build("learner", "toy", None, {option: given})
    assert getattr(built, option) == value
    assert type(getattr(built, option)) is type(value)


@pytest.mark.parametrize(
    ("option", "given", "message"),
    [
        ("scale", "much", "scale = 'much': must be a number"),
        ("scale", True, "scale = True: must be a number"),
        ("steps", "1.5", "steps = '1.5': must be an integer"),
        ("steps", 1.5, "steps = 1.5: must be an integer"),
        ("greedy", "maybe", "greedy = 'maybe': must be true or false"),
        ("greedy", 1, "greedy = 1: must be true or false"),
        ("cap", "h", "cap = 'h': must be 'H' or 'H-h\\+1'"),
        ("weights", "a,b", r"weights\[0\] = 'a': must be a number"),
        ("weights", 3, "weights = 3: must be a list of numbers"),
        ("pair", "1,2,3", "pair = '1,2,3': must have 2 entries"),
        ("typo", "1", "option 'typo': unknown to toy, which takes scale: number, steps: integer"),
    ],
)
def test_wrong_options_are_refused(option: str, given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        registry.build("learner", "toy", None, {option: given})


def test_names_bring_their_own_options_and_given_ones_win() -> None:
    assert registry.build("learner", "toy-greedy").greedy
    assert not registry.build("learner", "toy-greedy", None, {"greedy": "false"}).greedy


def test_unknown_names_end_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"did you mean 'dp-ucbvi'\?\); must be one of ucb-vi, .*toy"):
        registry.build("learner", "dp-ucbv")
    with pytest.raises(ValueError, match="environment = 'gym:'"):
        registry.entry("environment", "gym:")
    with pytest.raises(ValueError, match="kind = 'thing'"):
        registry.entry("thing", "x")  # type: ignore[arg-type]


def test_what_must_be_given_is_asked_for() -> None:
    with pytest.raises(
        ValueError, match="epsilon is missing: privatizer 'toy-privatizer' needs epsilon: number"
    ):
        registry.build("privatizer", "toy-privatizer")
    with pytest.raises(ValueError, match="size is missing"):
        dr.make("toy-world")
    assert dr.make("toy-world", size="3", rewards="bernoulli") == (3, "bernoulli")


def test_registering() -> None:
    entry = registry.entry("learner", "toy")
    assert (entry.summary, entry.plugin) == ("A learner that only has options.", __name__)
    assert registry.entry("learner", "toy-greedy").baseline == "toy"
    dr.register("learner", "toy", Toy)  # the same again: a module imported twice
    for kind, name, factory, message in [
        ("learner", "toy", ToyPrivatizer, "registered already"),
        ("learner", "ucb-vi", Toy, "registered already, by discreet"),
        ("pupil", "x", Toy, "kind = 'pupil'"),
        ("learner", "", Toy, "name = ''"),
        ("environment", "gym:Mine", toy_world, "gym:"),
        ("learner", "x", 3, "factory = 3"),
    ]:
        with pytest.raises(ValueError, match=message):
            dr.register(kind, name, factory)  # type: ignore[arg-type]


def test_built_in_names_are_those_of_the_documentation() -> None:
    names = {(e.kind, e.name) for e in registry.entries() if e.plugin is None}
    assert names == {
        *(("learner", n) for n in (
            "ucb-vi", "private-ucb-vi", "ucb-vi-bernstein", "dp-ucbvi", "oppo", "private-ucb-po", "pucb",
            "heavy-ucb-vi", "heavy-ucb-po",
            "ldp-obi", "noise-aware", "joint", "dp-pg", "dp-npg", "lsvi-ucb", "private-lsvi-ucb", "ucrl-vtr",
            "ucrl-vtr-plus", "linear-bandit", "lin-ucb", "batched-lin-ucb", "lin-ts",
            "sdp-pe", "apeve", "sdp-pe-om", "psrl", "rlsvi",
        )),
        *(
            ("offline learner", n)
            for n in (
                "dp-apvi", "apvi", "decision-points", "world-model", "linear-advantage",
                "dp-pevi", "dp-vapvi", "pevi", "vapvi",
            )
        ),
        *(("privatizer", n) for n in ("none", "central", "local", "shuffle")),
        *(("environment", n) for n in (
            "riverswim", "random", "icu-sepsis", "switching-chain", "combination-lock", "synthetic-linear",
                "bandit", "gamble", "heavy-riverswim",
                "linear-mixture", "hypercube", "linear-mdp", "wide-linear", "shared-contexts",
                "action-contexts", "fixed-arms", "gym:ID",
        )),
    }  # fmt: skip
    with pytest.raises(TypeError):
        registry._BUILT_IN[("learner", "x")] = registry.entry("learner", "toy")  # type: ignore[index]
    assert all(e.summary and len(e.summary) < 100 for e in registry.entries())


@pytest.mark.parametrize("kind_name", [(e.kind, e.name) for e in registry.entries() if e.plugin is None])
def test_every_name_leads_somewhere(kind_name: tuple[registry.Kind, str]) -> None:
    entry = registry.entry(*kind_name)
    takes = registry.options_of(entry.factory())
    assert set(entry.fixed) <= set(takes)
    said = {
        o.name: registry.describe(o.annotation) for o in takes.values() if o.name not in ("env_id", "prior")
    }
    assert {name for name, words in said.items() if "Python only" in words} <= {"release"}  # also a matrix
    assert not any(words.startswith("value") for words in said.values())


# ------------------------------------------------------------------------------- whole runs
def test_options_go_to_whoever_takes_them() -> None:
    assert build_run.route("toy", "toy-privatizer", {"scale": "0.5", "noise": "gaussian"}) == {
        "learner.scale": 0.5,
        "privatizer.noise": "gaussian",
    }
    assert build_run.route("toy", "toy-privatizer", {"privatizer.shared": "2"}) == {"privatizer.shared": 2}
    with pytest.raises(ValueError, match=r"write learner\.shared or privatizer\.shared"):
        build_run.route("toy", "toy-privatizer", {"shared": "1"})
    with pytest.raises(
        ValueError, match=r"unknown; the options are toy: scale: number, .*; toy-privatizer: noise"
    ):
        build_run.route("toy", "toy-privatizer", {"nothing": "1"})
    with pytest.raises(ValueError, match="unknown"):
        build_run.route("toy", "toy-privatizer", {"learner.noise": "laplace"})
    with pytest.raises(ValueError, match="flag of its own, --epsilon"):
        build_run.route("toy", "toy-privatizer", {"epsilon": "1"})
    with pytest.raises(ValueError, match="given twice"):
        build_run.route("toy", "toy-privatizer", {"scale": "1", "learner.scale": "2"})


def test_resolved_configurations_are_typed_and_claim_no_unused_budget() -> None:
    config = RunConfig(
        env="toy-world", learner="toy", privatizer="none", epsilon=1.0, delta=0.1,
        options={"scale": "0.5"}, env_options={"size": "3"},
    )  # fmt: skip
    resolved = build_run.resolved(config)
    assert resolved == build_run.resolved(resolved)
    assert dict(resolved.options) == {"learner.scale": 0.5}
    assert dict(resolved.env_options) == {"size": 3}
    assert (resolved.epsilon, resolved.delta) == (None, None)
    private = build_run.resolved(
        RunConfig(env="toy-world", learner="toy", privatizer="toy-privatizer", epsilon=1.0)
    )
    assert private.epsilon == 1.0


def test_presets_go_to_each_that_knows_them() -> None:
    config = build_run.resolved(
        RunConfig(
            env="toy-world",
            learner="toy",
            privatizer="toy-privatizer",
            epsilon=2.0,
            preset="paper",
            options={"scale": 3.0},
            env_options={"size": 1},
        )
    )
    world, learner, privatizer = build_run.objects(config)
    assert world == (1, "deterministic")
    assert (learner.preset, learner.scale) == ("paper", 3.0)
    assert privatizer == ToyPrivatizer(epsilon=2.0)
    with pytest.raises(ValueError, match="preset = 'poster': must be one of 'default', 'paper'"):
        build_run.objects(build_run.resolved(RunConfig(env="toy-world", learner="toy", preset="poster")))
    with pytest.raises(ValueError, match="preset = 'code:unknown'"):
        build_run.prepare(RunConfig(preset="code:unknown"))
    registry.load_plugin("papers.presets")
    with pytest.raises(ValueError, match="takes no options"):
        build_run.prepare(RunConfig(preset="code:cz22", options={"learner.scale": 1.0}))
    with pytest.raises(ValueError, match="preset = 'cz22': must be a text that begins with code:"):
        registry.register_published_code("cz22", lambda: None)


def test_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "toy_plugin_a.py").write_text(
        "import discreet as dr\n"
        "def tiny(*, n: int = 2):\n"
        "    'A tiny world.'\n"
        "    return n\n"
        "dr.register('environment', 'tiny', tiny)\n"
    )
    found = registry.load_plugin("toy_plugin_a")
    assert [(e.kind, e.name, e.summary) for e in found] == [("environment", "tiny", "A tiny world.")]
    assert registry.load_plugin("toy_plugin_a") == found  # imported already
    assert dr.make("tiny", n="5") == 5
    with pytest.raises(ValueError, match="plugin = 'no_such_plugin_module': cannot be imported"):
        registry.load_plugin("no_such_plugin_module")


def test_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name, value = "mine", "mine:register"

        def __init__(self, error: Exception | None = None) -> None:
            self.error = error

        def load(self) -> Any:
            if self.error is not None:
                raise self.error
            return lambda: dr.register("environment", "from-entry-point", toy_world)

    monkeypatch.setattr(registry, "_loaded_entry_points", False)
    monkeypatch.setattr(
        registry, "entry_points", lambda group: [Point()] if group == "discreet.plugins" else []
    )
    assert registry.entry("environment", "from-entry-point").summary == "A world of a size."
    monkeypatch.setattr(registry, "_loaded_entry_points", False)
    monkeypatch.setattr(registry, "entry_points", lambda group: [Point(ImportError("gone"))])
    with pytest.warns(UserWarning, match="plug-in 'mine' .* cannot be loaded"):
        registry.entries()
    registry.entries()  # warned once
