"""Construction of environment, learner and privatizer from a configuration, and preparation of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from discreet import registry
from discreet.experiments.run_config import RunConfig
from discreet.registry import Kind, build, entry, options_of, presets_of, typed
from discreet.utils.toml_file import OptionValue

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from discreet.envs.mdp.tabular import TabularMDP
    from discreet.experiments.engine import Engine
    from discreet.experiments.results import Result
    from discreet.experiments.simulate import Setup

_PRIOR_KEYS = {"prior.file": "learner.prior", "prior.strength": "learner.prior_strength"}


def route(learner: str, privatizer: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Assign each option to the learner or the privatizer, and convert its value to the option's type.

    Each option in the result has the name ``learner.X`` or ``privatizer.X``. Raises ``ValueError`` for an
    unknown option, for a value of the wrong type, and for an option without prefix that both parts have.
    """
    found = {"learner": entry("learner", learner), "privatizer": entry("privatizer", privatizer)}
    # a table [options.learner.prior] with the keys file and strength
    options = {_PRIOR_KEYS.get(name.removeprefix("learner."), name): value for name, value in options.items()}
    takes = {kind: options_of(e.factory()) for kind, e in found.items()}
    routed: dict[str, Any] = {}
    for name, value in options.items():
        kind, _, bare = name.partition(".")
        if bare and kind in found:
            owners = [kind] if bare in takes[kind] else []
        else:
            bare = name
            owners = [kind for kind in found if name in takes[kind] and name not in registry.BY_FLAG]
        if len(owners) > 1:
            raise ValueError(f"option {name!r}: both take it; write learner.{name} or privatizer.{name}")
        if not owners and bare in ("prior", "prior_strength"):
            raise ValueError(f"option {name!r}: learner {learner!r} has no prior; 'noise-aware' has one")
        if not owners:
            lists = "; ".join(f"{found[k].name}: {registry.list_options(takes[k].values())}" for k in found)
            flag = "" if bare not in registry.BY_FLAG else f" (it has a flag of its own, --{bare})"
            flag = " (`preset` stands beside the options)" if bare == "preset" else flag
            raise ValueError(f"option {name!r}: unknown{flag}; the options are {lists}")
        full = f"{owners[0]}.{bare}"
        if full in routed:
            raise ValueError(f"option {name!r}: given twice")
        routed[full] = registry.coerce(full, value, takes[owners[0]][bare].annotation)
    return dict(sorted(routed.items()))


def resolved(config: RunConfig) -> RunConfig:
    """Check the names in a configuration, and return a copy with typed options that :func:`route` assigned.

    Epsilon and delta are removed if the privatizer has no budget. Raises ``ValueError`` in the same cases as
    :func:`discreet.registry.build` and :func:`route`.
    """
    for module in config.plugins:
        registry.load_plugin(module)
    environment, privatizer = entry("environment", config.env), entry("privatizer", config.privatizer)
    takes = options_of(privatizer.factory())
    options: dict[str, OptionValue] = route(config.learner, config.privatizer, config.options)
    if isinstance(prior := options.get("learner.prior"), str):
        from discreet.utils.pinned_file import pinned

        options["learner.prior"] = pinned(
            "prior", prior
        )  # the content of the file is part of the run's identity
    return replace(
        config,
        options=options,
        env_options=typed(environment, config.env_options, "env_options."),
        epsilon=config.epsilon if "epsilon" in takes else None,
        delta=config.delta if "delta" in takes else None,
    )


def objects(config: RunConfig) -> tuple[TabularMDP, Any, Any]:
    """Build the environment, learner and privatizer of a resolved configuration."""
    options: dict[str, dict[str, Any]] = {"learner": {}, "privatizer": {}}
    for name, value in config.options.items():
        kind, _, bare = name.partition(".")
        options[kind][bare] = value
    budget = {"epsilon": config.epsilon, "delta": config.delta}
    options["privatizer"] |= {name: value for name, value in budget.items() if value is not None}
    chosen = _presets(config)
    mdp = build("environment", config.env, None, config.env_options)
    learner = build("learner", config.learner, chosen["learner"], options["learner"])
    privatizer = build("privatizer", config.privatizer, chosen["privatizer"], options["privatizer"])
    return mdp, learner, privatizer


def _presets(config: RunConfig) -> dict[str, str | None]:
    """Return the presets of the learner and of the privatizer; None if the part lacks the preset.

    Raises ``ValueError`` if neither part has the preset.
    """
    names = {"learner": config.learner, "privatizer": config.privatizer}
    if config.preset is None:
        return dict.fromkeys(names)
    found = {kind: entry(cast(Kind, kind), name) for kind, name in names.items()}
    known = {kind: presets_of(one.factory(), one.fixed) for kind, one in found.items()}
    if not any(config.preset in offered for offered in known.values()):
        offered = dict.fromkeys(preset for presets in known.values() for preset in presets)
        raise ValueError(f"preset = {config.preset!r}: {registry.must_be_one_of(offered)}")
    return {kind: config.preset if config.preset in offered else None for kind, offered in known.items()}


def prepare(config: RunConfig) -> Setup:
    """Build and check the experiment of a resolved configuration."""
    if config.preset is not None and config.preset.startswith(registry.CODE_PREFIX):
        return _published_code(config)
    from discreet.experiments.simulate import setup_of

    mdp, learner, privatizer = objects(config)
    setup: Setup = setup_of(mdp)(mdp, learner, privatizer, config.episodes, by=config.by)
    return setup


def sweep(
    runs: str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    *,
    workers: int | None = None,
    executor: Executor | Engine | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Result]:
    """Run every configuration of a sweep, and return one result per configuration, in order.

    Parameters
    ----------
    runs : a TOML file, or its content as a mapping, in the format of :mod:`discreet.experiments.sweep`
    out : folder
        Each configuration has its own folder inside ``out``, with its results. Seeds that are already stored
        are not run again. Several processes with the same ``out`` share the work. If None, results are not
        stored.
    workers : int, optional
        Number of parallel runs (default: the number of processors).
    executor : concurrent.futures.Executor or Engine, optional
        Executes all runs. The results are bit for bit the same as without an executor.
    progress : callable, optional
        Function that is called with (number of the run, number of users simulated so far) during the runs.

    Raises
    ------
    ValueError
        If any configuration is invalid. Then no run is started.
    """
    from discreet.experiments import sweep as sweeps
    from discreet.experiments.engine import Engine as Seam

    plan = sweeps.Sweep.from_table(runs) if isinstance(runs, Mapping) else sweeps.Sweep.from_toml(Path(runs))
    plan = plan.resolved(resolved)
    folder = None if out is None else Path(out)
    made = [
        (prepare(one), one, None if folder is None else folder / sweeps.folder_name(one)) for one in plan.runs
    ]
    if folder is not None:
        sweeps.note_order(folder, plan)
    if executor is not None:
        return sweeps.run_all(made, prepare, Seam.of(executor, workers), progress)
    return sweeps.run_each(made, workers, lambda _: nullcontext(progress))


def _published_code(config: RunConfig) -> Setup:
    """Build the experiment that repeats the public code of a paper. It has no privacy guarantee."""
    made = registry.published_code(str(config.preset))
    if config.options:
        raise ValueError(f"option {next(iter(config.options))!r}: preset {config.preset!r} takes no options")
    mdp = build("environment", config.env, None, config.env_options)
    setup: Setup = made(config.learner, config.privatizer, mdp, config.episodes, config.epsilon)
    return setup
