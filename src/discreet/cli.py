"""The command line, thin: reads arguments, calls the library, prints.

Results go to standard output (with ``--json`` a single JSON document), progress and remarks to
standard error. Exit status: 0, 1 where a check failed, 2 for bad input (one line that names the
argument, its value and what is allowed), 130 when interrupted.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
import typer.core

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from discreet.experiments.config import RunConfig
    from discreet.experiments.results import Result
    from discreet.experiments.simulate import Setup
    from discreet.experiments.sweep import Comparison, Progress, Sweep

F = TypeVar("F", bound=Callable[..., Any])


class OneLine(typer.core.TyperGroup):
    """The group of commands; what its parser refuses is one line and exit status 2, as elsewhere."""

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """Parse and run; returns only where ``standalone_mode`` is false."""
        if not extra.pop("standalone_mode", True):
            return super().main(args, standalone_mode=False, **extra)
        given = list(sys.argv[1:] if args is None else args)
        try:
            status = super().main(args, standalone_mode=False, **extra)
        except BrokenPipeError:  # whoever reads us has seen enough, as in `discreet list | head`
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for the interpreter's last flush
            sys.exit(1)
        except Exception as error:
            if not hasattr(error, "format_message"):  # not of the parser, whose classes are private
                raise
            if not given:
                print(error.format_message())
            else:
                say(f"discreet: {_refused(error, given)}")
            sys.exit(getattr(error, "exit_code", 2))
        sys.exit(status if isinstance(status, int) else 0)


def _refused(error: Any, given: Sequence[str]) -> str:
    """What the parser refuses: the argument, its value if it has one, and what is allowed."""
    context, param = getattr(error, "ctx", None), getattr(error, "param", None)
    path = getattr(context, "command_path", "discreet")
    value = _value_of(param, given)
    if param is None or value is None:
        return f"{' '.join(error.format_message().split())} (see `{path} --help`)"
    reason = " ".join(str(error.message).split())
    return f"{param.opts[-1]} = {value!r}: {reason[:1].lower()}{reason[1:]}"


def _value_of(param: Any, given: Sequence[str]) -> str | None:
    """The text given for an option on the command line."""
    for name in getattr(param, "opts", ()):
        for i, word in enumerate(given):
            if word == name and i + 1 < len(given):
                return given[i + 1]
            if word.startswith(f"{name}="):
                return word.partition("=")[2]
    return None


app = typer.Typer(
    name="discreet",
    cls=OneLine,
    help="Differentially private reinforcement learning, with guarantees that can be checked.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
WorkersOption = Annotated[int | None, typer.Option(help="Parallel runs (default: all processors).")]
OutOption = Annotated[Path | None, typer.Option(help="Result folder; seeds that it holds are not run again.")]
PluginOption = Annotated[
    list[str] | None, typer.Option("--plugin", help="Module that registers names. Repeatable.")
]


def command(function: F) -> F:
    """A command of the application: errors at the door are one line and exit status 2."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                return function(*args, **kwargs)
        except ValueError as error:
            say(f"discreet: {' '.join(str(error).split())}")
            raise typer.Exit(2) from None
        except BrokenPipeError:
            raise
        except MemoryError as error:
            say(f"discreet: not enough memory ({' '.join(str(error).split()) or 'no details'})")
            raise typer.Exit(1) from None
        except OSError as error:
            say(f"discreet: {error}")
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            say("discreet: interrupted; finished seeds are kept, the same command does the rest")
            raise typer.Exit(130) from None

    app.command(function.__name__.rstrip("_"))(guarded)
    return function


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    say(f"discreet: {message}")


def say(text: str) -> None:
    """One line on standard error."""
    print(text, file=sys.stderr, flush=True)


def print_json(document: Any) -> None:
    """A document on standard output."""
    print(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def console() -> Console:
    """Standard output for people; wide enough for tables when it is no terminal."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 132)


def new_table(*columns: str, right: Sequence[str] = ()) -> Table:
    """An empty table."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(
            column, justify="right" if column in right else "left", no_wrap=column in right, overflow="fold"
        )
    return table


