"""Configurations that reproduce runs made from Python objects, if all objects have registered names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.experiments.labels import said_options
from discreet.experiments.run_config import MADE_BY, RunConfig, cannot_repeat, made_by
from discreet.registry import RegisteredPart, named, remembered

if TYPE_CHECKING:
    from discreet.experiments.seed_run import PreparedRun

OBJECTS = "python objects"


@dataclass(frozen=True)
class Recipe:
    """Description of a run made from Python objects.

    Parameters
    ----------
    table : TOML table that repeats the run, or that only identifies it.
    options : options of learner and privatizer, for labels.
    environment : name of the environment with its options.
    """

    table: dict[str, Any]
    options: Mapping[str, Any]
    environment: str


def recipe(setup: PreparedRun, seed: int, seeds: int) -> Recipe:
    """Describe an experiment by registered names, or by the ``repr`` of objects without a name."""
    environment = remembered(setup.mdp)
    learner, privatizer = named("learner", setup.learner), named("privatizer", setup.privatizer)
    said = {
        f"{kind}.{name}": value
        for kind, found, part in (
            ("learner", learner, setup.learner),
            ("privatizer", privatizer, setup.privatizer),
        )
        for name, value in (_own_options(part) if found is None else {**found.fixed, **found.options}).items()
        if (kind, name) not in (("privatizer", "epsilon"), ("privatizer", "delta"))
    }
    preset, presets = _preset(learner, privatizer)
    said = dict(sorted({**said, **presets}.items()))
    world = str(setup.mdp.name)
    if environment is not None:
        world = f"{environment.name}{said_options(environment.options)}"
    own = {"environment": environment, "learner": learner, "privatizer": privatizer}
    missing = [name for name, found in own.items() if found is None]
    if missing or environment is None or learner is None or privatizer is None:
        return Recipe(_objects_table(setup, seed, preset, said, world, missing), said, world)
    options = {name: value for name, value in said.items() if not _is_fixed(name, learner, privatizer)}
    config = RunConfig(
        env=environment.name, learner=learner.name, privatizer=privatizer.name, episodes=setup.episodes,
        seeds=seeds, seed=seed, epsilon=privatizer.options.get("epsilon"),
        delta=privatizer.options.get("delta"), preset=preset, by=setup.by,
        plugins=tuple(dict.fromkeys((*environment.plugins, *learner.plugins, *privatizer.plugins))),
        env_options=environment.options, options=options,
    )  # fmt: skip
    return Recipe({**config.to_table(), MADE_BY: made_by()}, said, world)


def _preset(
    learner: RegisteredPart | None, privatizer: RegisteredPart | None
) -> tuple[str | None, dict[str, Any]]:
    """Return the preset of the configuration, and options that set the presets of single parts."""
    parts = {"learner": learner or RegisteredPart(""), "privatizer": privatizer or RegisteredPart("")}
    asked = {kind: part.preset for kind, part in parts.items()}
    for word in dict.fromkeys((*asked.values(), None)):
        if all(asked[kind] == (word if word in part.presets else None) for kind, part in parts.items()):
            return word, {}
    return None, {f"{kind}.preset": word for kind, word in asked.items() if word is not None}


def _is_fixed(name: str, learner: RegisteredPart, privatizer: RegisteredPart) -> bool:
    kind, _, bare = name.partition(".")
    part = learner if kind == "learner" else privatizer
    return bare in part.fixed and bare not in part.options


def _own_options(part: Any) -> dict[str, Any]:
    """Return the fields of a dataclass object that differ from their defaults and have simple values."""
    if not dataclasses.is_dataclass(part) or isinstance(part, type):
        return {}
    now = {one.name: getattr(part, one.name, None) for one in dataclasses.fields(part) if one.init}
    plain = {one.name: one.default for one in dataclasses.fields(part)}
    # errors are ignored: some options have no default value, and some presets forbid options
    with suppress(TypeError, ValueError):
        make: Any = type(part)
        same = make(preset=now["preset"]) if "preset" in now else make()
        plain = {**{name: getattr(same, name) for name in now}, "preset": "default"}
    return {
        name: value
        for name, value in now.items()
        if isinstance(value, bool | int | float | str) and value != plain[name]
    }


def _objects_table(
    setup: PreparedRun, seed: int, preset: str | None, said: Mapping[str, Any], world: str, own: list[str]
) -> dict[str, Any]:
    """Return a table for a run that cannot be repeated from a file.

    own : parts without a registered name.
    """
    table = {
        "form": OBJECTS,
        "note": f"This file does not repeat the run: {cannot_repeat(own)}",
        "own": own,
        "learner": repr(setup.learner),
        "privatizer": repr(setup.privatizer),
        "environment": world,
        "optimal_value": setup.optimal_value,
        "uniform_value": setup.uniform_value,
        "episodes": setup.episodes,
        "batched": setup.batched,
        "seed": seed,
        "preset": preset,
        "options": dict(said),
        MADE_BY: made_by(),
    }
    return {name: value for name, value in table.items() if value is not None and value != {}}
