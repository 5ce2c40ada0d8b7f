"""Commands for simulations and their results, such as ``list``, ``run``, ``sweep`` and ``compare``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.common import (
    ConfigArgument,
    DeltaOption,
    EngineOption,
    EnvOption,
    EnvOptions,
    EpisodesOption,
    EpsilonOption,
    JsonFlag,
    KnobOptions,
    LearnerOption,
    OutOption,
    PluginOption,
    PriorOption,
    PriorStrengthOption,
    PrivatizerOption,
    ShardOption,
    WorkersOption,
    announce_compilation,
    command,
    console,
    new_table,
    pairs,
    print_json,
    progress_bar,
    say,
    settings_of,
)

if TYPE_CHECKING:
    from discreet.core.guarantee import Guarantee
    from discreet.experiments.results import Result
    from discreet.experiments.run_config import RunConfig
    from discreet.experiments.simulate import Setup
    from discreet.experiments.sweep import BaselineComparison, Sweep

NARROW = 110  # if a terminal line has fewer characters, tables omit the columns for names


def _announce_delta(setup: Setup) -> None:
    """Print a remark if delta is so large that the guarantee is weak. A large delta is not an error."""
    delta = setup.guarantee.delta
    if setup.guarantee.epsilon is not None and delta * setup.episodes >= 1.0:
        say(
            f"discreet: delta = {delta:g} is large for {setup.episodes:,} users: publishing one user's whole "
            f"record would meet it; choose delta far below 1 / users = {1 / setup.episodes:.2g}"
        )


# -------------------------------------------------------------------------------------- list
@command
def list_(as_json: JsonFlag = False, plugin: PluginOption = None) -> None:
    """List learners, privatizers and environments, one line each, and which of them fit together."""
    from discreet import registry

    for module in plugin or []:
        registry.load_plugin(module)
    if as_json:
        rows = [
            {"kind": e.kind, "name": e.name, "summary": e.summary, "fits": e.fits} for e in registry.entries()
        ]
        print_json(rows)
        return
    for kind in registry.KINDS:
        table = new_table(f"{kind}s", "", "goes with" if kind != "environment" else "")
        for e in registry.entries(kind):
            table.add_row(e.name, e.summary, e.fits)
        console().print(table)
    console().print("Options of a name: `discreet describe NAME`.")


@command
def describe(name: str, as_json: JsonFlag = False, plugin: PluginOption = None) -> None:
    """List the options and presets of a learner, privatizer or environment."""
    from discreet import registry

    for module in plugin or []:
        registry.load_plugin(module)
    found = [e for e in registry.entries() if e.name == name]
    if not found and name.startswith(registry.GYM_PREFIX):
        found = [registry.entry("environment", name)]
    if not found:
        everything = [e.name for e in registry.entries()]
        near = difflib.get_close_matches(name, everything, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"name = {name!r}: unknown{hint}; must be one of {', '.join(everything)}")
    factory = found[0].factory()
    presets = registry.presets_of(factory, found[0].fixed)
    hidden = {
        "preset",
        *getattr(factory, "REFUSES", ()),
        *(found[0].fixed if found[0].kind == "environment" else ()),
    }
    known = {o.name: o for o in registry.options_of(factory).values() if o.name not in hidden}
    takes = {option: registry.describe(o.annotation) for option, o in known.items()}
    defaults = registry.defaults_of(found[0])
    said = registry.descriptions_of(factory)
    if as_json:
        shown = {option: defaults.get(option) for option in takes}
        print_json(
            {
                "name": name,
                "kind": found[0].kind,
                "presets": [*presets],
                "options": takes,
                "defaults": shown,
                "descriptions": {option: said.get(option, "") for option in takes},
            }
        )
        return
    table = new_table("option", "takes", "default", "")
    for option, kind in takes.items():
        table.add_row(option, kind, _plain(defaults.get(option)), said.get(option, ""))
    console().print(f"{found[0].kind} {name}: {found[0].summary}")
    console().print(table if takes else "no options")
    if presets:
        console().print(f"presets: {', '.join(presets)}")


def _plain(value: Any) -> str:
    """Return the default value of an option in the form in which a user would type it."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