@contextmanager
def progress_bar(title: str, total: int, unit: str = "users") -> Iterator[Progress]:
    """A bar on standard error over users of all runs; yields the callback ``(run, users done)``.

    Without a terminal, one line at the end instead.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    done: dict[int, int] = {}
    begin = time.perf_counter()
    to = Console(stderr=True)
    if not to.is_terminal:
        yield lambda run, users: done.__setitem__(run, users)
        say(f"{title}: {time.perf_counter() - begin:.1f} s")
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    with Progress(*columns, TimeElapsedColumn(), console=to) as bar:
        task = bar.add_task(title, total=total)

        def update(run: int, users: int) -> None:
            done[run] = users
            bar.update(task, completed=sum(done.values()))

        yield update
        bar.update(task, completed=total)


def _announce_compilation() -> None:
    """Say why nothing seems to happen: with an empty cache the kernels are compiled first."""
    from discreet.numerics.compile import cache_folder

    folder = cache_folder()
    if folder is None or not any(folder.rglob("*.nbi")):
        say("discreet: compiling kernels, once (`discreet warmup` does it ahead) ...")


_MANY_CELLS = 1e10  # released cells from which a run takes minutes


def _announce_cost(setup: Setup, seeds: int) -> None:
    """Say ahead what takes hours, and how to make it take seconds."""
    learner, cells = setup.learner, getattr(setup.query, "cells", 0)
    releases = setup.times.size - 1
    if float(cells) * releases * seeds < _MANY_CELLS:
        return
    pooled = not setup.mdp.stationary or getattr(learner, "stationary", True)
    ways = (
        "" if pooled else "--option stationary=true (pools the steps)",
        "" if releases < 1000 else "--option replan_growth=1.2 (policies change on a public schedule)",
    )
    advice = " and ".join(way for way in ways if way)
    say(
        f"discreet: this is slow: {cells:,} cells a release, {releases:,} releases, {seeds} "
        f"seed{'s' if seeds > 1 else ''}" + (f"; faster: {advice}" if advice else "")
    )


def _announce_delta(setup: Setup) -> None:
    """Say what a large delta means; nothing refuses it, since it is a true statement."""
    delta = setup.guarantee.delta
    if setup.guarantee.epsilon is not None and delta * setup.episodes >= 1.0:
        say(
            f"discreet: delta = {delta:g} is no small one for {setup.episodes:,} users: publishing one of "
            f"them whole would meet it; usual is far below 1 / users = {1 / setup.episodes:.2g}"
        )


# -------------------------------------------------------------------------------------- list
@command
def list_(as_json: JsonFlag = False, plugin: PluginOption = None) -> None:
    """List learners, privatizers and environments, a line each, and what fits what."""
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
    console().print("Options of a name: `discreet options NAME`.")


@command
def options(name: str, as_json: JsonFlag = False, plugin: PluginOption = None) -> None:
    """List the options and presets of a learner, privatizer or environment."""
    from discreet import registry

    for module in plugin or []:
        registry.load_plugin(module)
    found = [e for e in registry.entries() if e.name == name]
    if not found and name.startswith(registry.GYM_PREFIX):
        found = [registry.entry("environment", name)]
    if not found:
        raise ValueError(
            f"name = {name!r}: unknown; must be one of {', '.join(e.name for e in registry.entries())}"
        )
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
    if as_json:
        shown = {option: defaults.get(option) for option in takes}
        print_json(
            {"name": name, "kind": found[0].kind, "presets": [*presets], "options": takes, "defaults": shown}
        )
        return
    table = new_table("option", "takes", "default")
    for option, kind in takes.items():
        table.add_row(option, kind, _plain(defaults.get(option)))
    console().print(f"{found[0].kind} {name}: {found[0].summary}")
    console().print(table)
    if presets:
        console().print(f"presets: {', '.join(presets)}")


def _plain(value: Any) -> str:
    """A default as one would type it."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


