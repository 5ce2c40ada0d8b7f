"""Commands that test implementations, declarations and privacy claims, and the command ``warmup``.

The commands are check-plugin, check-noise, check-vector and audit.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.common import (
    EnvOption,
    EnvOptions,
    JsonFlag,
    KnobOptions,
    PluginOption,
    announce_compilation,
    check_files,
    command,
    console,
    new_table,
    pairs,
    print_json,
    say,
    settings_of,
)

if TYPE_CHECKING:
    from discreet.audit.conformance import CheckResult
    from discreet.audit.declared import DeclaredChecks


@command
def check_plugin(
    module: Annotated[
        str | None, typer.Argument(help="Module that registers names (default: all names).")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check learners, privatizers and environments against their public interfaces."""
    from discreet.audit import conformance

    announce_compilation()
    outcomes = []
    for case in conformance.plugin_cases(module):
        outcome = case.outcome()
        outcomes.append(outcome)
        if not as_json:
            _print_outcome(outcome)
    _summarize(outcomes, as_json)


def _print_outcome(outcome: CheckResult) -> None:
    message = f": {outcome.message}" if outcome.message else ""
    print(f"{outcome.status:8}{outcome.subject}: {outcome.check}{message}", flush=True)


def _summarize(outcomes: Sequence[CheckResult], as_json: bool) -> None:
    """Print how many checks passed. The exit status is 1 if a check failed."""
    tally = Counter(outcome.status for outcome in outcomes)
    if as_json:
        counts = {status: tally[status] for status in ("passed", "skipped", "failed")}
        print_json({**counts, "cases": [outcome.to_json() for outcome in outcomes]})
    else:
        print(f"{tally['passed']} passed, {tally['skipped']} not applicable, {tally['failed']} failed")
    if tally["failed"]:
        raise typer.Exit(1)


# -------------------------------------------------------------------------------- declarations
@command
def check_noise(
    noise: Annotated[
        str,
        typer.Argument(metavar="MODULE:NAME", help="Module, and the name of a noise or of its class in it."),
    ],
    scale: Annotated[float, typer.Option(help="Scale of the noise.")] = 1.0,
    grid: Annotated[int, typer.Option(help="Draws are multiples of 1 / GRID; a power of two.")] = 64,
    largest: Annotated[float, typer.Option(help="Largest shift of one coordinate.")] = 1.0,
    draws: Annotated[int, typer.Option(help="Number of draws, from 10000 on.")] = 200_000,
    as_json: JsonFlag = False,
) -> None:
    """Check the cost, the probabilities and the draws of a noise that you define."""
    from discreet.audit import declared

    _declared(declared.check_noise(_named("noise", noise), scale, grid, draws, largest), as_json)


@command
def check_vector(
    vector: Annotated[
        str, typer.Argument(metavar="MODULE:NAME", help="Module, and the name of a bounded vector in it.")
    ],
    env: EnvOption = None,
    env_option: EnvOptions = None,
    context: Annotated[
        Path | None, typer.Option(help="File .npz of the public arrays that the function receives.")
    ] = None,
    records: Annotated[int, typer.Option(help="Number of random trajectories, at least 10.")] = 200,
    as_json: JsonFlag = False,
) -> None:
    """Check that a vector that you define is a function of one user's trajectory only."""
    import numpy as np

    from discreet import registry
    from discreet.audit import declared

    check_files([], **({} if context is None else {"context": context}))
    found = _named("vector", vector)
    world = registry.build("environment", env or "riverswim", None, pairs("env-option", env_option))
    arrays = {} if context is None else dict(np.load(context, allow_pickle=False))
    _declared(declared.check_vector(found, world.layout, arrays, records), as_json)


def _named(what: str, path: str) -> Any:
    """Return the object MODULE:NAME; an instance if it is a class without required arguments."""
    from discreet import registry

    module, _, name = path.partition(":")
    if not module or not name:
        raise ValueError(f"{what} = {path!r}: must be MODULE:NAME")
    registry.load_plugin(module)
    found = getattr(sys.modules[module], name, None)
    if found is None:
        raise ValueError(f"{what} = {path!r}: module {module!r} has no {name!r}")
    try:
        return found() if isinstance(found, type) else found
    except TypeError as error:
        raise ValueError(f"{what} = {path!r}: the class has no such instance ({error})") from error


def _declared(found: DeclaredChecks, as_json: bool) -> None:
    if not as_json:
        for outcome in found.results:
            _print_outcome(outcome)
    _summarize(found.results, as_json)