# --------------------------------------------------------------------------------------- run
@command
def run(
    config: ConfigArgument = None,
    env: EnvOption = None,
    env_option: EnvOptions = None,
    learner: LearnerOption = None,
    privatizer: PrivatizerOption = None,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    option: KnobOptions = None,
    prior: PriorOption = None,
    prior_strength: PriorStrengthOption = None,
    episodes: EpisodesOption = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="N|FIRST:END", help="Repetitions (default: 1); 100:120 are 100 to 119."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all repetitions (default: 0).")] = None,
    by: Annotated[str | None, typer.Option(help="auto (default), episode or batch.")] = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
    shard: ShardOption = None,
    out: OutOption = None,
    label: Annotated[str | None, typer.Option(help="Name of the run in figures and tables.")] = None,
    plugin: PluginOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Run one learner with one privatizer on one environment, over several seeds."""
    first, end = _repetitions(seeds)
    flags = {
        "env": env, "learner": learner, "privatizer": privatizer, "epsilon": epsilon, "delta": delta,
        "episodes": episodes, "seeds": end, "seed": seed, "by": by, "label": label,
    }  # fmt: skip
    prior_options = {"learner.prior": prior, "learner.prior_strength": prior_strength}
    wanted = _configuration(config, flags, option, env_option, plugin, prior_options)
    (result,) = _run_all([(wanted, out, None)], workers, engine, _chosen(shard, first))
    if as_json:
        print_json({**result.to_json(), "out": None if out is None else str(out)})
        return
    _print_results([result])


def _repetitions(seeds: str | None) -> tuple[int, int | None]:
    """Return the number of the first repetition and the number after the last one, from N or FIRST:END.

    The second number is None if ``seeds`` is None.
    """
    if seeds is None:
        return 0, None
    found = re.fullmatch(r"(?:(\d+):)?(\d+)", seeds)
    first, end = map(int, found.groups("0")) if found else (0, 0)
    if first >= end:
        raise ValueError(f"seeds = {seeds!r}: must be a number above 0, or FIRST:END with FIRST < END")
    return first, end


def _configuration(
    config: Path | None,
    flags: dict[str, Any],
    option: list[str] | None,
    env_option: list[str] | None,
    plugin: list[str] | None,
    prior: dict[str, Any],
) -> RunConfig:
    """Combine the options on the command line with a configuration file, if one is given.

    Options on the command line take precedence over the file.

    - prior : options of the learner's prior; None if they are not given.

    Raises ``ValueError`` if the command line has a budget but the privatizer takes none.
    """
    from discreet.experiments.run_config import RunConfig

    base = {} if config is None else RunConfig.from_toml(config).to_table()
    preset, options = settings_of(option)
    given = {**flags, "preset": preset}
    table = {**base, **{name: value for name, value in given.items() if value is not None}}
    table["options"] = {**base.get("options", {}), **options}
    for name, value in prior.items():
        if value is not None:
            table["options"][name] = str(value) if isinstance(value, Path) else value
    table["env_options"] = {**base.get("env_options", {}), **pairs("env-option", env_option)}
    table["plugins"] = [*base.get("plugins", ()), *(plugin or [])]
    found = RunConfig.from_table(table)
    _check_budget_is_taken(found, {name: flags[name] for name in ("epsilon", "delta")})
    return found


def _check_budget_is_taken(config: RunConfig, given: dict[str, float | None]) -> None:
    """Raise ``ValueError`` if the command line has a budget but the privatizer takes none.

    A configuration file is allowed to have a budget together with the privatizer "none", because grids in
    sweeps contain such combinations.
    """
    from discreet import registry

    for module in config.plugins:
        registry.load_plugin(module)
    takes = registry.options_of(registry.entry("privatizer", config.privatizer).factory())
    for name, value in given.items():
        if value is not None and name not in takes:
            private = [
                e.name for e in registry.entries("privatizer") if name in registry.options_of(e.factory())
            ]
            raise ValueError(
                f"{name} = {value:g}: privatizer {config.privatizer!r} takes no budget, so the run would not "
                f"be private; give --privatizer {' or '.join(private)}, or leave --{name} out"
            )


@command
def estimate(
    config: ConfigArgument = None,
    env: EnvOption = None,
    env_option: EnvOptions = None,
    learner: Annotated[
        str | None,
        typer.Option(
            help="NAMES(learner) (default: noise-aware); with --schema NAMES(offline learner) (default: as "
            "for `discreet learn`)."
        ),
    ] = None,
    privatizer: PrivatizerOption = None,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    option: KnobOptions = None,
    prior: PriorOption = None,
    prior_strength: PriorStrengthOption = None,
    episodes: EpisodesOption = None,
    schema: Annotated[
        Path | None,
        typer.Option(help="SCHEMA.toml: estimate `discreet learn`, with --users, instead of a run."),
    ] = None,
    users: Annotated[int | None, typer.Option(help="With --schema: expected number of users.")] = None,
    rho: Annotated[float | None, typer.Option(help="With --schema: budget in zCDP.")] = None,
    share: Annotated[
        float, typer.Option(help="With --schema: share of the statistical error that privacy may cost.")
    ] = 0.1,
    plugin: PluginOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Estimate the guarantee and the noise of a run, or of `discreet learn`, without user data."""
    if schema is not None:
        from discreet.cli.learn import estimate_stored

        budget = {"epsilon": epsilon, "delta": delta, "rho": rho}
        of_runs = {
            "config": config, "env": env, "privatizer": privatizer, "episodes": episodes,
            "env-option": env_option, "plugin": plugin, "prior": prior, "prior-strength": prior_strength,
        }  # fmt: skip
        for name, value in of_runs.items():
            if value:
                raise ValueError(f"{name} = {value}: must not be given with --schema")
        estimate_stored(schema, users, budget, learner, option, share, as_json)
        return
    from discreet.experiments import build_run

    of_stored = {"users": users, "rho": rho}
    for name, value in of_stored.items():
        if value is not None:
            raise ValueError(f"{name} = {value}: must be given with --schema only")
    flags = {
        "env": env, "learner": learner, "privatizer": privatizer, "epsilon": epsilon, "delta": delta,
        "episodes": episodes,
    }  # fmt: skip
    announce_compilation()
    prior_options = {"learner.prior": prior, "learner.prior_strength": prior_strength}
    wanted = _configuration(config, flags, option, env_option, plugin, prior_options)
    setup = build_run.prepare(build_run.resolved(wanted))
    _announce_delta(setup)
    _print_estimate(setup, as_json)


def _print_estimate(setup: Setup, as_json: bool) -> None:
    from discreet.experiments.estimate import estimate_run

    found = estimate_run(setup)
    if as_json:
        print_json(found.to_json())
        return
    console().print(found.statement)
    _print_seed([setup.guarantee])
    releases = f"{found.releases} release{'s' if found.releases != 1 else ''}"
    console().print(f"{releases} for {found.users} users; {found.cells} cells with noise each")
    # if the two numbers are equal, the table has only one column
    times = dict.fromkeys(f"after {users:,} users" for users in found.at)
    noise = new_table("std of the noise in sums of", *times, right=[*times])
    for name, stds in found.std.items():
        noise.add_row(name, *(f"{std:.4g}" for std in stds[-len(times) :]))
    console().print(noise)
    if found.choices:
        table = new_table("release", "noise", f"error per {found.per}", "times the best")
        best_of_kind = {(c.release.split()[0], c.noise): c for c in reversed(found.choices)}
        for choice in sorted(best_of_kind.values(), key=lambda c: c.error):
            table.add_row(choice.release, choice.noise, f"{choice.error:.4g}", f"{choice.ratio:.3g}")
        console().print(table)
        console().print(f"The first one is used. Error: {found.criterion}.")


def _chosen(shard: str | None, first: int = 0) -> Callable[[int, int], bool] | None:
    """Return a function that selects the (configuration, repetition) pairs that this process must run.

    Returns None if this process must run all pairs.
    """
    from discreet.experiments import sweep

    if shard is None and not first:
        return None
    part = sweep.shard(shard) if shard is not None else None
    return lambda i, run: run >= first and (part is None or part(i, run))


def _run_all(
    wanted: Sequence[tuple[RunConfig, Path | None, str | None]],
    workers: int | None,
    engine: str | None,
    chosen: Callable[[int, int], bool] | None,
) -> list[Result]:
    """Run configurations, and return their results.

    In this process, the configurations are run one after the other. On an engine, all configurations are run
    together.

    Parameters
    ----------
    wanted : (configuration, folder, title) of each run.
    """
    from discreet.experiments import build_run, sweep
    from discreet.experiments.engine import open_engine

    made = []
    announce_compilation()
    for config, out, title in wanted:
        resolved = build_run.resolved(config)
        for name in ("epsilon", "delta"):
            value = getattr(config, name)
            if value is not None and getattr(resolved, name) is None and title is None:
                say(
                    f"discreet: {name} = {value:g} is not used: privatizer {resolved.privatizer!r} takes none"
                )
        setup = build_run.prepare(resolved)
        _announce_delta(setup)
        made.append((setup, resolved, out, title or f"{resolved.learner}, {resolved.privatizer}"))
    mine = [
        [run for run in range(config.seeds) if chosen is None or chosen(i, run)]
        for i, (_, config, *_) in enumerate(made)
    ]
    if not any(mine):
        raise ValueError("shard: has none of the runs: there are fewer runs than parts")
    if engine not in (None, "local"):
        total = sum(config.episodes * len(own) for own, (_, config, *_) in zip(mine, made, strict=True))
        with open_engine(str(engine), workers) as there, progress_bar(str(engine), total) as progress:
            runs = [(setup, config, out) for setup, config, out, _ in made]
            return sweep.run_all(runs, build_run.prepare, there, progress, chosen)

    def shown(i: int) -> AbstractContextManager[Callable[[int, int], None]]:
        return progress_bar(made[i][3], made[i][1].episodes * len(mine[i]))

    return sweep.run_each([one[:3] for one in made], workers, shown, chosen)


def _print_results(results: Sequence[Result]) -> None:
    """Print a table with one row per result, then one verdict per result.

    A verdict states the regret and the guarantee of the result.
    """
    from rich.padding import Padding

    from discreet.experiments.labels import privacy_words, short_labels
    from discreet.experiments.plots import UNITS
    from discreet.experiments.statistics import number

    summaries = [result.summary() for result in results]
    labels, shared = short_labels(results)
    right = ("seeds", "mean", "median", "uniform policy", "seconds")
    first, to = summaries[0], console()
    narrow = to.width < NARROW  # names are then printed below the table
    table = new_table("", *(() if narrow else ("learner", "privacy")), *right, right=right)
    for i, (result, label, s) in enumerate(zip(results, labels, summaries, strict=True), 1):
        table.add_row(
            str(i), *(() if narrow else (label, privacy_words(result.guarantee))), str(s.mean.count),
            f"{number(s.mean.estimate)}\n{s.mean.brackets()}",
            f"{number(s.median.estimate)}\n{s.median.brackets()}",
            number(s.uniform_regret), f"{s.seconds:.3g}",
        )  # fmt: skip
    with_all = f" (all with {shared})" if shared else ""
    if results[0].about.reward_scale != 1.0:
        with_all += f", {UNITS}"
    to.print(
        f"Final regret after {results[0].users:,} users on {results[0].environment}{with_all}", style="bold"
    )
    to.print(table)
    to.print(
        f"Brackets: {first.mean.level:.0%} intervals, mean by {first.mean.method}, "
        f"median by {first.median.method} (six seeds or more). Uniform policy: regret without learning."
    )
    for i, (result, label, s) in enumerate(zip(results, labels, summaries, strict=True), 1):
        who = f"{label}, {privacy_words(result.guarantee)}. " if narrow else ""
        to.print(f"{i}. {who}{s.verdict[0].upper()}{s.verdict[1:]}.")
        note = f" {result.about.privacy_note}" if result.about.privacy_note else ""
        short = _first_sentence(s.statement) + note
        to.print(Padding(s.statement if len(results) == 1 else short, (0, 0, 0, 3)))
    if len(results) > 1 and any(s.trust != "none" for s in summaries):
        to.print("Noise and composition: guarantee.json of each run.")
    _print_seed([result.guarantee for result in results])
    to.print()


def _print_seed(guarantees: Sequence[Guarantee]) -> None:
    """Print a warning if a guarantee does not hold against an attacker who guesses the seed of the noise."""
    if any(one.epsilon is not None and not one.holds_if_seed_is_guessed for one in guarantees):
        console().print("Holds if the seed is guessed: NO. Noise from a seed is for simulation only.")


def _first_sentence(statement: str) -> str:
    """Return the first sentence of a privacy statement, which is the guarantee. The other sentences state how
    the guarantee is computed.
    """
    return re.split(r"(?<=\.) (?=[A-Z])", statement, maxsplit=1)[0]


# ------------------------------------------------------------------------------------- sweep
def _list_runs(plan: Sweep, names: Sequence[str], folder: Path, as_json: bool) -> None:
    from discreet.experiments import sweep as sweeps

    rows = [
        (i, name, folder / sweeps.folder_name(one), one.seeds)
        for i, (one, name) in enumerate(zip(plan.runs, names, strict=True), 1)
    ]
    if as_json:
        print_json([{"only": i, "name": n, "out": str(to), "seeds": s} for i, n, to, s in rows])
        return
    table = new_table("--only", "run", "seeds", right=("--only", "seeds"))
    for i, name, _, seeds in rows:
        table.add_row(str(i), name, str(seeds))
    console().print(table)


@command
def merge(
    folders: Annotated[list[Path], typer.Argument(help="Result folders, or folders of sweeps.")],
    out: Annotated[Path, typer.Option(help="Folder for all seeds.")],
) -> None:
    """Merge result folders into one folder, for example those of machines that share no disk."""
    from discreet.experiments import sweep as sweeps

    new = sweeps.merge(folders, out)
    say(f"discreet: {new} new run{'s' if new != 1 else ''} in {out}")


@command
def sweep(
    config: Annotated[Path, typer.Argument(help="Sweep file: lists are grids, and tables `runs` are parts.")],
    out: Annotated[Path | None, typer.Option(help="Folder (default: results/NAME of the file).")] = None,
    seeds: Annotated[int | None, typer.Option(help="Repetitions, instead of the number in the file.")] = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
    shard: ShardOption = None,
    list_only: Annotated[bool, typer.Option("--list", help="Only list the runs and their numbers.")] = False,
    only: Annotated[
        list[int] | None, typer.Option(help="Run only the run with this number (see --list). Repeatable.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run every configuration of a sweep in its own folder; print a table and draw a figure."""
    from discreet.core import checks
    from discreet.experiments import build_run
    from discreet.experiments import sweep as sweeps

    plan: Sweep = sweeps.Sweep.from_toml(config)
    if seeds is not None:
        plan = sweeps.Sweep(plan.title, tuple(one.with_seeds(seeds) for one in plan.runs))
    announce_compilation()
    plan = plan.resolved(build_run.resolved)
    for one in plan.runs:
        build_run.prepare(one)  # this raises an error if a configuration is invalid, before anything is run
    folder = out or Path("results") / config.stem
    names = [one.name.removesuffix("-" + one.key) for one in plan.runs]
    if list_only:
        _list_runs(plan, names, folder, as_json)
        return
    for number in only or ():
        checks.integer("only", number, 1, len(names))
    sweeps.note_order(folder, plan)
    wanted = [
        (one, folder / sweeps.folder_name(one), f"{i}/{len(names)} {names[i - 1]}")
        for i, one in enumerate(plan.runs, 1)
        if not only or i in only
    ]
    results = _run_all(wanted, workers, engine, _chosen(shard))
    if shard is not None or only:
        results = sweeps.load_results([folder])  # all finished results of the sweep
    figures = _figures(results, folder, plan.title)
    if as_json:
        print_json(
            {"out": str(folder), "figures": [str(f) for f in figures], "runs": [r.to_json() for r in results]}
        )
        return
    for group in _by_world(results):
        _print_results(group)
    for figure in figures:
        console().print(f"figure: {figure}")


def _by_world(results: Sequence[Result]) -> list[list[Result]]:
    groups: dict[tuple[str, int], list[Result]] = {}
    for result in results:
        groups.setdefault((result.environment, result.users), []).append(result)
    return [*groups.values()]


def _world(result: Result) -> str:
    return f"{result.users:,} users on {result.environment}"


def _figures(results: Sequence[Result], folder: Path, title: str) -> list[Path]:
    from discreet.experiments.plots import regret_figure

    groups = _by_world(results)
    paths = []
    for group in groups:
        suffix = "" if len(groups) == 1 else f"-{group[0].environment}-{group[0].users}".replace(":", "-")
        for kind in (".png", ".pdf"):
            paths.append(folder / f"regret{suffix}{kind}")
            regret_figure(group, paths[-1], title=f"{title} ({group[0].environment})")
    return paths


# ------------------------------------------------------------------------ compare, plot, check
@command
def compare(
    folders: Annotated[list[Path], typer.Argument(help="Result folders, or folders of a sweep.")],
    baseline: Annotated[
        Path | None, typer.Option(help="Folder of the baseline (default: the first).")
    ] = None,
    style: Annotated[str, typer.Option("--format", help="text, markdown or latex.")] = "text",
    as_json: JsonFlag = False,
) -> None:
    """Compare final regrets with intervals; differences are paired by seed."""
    from discreet.core import checks
    from discreet.experiments import sweep as sweeps

    checks.choice("format", style, ("text", "markdown", "latex"))
    if baseline is None:
        groups = _by_world(sweeps.load_results(folders))
    else:
        groups = [sweeps.load_results([baseline, *(folder for folder in folders if folder != baseline)])]
    compared = [(group[0], sweeps.compare(group)) for group in groups if len(group) > 1]
    if not compared:
        alone = "; ".join(f"{group[0].label}: {_world(group[0])}" for group in groups)
        raise ValueError(
            f"folders: must hold at least two results of one world, to be paired (there is {alone})"
        )
    for group in groups:
        if len(group) == 1:
            say(f"discreet: {group[0].label} is left out: no other result has {_world(group[0])}")
    if as_json:
        print_json({"groups": [_comparison_json(first, comparisons) for first, comparisons in compared]})
        return
    for first, comparisons in compared:
        if style == "text":
            _print_comparison(first, comparisons)
        else:
            world = f"{first.users:,} users on {first.environment}"
            print(
                sweeps.to_markdown(comparisons)
                if style == "markdown"
                else sweeps.to_latex(comparisons, world)
            )


def _comparison_json(first: Result, comparisons: Sequence[BaselineComparison]) -> dict[str, Any]:
    return {
        "environment": first.environment,
        "episodes": first.users,
        "baseline": comparisons[0].label,
        "results": [comparison.to_json() for comparison in comparisons],
    }


def _print_comparison(first: Result, comparisons: Sequence[BaselineComparison]) -> None:
    from discreet.experiments import sweep as sweeps

    to = console()
    narrow = to.width < NARROW  # names are then printed below the table
    head = ("", *(name.replace(", ", ",\n") for name in sweeps.HEAD[2:])) if narrow else sweeps.HEAD
    table = new_table(*head, right=head[1:] if narrow else head[2:])
    rows = [[cell.replace(" [", "\n[") for cell in row] for row in sweeps.comparison_rows(comparisons)]
    for i, row in enumerate(rows, 1):
        table.add_row(*((str(i), *row[2:]) if narrow else row))
    to.print(
        f"{first.users:,} users on {first.environment}, compared with {comparisons[0].label}", style="bold"
    )
    to.print(table)
    for i, row in enumerate(rows if narrow else (), 1):
        to.print(f"{i}. {row[0]}, {row[1]}")
    to.print(sweeps.caption(comparisons))
    to.print()


@command
def plot(
    folders: Annotated[list[Path], typer.Argument(help="Result folders, or folders of a sweep.")],
    out: Annotated[Path, typer.Option(help="File: .png, .pdf or .svg.")] = Path("regret.png"),
    scale: Annotated[str, typer.Option(help="log or linear.")] = "log",
    title: Annotated[str | None, typer.Option(help="Title of the figure.")] = None,
    style: Annotated[
        Path | None, typer.Option(help="Matplotlib style file; it overrides the default style.")
    ] = None,
    columns: Annotated[
        int | None, typer.Option(help="1 or 2: width in columns of a journal, letters for print.")
    ] = None,
    journal: Annotated[
        str,
        typer.Option(
            help="acm, elsevier, icml, ieee, jmlr, nature, neurips, plos, pnas, science or springer."
        ),
    ] = "nature",
    as_json: JsonFlag = False,
) -> None:
    """Draw cumulative regret against users: mean and band over seeds, and a reference line."""
    from discreet.experiments.labels import short_labels
    from discreet.experiments.plots import legend_label, regret_figure
    from discreet.experiments.sweep import load_results

    results = load_results(folders)
    regret_figure(results, out, scale=scale, title=title, style=style, columns=columns, journal=journal)
    if as_json:
        names = short_labels(results)[0]
        print_json({"figure": str(out), "curves": list(map(legend_label, results, names))})
    else:
        console().print(f"figure: {out}")