# --------------------------------------------------------------------------------------- run
@command
def run(
    config: Annotated[Path | None, typer.Argument(help="A configuration; flags given beside it win.")] = None,
    env: Annotated[str | None, typer.Option(help="Environment.")] = None,
    env_option: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for the environment.")] = None,
    learner: Annotated[str | None, typer.Option(help="Learner.")] = None,
    privatizer: Annotated[str | None, typer.Option(help="Privatizer.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget, above 0.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="Privacy delta, in (0, 1); 0 (default): pure epsilon.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Named settings: paper, code:cz22, ...")] = None,
    option: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for learner or privatizer.")] = None,
    episodes: Annotated[int | None, typer.Option(help="Users, one episode each.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Repetitions.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all repetitions.")] = None,
    by: Annotated[str | None, typer.Option(help="auto, episode or batch.")] = None,
    workers: WorkersOption = None,
    out: OutOption = None,
    plugin: PluginOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Run one learner with one privatizer on one environment, over several seeds."""
    flags = {
        "env": env, "learner": learner, "privatizer": privatizer, "epsilon": epsilon, "delta": delta,
        "preset": preset, "episodes": episodes, "seeds": seeds, "seed": seed, "by": by,
    }  # fmt: skip
    result = _run(_configuration(config, flags, option, env_option, plugin), out, workers)
    if as_json:
        print_json({**result.to_json(), "out": None if out is None else str(out)})
        return
    _print_results([result])


def _configuration(
    config: Path | None,
    flags: dict[str, Any],
    option: list[str] | None,
    env_option: list[str] | None,
    plugin: list[str] | None,
) -> RunConfig:
    """A configuration file, if there is one, and the flags that win over it."""
    from discreet.experiments.config import RunConfig

    base = {} if config is None else RunConfig.from_toml(config).to_table()
    table = {**base, **{name: value for name, value in flags.items() if value is not None}}
    table["options"] = {**base.get("options", {}), **_pairs("option", option)}
    table["env_options"] = {**base.get("env_options", {}), **_pairs("env-option", env_option)}
    table["plugins"] = [*base.get("plugins", ()), *(plugin or [])]
    return RunConfig.from_table(table)


@command
def forecast(
    config: Annotated[Path | None, typer.Argument(help="A configuration; flags given beside it win.")] = None,
    env: Annotated[str | None, typer.Option(help="Environment.")] = None,
    env_option: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for the environment.")] = None,
    learner: Annotated[str | None, typer.Option(help="Learner.")] = None,
    privatizer: Annotated[str | None, typer.Option(help="Privatizer.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget, above 0.")] = None,
    delta: Annotated[float | None, typer.Option(help="Privacy delta, in (0, 1); 0: pure epsilon.")] = None,
    preset: Annotated[str | None, typer.Option(help="Named settings: paper, ...")] = None,
    option: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for learner or privatizer.")] = None,
    episodes: Annotated[int | None, typer.Option(help="Users, one episode each.")] = None,
    plugin: PluginOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Say what a run would guarantee and how large its noise would be, before anybody comes."""
    from discreet import registry
    from discreet.experiments.forecast import forecast_of

    flags = {
        "env": env, "learner": learner, "privatizer": privatizer, "epsilon": epsilon, "delta": delta,
        "preset": preset, "episodes": episodes,
    }  # fmt: skip
    setup = registry.prepare(registry.resolved(_configuration(config, flags, option, env_option, plugin)))
    _announce_delta(setup)
    found = forecast_of(setup)
    if as_json:
        print_json(found.to_json())
        return
    console().print(found.statement)
    console().print(f"{found.releases} releases for {found.users} users; {found.cells} cells with noise each")
    half, last = (f"after {users:,} users" for users in found.at)
    noise = new_table("std of the noise in sums of", half, last, right=(half, last))
    for name, stds in found.std.items():
        noise.add_row(name, *(f"{std:.4g}" for std in stds))
    console().print(noise)
    if found.choices:
        table = new_table("release", "noise", "error per transition count", "times the best")
        best_of_kind = {(c.release.split()[0], c.noise): c for c in reversed(found.choices)}
        for choice in sorted(best_of_kind.values(), key=lambda c: c.error):
            table.add_row(choice.release, choice.noise, f"{choice.error:.4g}", f"{choice.ratio:.3g}")
        console().print(table)
        console().print(f"The first one is used. Error: {found.criterion}.")


def _pairs(flag: str, given: Sequence[str] | None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in given or []:
        name, equals, value = item.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise ValueError(f"--{flag} {item!r}: must be KEY=VALUE")
        if name in pairs:
            raise ValueError(f"--{flag} {item!r}: {name} is given twice")
        pairs[name] = value
    return pairs


def _run(config: RunConfig, out: Path | None, workers: int | None, title: str | None = None) -> Result:
    from discreet import registry
    from discreet.experiments import sweep

    wanted = config
    config = registry.resolved(config)
    for name in ("epsilon", "delta"):
        value = getattr(wanted, name)
        if value is not None and getattr(config, name) is None and title is None:
            say(f"discreet: {name} = {value:g} is not used: privatizer {config.privatizer!r} takes none")
    _announce_compilation()
    setup = registry.prepare(config)
    _announce_delta(setup)
    _announce_cost(setup, config.seeds)
    title = title or f"{config.learner}, {config.privatizer}"
    with progress_bar(title, config.episodes * config.seeds) as progress:
        return sweep.run(setup, config, out, workers, progress)


def _print_results(results: Sequence[Result]) -> None:
    """A row a result, then each guarantee in one sentence and what the curve's end says."""
    from rich.padding import Padding

    from discreet.experiments.plots import privacy_words
    from discreet.experiments.results import short_labels
    from discreet.experiments.statistics import number

    summaries = [result.summary() for result in results]
    labels, shared = short_labels(results)
    right = ("seeds", "mean", "median", "uniform policy", "seconds")
    table = new_table("", "learner", "privacy", *right, right=right)
    for i, (result, label, s) in enumerate(zip(results, labels, summaries, strict=True), 1):
        table.add_row(
            str(i), label, privacy_words(result.guarantee), str(s.mean.count),
            f"{number(s.mean.estimate)}\n{s.mean.brackets()}",
            f"{number(s.median.estimate)}\n{s.median.brackets()}",
            number(s.uniform_regret), f"{s.seconds:.3g}",
        )  # fmt: skip
    first, to = summaries[0], console()
    with_all = f" (all with {shared})" if shared else ""
    to.print(
        f"Final regret after {results[0].users:,} users on {results[0].environment}{with_all}", style="bold"
    )
    to.print(table)
    to.print(
        f"Brackets: {first.mean.level:.0%} intervals, mean by {first.mean.method}, "
        f"median by {first.median.method} (six seeds or more). Uniform policy: what never learning costs."
    )
    for i, s in enumerate(summaries, 1):
        to.print(f"{i}. {s.verdict[0].upper()}{s.verdict[1:]}.")
        to.print(Padding(s.statement if len(results) == 1 else _first_sentence(s.statement), (0, 0, 0, 3)))
    if len(results) > 1 and any(s.trust != "none" for s in summaries):
        to.print(
            "Noise and composition: guarantee.json of each run. Noise from a seed is for simulation only."
        )
    to.print()


def _first_sentence(statement: str) -> str:
    """The guarantee itself; what follows says how it came about."""
    return re.split(r"(?<=\.) (?=[A-Z])", statement, maxsplit=1)[0]


# ------------------------------------------------------------------------------------- sweep
@command
def sweep(
    config: Annotated[Path, typer.Argument(help="A sweep: lists are grids, tables `runs` are parts.")],
    out: Annotated[Path | None, typer.Option(help="Folder (default: results/NAME of the file).")] = None,
    seeds: Annotated[int | None, typer.Option(help="Repetitions, in place of the file's.")] = None,
    workers: WorkersOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Run every configuration of a sweep, a folder each; print a table and draw a figure."""
    from discreet import registry
    from discreet.experiments import sweep as sweeps

    plan: Sweep = sweeps.Sweep.from_toml(config)
    if seeds is not None:
        plan = sweeps.Sweep(plan.title, tuple(one.with_seeds(seeds) for one in plan.runs))
    plan = plan.resolved(registry.resolved)
    for one in plan.runs:
        registry.prepare(one)  # everything fits, or nothing is run
    folder = out or Path("results") / config.stem
    sweeps.note_order(folder, plan)
    results = []
    for i, one in enumerate(plan.runs, 1):
        name = sweeps.folder_name(one)
        results.append(
            _run(one, folder / name, workers, f"{i}/{len(plan.runs)} {one.name.removesuffix('-' + one.key)}")
        )
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
        Path | None, typer.Option(help="The folder to compare with (default: the first).")
    ] = None,
    style: Annotated[str, typer.Option("--format", help="text, markdown or latex.")] = "text",
    as_json: JsonFlag = False,
) -> None:
    """Paired differences of final regret, seed by seed, with intervals."""
    from discreet.experiments import sweep as sweeps
    from discreet.numerics import checks

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
            say(f"discreet: {group[0].label} is left out: nothing else has {_world(group[0])}")
    if as_json:
        print_json({"groups": [_comparison_json(first, comparisons) for first, comparisons in compared]})
        return
    for first, comparisons in compared:
        if style == "text":
            _print_comparison(first, comparisons)
        else:
            print(sweeps.to_markdown(comparisons) if style == "markdown" else sweeps.to_latex(comparisons))


def _comparison_json(first: Result, comparisons: Sequence[Comparison]) -> dict[str, Any]:
    return {
        "environment": first.environment,
        "episodes": first.users,
        "baseline": comparisons[0].label,
        "results": [comparison.to_json() for comparison in comparisons],
    }


def _print_comparison(first: Result, comparisons: Sequence[Comparison]) -> None:
    from discreet.experiments import sweep as sweeps

    table = new_table(*sweeps.HEAD, right=sweeps.HEAD[2:])
    for row in sweeps.comparison_rows(comparisons):
        table.add_row(*(cell.replace(" [", "\n[") for cell in row))
    to = console()
    to.print(
        f"{first.users:,} users on {first.environment}, compared with {comparisons[0].label}", style="bold"
    )
    to.print(table)
    to.print(sweeps.caption(comparisons))
    to.print()


@command
def plot(
    folders: Annotated[list[Path], typer.Argument(help="Result folders, or folders of a sweep.")],
    out: Annotated[Path, typer.Option(help="File: .png, .pdf or .svg.")] = Path("regret.png"),
    scale: Annotated[str, typer.Option(help="log or linear.")] = "log",
    title: Annotated[str | None, typer.Option(help="Title of the figure.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Draw cumulative regret against users, mean and band over seeds, with a reference."""
    from discreet.experiments.plots import legend_label, regret_figure
    from discreet.experiments.sweep import load_results

    results = load_results(folders)
    regret_figure(results, out, scale=scale, title=title)
    if as_json:
        print_json({"figure": str(out), "curves": [legend_label(result) for result in results]})
    else:
        console().print(f"figure: {out}")


@command
def check(
    module: Annotated[
        str | None, typer.Argument(help="A module that registers names; default: everything.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check learners, privatizers and environments against the public contract."""
    from discreet import conformance

    _announce_compilation()
    outcomes = []
    for case in conformance.cases(module):
        outcome = case.outcome()
        outcomes.append(outcome)
        if not as_json:
            print(f"{outcome.status:8}{case}{f': {outcome.message}' if outcome.message else ''}", flush=True)
    tally = Counter(outcome.status for outcome in outcomes)
    if as_json:
        counts = {status: tally[status] for status in ("passed", "skipped", "failed")}
        print_json({**counts, "cases": [outcome.to_json() for outcome in outcomes]})
    else:
        print(f"{tally['passed']} passed, {tally['skipped']} not applicable, {tally['failed']} failed")
    if tally["failed"]:
        raise typer.Exit(1)


# ------------------------------------------------------------------------------------- audit
@command
def audit(
    privatizer: Annotated[str | None, typer.Option(help="Privatizer.")] = None,
    learner: Annotated[str | None, typer.Option(help="Learner that asks and plans.")] = None,
    epsilon: Annotated[float, typer.Option(help="Privacy budget, above 0.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Privacy delta, in (0, 1); 0: pure epsilon.")] = 0.0,
    preset: Annotated[str | None, typer.Option(help="Named settings: paper, ...")] = None,
    option: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for learner or privatizer.")] = None,
    runs: Annotated[int, typer.Option(help="Runs in each of the two worlds, from 800 on.")] = 8000,
    seed: Annotated[int, typer.Option(help="Seed of everything.")] = 1,
    alarm: Annotated[float, typer.Option(help="Probability of a false alarm.")] = 1e-6,
    everything: Annotated[
        bool, typer.Option("--all", help="Every mechanism at epsilon (and at delta, by default 1e-6).")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="With --all: write the tables as Markdown.")] = None,
    plugin: PluginOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Try to refute a privacy claim: lower bounds on epsilon and mu, and identities of the noise."""
    from discreet import registry

    for module in plugin or []:
        registry.load_plugin(module)
    _announce_compilation()
    if everything:
        if privatizer is not None or learner is not None or preset is not None or option:
            raise ValueError("--all: must be given without privatizer, learner, preset and option")
        _audit_all(registry.mechanisms(epsilon, delta or 1e-6), runs, seed, alarm, out, as_json)
        return
    if privatizer is None:
        raise ValueError("privatizer is missing: give --privatizer NAME, or --all")
    if out is not None:
        raise ValueError(f"out = {out}: must be given with --all only")
    if "epsilon" not in registry.options_of(registry.entry("privatizer", privatizer).factory()):
        raise ValueError(
            f"privatizer = {privatizer!r}: claims no guarantee, so there is nothing to audit; must be one "
            "that takes a budget"
        )
    learns, protects = _audited(privatizer, learner, epsilon, delta, preset, _pairs("option", option))
    from discreet.experiments import audit as audits

    found = audits.audit(
        protects, learns, runs=runs, seed=seed, alarm=alarm, names=(privatizer, learner or "")
    )
    if as_json:
        print_json(found.to_json())
    else:
        _print_audit(found)
    if found.failures:
        raise typer.Exit(1)


def _audited(
    privatizer: str,
    learner: str | None,
    epsilon: float,
    delta: float,
    preset: str | None,
    pairs: dict[str, str],
) -> tuple[Any, Any]:
    """(learner or None, privatizer) from names and options."""
    from discreet import registry
    from discreet.experiments.config import RunConfig

    if learner is not None:
        table = {"learner": learner, "privatizer": privatizer, "epsilon": epsilon, "delta": delta}
        extra = {} if preset is None else {"preset": preset}
        config = RunConfig.from_table({**table, **extra, "options": pairs})
        _, learns, protects = registry.objects(registry.resolved(config))
        return learns, protects
    given = {name.removeprefix("privatizer."): value for name, value in pairs.items()}
    takes = registry.options_of(registry.entry("privatizer", privatizer).factory())
    budget = {"epsilon": epsilon, "delta": delta} if "delta" in takes else {"epsilon": epsilon}
    return None, registry.build("privatizer", privatizer, preset, {**given, **budget})


def _print_audit(found: Any) -> None:
    claim = found.guarantee
    words = (
        "nothing" if claim.epsilon is None else f"epsilon = {claim.epsilon:.6g} at delta = {claim.delta:g}"
    )
    if claim.mu is not None:
        words += f", mu = {claim.mu:.6g}"
    bounds = new_table("black box, H = 1", "epsilon at least", "mu at least", "seen in the two worlds")
    for game, one in zip(("one release", "five releases"), found.evidence, strict=True):
        for b in one.bounds:
            epsilon, mu = (f"{max(0.0, value):.3f}" for value in (b.epsilon, b.mu))
            seen = f"{b.hits[0]} and {b.hits[1]} of {b.runs}"
            bounds.add_row(f"{game}: {b.statistic}", epsilon, mu if claim.mu is not None else "", seen)
    checks = new_table("white box, full size", "", "")
    for one in found.identities:
        word = {True: "passed", False: "FAILED", None: "-"}[one.passed]
        checks.add_row(one.name, word, one.found)
    to = console()
    to.print(f"{found.privatizer} claims, at H = 1, {words}.")
    to.print(bounds)
    to.print(checks)
    to.print(found.verdict)


def _audit_all(
    mechanisms: Sequence[tuple[str, Any]], runs: int, seed: int, alarm: float, out: Path | None, as_json: bool
) -> None:
    from discreet.experiments import audit as audits

    done, fitting = [], []
    for name, privatizer in mechanisms:
        try:
            done.append(audits.audit(privatizer, runs=runs, seed=seed, alarm=alarm, names=(name, "")))
        except ValueError as error:
            say(f"discreet: {name} is left out: {error}")
            continue
        fitting.append((name, privatizer))
        said = "FAILED" if done[-1].failures else "nothing found"
        say(f"discreet: {name}: {said}, {done[-1].seconds:.0f} s")
    power = audits.power_table(fitting, alarm)
    text = f"{audits.table(done)}\n\n{power}\n"
    if out is not None:
        out.write_text(text, encoding="utf-8")
    if as_json:
        print_json({"audits": [one.to_json() for one in done], "out": None if out is None else str(out)})
    else:
        print(text, end="")
    if any(one.failures for one in done):
        raise typer.Exit(1)


# -------------------------------------------------------------------------- reproduce, warmup
@command
def reproduce(
    paper: Annotated[str, typer.Argument(help="chowdhury-zhou-2021 or price-of-privacy.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version, for a first look and for CI.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder (default: results/PAPER).")] = None,
    workers: WorkersOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Reproduce a paper's figure with the guarantee that its noise really buys, or price-of-privacy."""
    known = [*_papers(), _STUDY]
    if paper not in known:
        raise ValueError(f"paper = {paper!r}: must be one of {', '.join(known)}")
    if paper == _STUDY:
        _price_of_privacy(out or Path("results") / paper, quick, workers, as_json)
        return
    module = importlib.import_module(f"discreet.experiments.papers.{paper.replace('-', '_')}")
    _announce_compilation()
    document = module.reproduce(out or Path("results") / paper, quick=quick, workers=workers, say=say)
    if as_json:
        print_json(document)
        return
    from discreet.experiments.statistics import number

    numbers = ("true ε", "users", "final regret", "uniform policy", "learning begins after")
    table = new_table("curve", "", *numbers, right=numbers)
    for curve in document["curves"]:
        epsilon, begins = curve["epsilon_true"], curve["learning_begins"]
        table.add_row(
            curve["curve"], curve["column"], "none" if epsilon is None else f"{epsilon:.4g}",
            f"{curve['users']:,}", f"{number(curve['final_regret'])} ± {number(curve['standard_error'])}",
            number(curve["uniform_regret"]), "—" if begins is None else f"{begins:,}",
        )  # fmt: skip
    console().print(table)
    console().print(f"Means over {document['seeds']} seeds ± standard errors.")


_STUDY = "price-of-privacy"


def _price_of_privacy(out: Path, quick: bool, workers: int | None, as_json: bool) -> None:
    from discreet import registry
    from discreet.experiments import price_of_privacy, price_pages

    def prepare(config: RunConfig) -> tuple[RunConfig, Setup]:
        resolved = registry.resolved(config)
        return resolved, registry.prepare(resolved)

    _announce_compilation()
    size = price_of_privacy.QUICK if quick else price_of_privacy.FULL
    with progress_bar("price of privacy", price_of_privacy.runs_planned(size), "runs") as progress:
        study = price_of_privacy.reproduce(out, prepare, size, workers, progress, say)
    if as_json:
        print_json(study.to_json())
        return
    for title, table in price_pages.summary(study):
        console().print(title, style="bold")
        wide = len(table[0]) > 8  # else the first column would be squeezed out
        shown = new_table(*table[0], right=() if wide else table[0][1:])
        for row in table[1:]:
            shown.add_row(*row)
        console().print(shown)


def _papers() -> list[str]:
    """Papers with a figure to reproduce by a command."""
    import pkgutil

    from discreet.experiments import papers

    names = [m.name for m in pkgutil.iter_modules(papers.__path__) if "_kernels" not in m.name]
    modules = {name: importlib.import_module(f"discreet.experiments.papers.{name}") for name in names}
    return sorted(name.replace("_", "-") for name, module in modules.items() if hasattr(module, "reproduce"))


@command
def warmup(as_json: JsonFlag = False) -> None:
    """Compile every kernel once, so that later runs start at once."""
    from discreet.conformance import run_every_combination
    from discreet.numerics.compile import cache_folder

    folder = cache_folder()
    say("discreet: compiling kernels (up to a minute with an empty cache) ...")
    begin = time.perf_counter()
    count = run_every_combination()
    seconds = time.perf_counter() - begin
    where = "kept in memory only: no cache folder can be written" if folder is None else f"cached in {folder}"
    say(f"discreet: kernels ready after {seconds:.1f} s ({count} combinations run once), {where}")
    if as_json:
        print_json(
            {"seconds": seconds, "combinations": count, "cache": None if folder is None else str(folder)}
        )


# ------------------------------------------------------------------------------------- entry
def _version(asked: bool) -> None:
    if asked:
        from discreet import __version__

        print(f"discreet {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of the ``discreet`` command."""
    app()


if __name__ == "__main__":
    main()