# ------------------------------------------------------------------------------------- audit
@command
def audit(
    privatizer: Annotated[str | None, typer.Option(help="Privatizer.")] = None,
    learner: Annotated[str | None, typer.Option(help="Learner whose query and plans are used.")] = None,
    epsilon: Annotated[float, typer.Option(help="Privacy budget, above 0.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Privacy delta, in (0, 1); 0: pure epsilon.")] = 0.0,
    option: KnobOptions = None,
    runs: Annotated[int, typer.Option(help="Runs with each of the two data sets, at least 800.")] = 8000,
    seed: Annotated[int, typer.Option(help="Seed of everything.")] = 1,
    alarm: Annotated[float, typer.Option(help="Probability of a false alarm.")] = 1e-6,
    everything: Annotated[
        bool, typer.Option("--all", help="Audit every mechanism at epsilon (and at delta, 1e-6 by default).")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="With --all: write the tables as Markdown.")] = None,
    plugin: PluginOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Try to refute a privacy claim: bound epsilon and mu from below, and check the noise."""
    from discreet import registry

    for module in plugin or []:
        registry.load_plugin(module)
    announce_compilation()
    if everything:
        if privatizer is not None or learner is not None or option:
            raise ValueError("--all: must be given without privatizer, learner and set")
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
    learns, protects = _audited(privatizer, learner, epsilon, delta, option)
    from discreet.audit import run as audits

    found = audits.audit_privatizer(
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
    option: list[str] | None,
) -> tuple[Any, Any]:
    """Build (learner, privatizer) from names and options. If ``learner`` is None, the returned learner is
    None.
    """
    from discreet import registry
    from discreet.experiments import build_run
    from discreet.experiments.run_config import RunConfig

    preset, options = settings_of(option)
    if learner is not None:
        table = {"learner": learner, "privatizer": privatizer, "epsilon": epsilon, "delta": delta}
        extra = {} if preset is None else {"preset": preset}
        config = RunConfig.from_table({**table, **extra, "options": options})
        _, learns, protects = build_run.objects(build_run.resolved(config))
        return learns, protects
    given = {name.removeprefix("privatizer."): value for name, value in options.items()}
    takes = registry.options_of(registry.entry("privatizer", privatizer).factory())
    budget = {"epsilon": epsilon, "delta": delta} if "delta" in takes else {"epsilon": epsilon}
    return None, registry.build("privatizer", privatizer, preset, {**given, **budget})


def _print_audit(found: Any) -> None:
    from discreet.accounting.text.guarantee_sentences import up

    claim = found.guarantee
    words = (
        "nothing" if claim.epsilon is None else f"epsilon = {up(claim.epsilon, 6)} at delta = {claim.delta:g}"
    )
    if claim.mu is not None:
        words += f", mu = {up(claim.mu, 6)}"
    bounds = new_table(
        f"black box, H = {found.horizon}", "epsilon at least", "mu at least", "seen in the two worlds"
    )
    for game, one in zip(found.games, found.evidence, strict=True):
        for b in one.bounds:
            epsilon, mu = (f"{max(0.0, value):.3f}" for value in (b.epsilon, b.mu))
            seen = f"{b.hits[0]} and {b.hits[1]} of {b.runs}"
            bounds.add_row(f"{game}: {b.statistic}", epsilon, mu if claim.mu is not None else "", seen)
    checks = new_table("white box, full size", "", "")
    for one in found.identities:
        word = {True: "passed", False: "FAILED", None: "-"}[one.passed]
        checks.add_row(one.name, word, one.found)
    to = console()
    to.print(f"{found.privatizer} claims, at H = {found.horizon}, {words}.")
    to.print(f"Mechanism at the size asked for: {found.mechanisms[0]}; in the games: {found.mechanisms[1]}.")
    to.print(bounds)
    to.print(checks)
    to.print(found.verdict)


def _audit_all(
    mechanisms: Sequence[tuple[str, Any]], runs: int, seed: int, alarm: float, out: Path | None, as_json: bool
) -> None:
    from discreet.audit import run as audits

    done, fitting = [], []
    for name, privatizer in mechanisms:
        try:
            done.append(
                audits.audit_privatizer(privatizer, runs=runs, seed=seed, alarm=alarm, names=(name, ""))
            )
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


# ------------------------------------------------------------------------------------ warmup
@command
def warmup(as_json: JsonFlag = False) -> None:
    """Compile every kernel now, so that later runs start without delay."""
    from discreet.audit.conformance import run_every_combination
    from discreet.core.compile import cache_folder

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
