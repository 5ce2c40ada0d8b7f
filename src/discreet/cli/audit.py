"""Commands that give evidence: check, audit, reproduce, records; and warmup."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from discreet.cli.common import (
    EngineOption,
    JsonFlag,
    PluginOption,
    WorkersOption,
    announce_compilation,
    command,
    console,
    new_table,
    pairs,
    print_json,
    progress_bar,
    say,
)


@command
def check(
    module: Annotated[
        str | None, typer.Argument(help="A module that registers names; default: everything.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check learners, privatizers and environments against the public contract."""
    from discreet import conformance

    announce_compilation()
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
    announce_compilation()
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
    learns, protects = _audited(privatizer, learner, epsilon, delta, preset, pairs("option", option))
    from discreet.audits import run as audits

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
    from discreet.experiments import build_run
    from discreet.experiments.run_config import RunConfig

    if learner is not None:
        table = {"learner": learner, "privatizer": privatizer, "epsilon": epsilon, "delta": delta}
        extra = {} if preset is None else {"preset": preset}
        config = RunConfig.from_table({**table, **extra, "options": pairs})
        _, learns, protects = build_run.objects(build_run.resolved(config))
        return learns, protects
    given = {name.removeprefix("privatizer."): value for name, value in pairs.items()}
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
    from discreet.audits import run as audits

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
    paper: Annotated[
        str,
        typer.Argument(
            help="bai-2024, chowdhury-zhou-2021, luyo-2021, qiao-wang-2023-offline or price-of-privacy."
        ),
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version, for a first look and for CI.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder (default: results/PAPER).")] = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Reproduce a paper's figure with the guarantee that its noise really buys, or price-of-privacy."""
    from discreet import reproductions
    from discreet.experiments.engine import open_engine
    from discreet.reproductions.study import Job, reproduce

    found, folder = reproductions.load(paper), out or Path("results") / paper
    announce_compilation()
    with ExitStack() as stack:
        local = engine in (None, "local")
        there = None if local else stack.enter_context(open_engine(str(engine), workers))
        progress = None
        if found.planned is not None:
            progress = stack.enter_context(progress_bar(paper, found.planned(quick), "runs"))
        document = reproduce(found, Job(folder, quick, workers, say, progress, there))
    if as_json:
        print_json(document)
        return
    for one in document["tables"]:
        console().print(one["title"], style="bold")
        shown = new_table(*one["head"])
        for row in one["rows"]:
            shown.add_row(*(cell.replace("*", "") for cell in row))  # emphasis of the page
        console().print(shown)
    if quick:
        say("discreet: --quick has too few users and seeds for verdicts: those of the full version count")


# ----------------------------------------------------------------------------------- records
@command
def records(
    what: Annotated[
        str,
        typer.Argument(
            help="verify: check submissions. fill: run one. broad: make them. table, tasks: show."
        ),
    ],
    files: Annotated[
        list[Path] | None, typer.Argument(help="Submissions, or folders of them (TOML or JSON).")
    ] = None,
    rerun: Annotated[bool, typer.Option("--rerun", help="verify: run one of the seeds again.")] = False,
    out: Annotated[Path | None, typer.Option(help="fill: the file to write; broad: the folder.")] = None,
    page: Annotated[Path | None, typer.Option(help="table: a page, whose tables are replaced.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="fill: number of runs (default: the task's least).")
    ] = None,
    about: Annotated[
        Path | None, typer.Option(help="broad: TOML with system, who, code, commit, date ...")
    ] = None,
    workers: WorkersOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Records of private RL: verify submissions, make them, show the tables (docs/records.md)."""
    from discreet.core import checks

    checks.choice("what", what, ("verify", "fill", "broad", "table", "tasks"))
    if what == "verify":
        _verify_records(_submissions(files), rerun, as_json)
    elif what == "fill":
        _fill_record(files, out, seeds, workers)
    elif what == "broad":
        _broad_records(files, about, out)
    else:
        _show_records(files, page, what == "tasks")


def _prepare(config: Any) -> Any:
    from discreet.experiments import build_run

    return build_run.prepare(build_run.resolved(config))


def _submissions(files: Sequence[Path] | None) -> list[Path]:
    found = []
    for file in files or ():
        inside = (
            (one for one in file.iterdir() if one.suffix in (".toml", ".json")) if file.is_dir() else [file]
        )
        found += sorted(inside)
    if not found:
        raise ValueError("files: must name submissions, or folders that hold some")
    return found


def _verify_records(files: Sequence[Path], rerun: bool, as_json: bool) -> None:
    from discreet.experiments import records as rows

    everything, document = True, []
    for file in files:
        given = rows.read(file)
        found = rows.verify(given, _prepare, rerun)
        everything &= all(one.ok is not False for one in found)
        document.append(
            {"file": str(file), "task": given.task.name, "checks": [one.to_json() for one in found]}
        )
        if not as_json:
            print(f"{file}: {given.task.name}, {given.system}")
            for one in found:
                word = {True: "as stated", False: "NOT AS STATED", None: "not recomputed"}[one.ok]
                print(f"  {one.name}: {word}: {one.words}", flush=True)
    if as_json:
        print_json(document)
    raise typer.Exit(0 if everything else 1)


def _one(files: Sequence[Path] | None, words: str) -> Path:
    if files is None or len(files) != 1:
        raise ValueError(f"files: must be one file, {words}")
    return files[0]


def _fill_record(
    files: Sequence[Path] | None, out: Path | None, seeds: int | None, workers: int | None
) -> None:
    from discreet.experiments import records as rows
    from discreet.utils.atomic_file import write_aside

    file = _one(files, "a submission without results")
    announce_compilation()
    text = rows.fill(file, _prepare, seeds, workers)
    write_aside(out or file, text.encode())
    say(f"discreet: {out or file}")


def _broad_records(files: Sequence[Path] | None, about: Path | None, out: Path | None) -> None:
    from discreet.experiments import records as rows
    from discreet.utils.atomic_file import write_aside
    from discreet.utils.toml_file import read_toml

    file = _one(files, "the JSON lines of `python -m studies.broad --out`")
    if about is None or out is None:
        raise ValueError(
            "about, out: must be a TOML file (name, budget, system, who, ..., guarantee) and a folder"
        )
    facts = read_toml(about)
    name, budget = facts.pop("name", None), facts.pop("budget", None)
    if not (isinstance(name, str) and isinstance(budget, str)):
        raise ValueError(f"{about}: must have name, of the files, and budget, as the study calls it")
    guarantee = facts.pop("guarantee", {})
    texts, missing = rows.broad(file.read_text("utf-8").splitlines(), budget, facts, guarantee)
    for task, text in texts.items():
        out.mkdir(parents=True, exist_ok=True)
        write_aside(out / f"{task}-{name}.toml", text.encode())
        say(f"discreet: {out / f'{task}-{name}.toml'}")
    for words in missing:
        say(f"discreet: not made: {words}")
    raise typer.Exit(0 if texts else 1)


def _show_records(files: Sequence[Path] | None, page: Path | None, tasks: bool) -> None:
    from discreet.experiments import records as rows
    from discreet.utils.atomic_file import write_aside
    from discreet.utils.markdown_table import markdown

    if tasks:
        print(markdown(rows.tasks_table()))
        return
    given = [rows.read(file) for file in _submissions(files)]
    if page is None:
        print(rows.table(given), end="")
        return
    write_aside(page, rows.written(page.read_text("utf-8"), given).encode())


@command
def warmup(as_json: JsonFlag = False) -> None:
    """Compile every kernel once, so that later runs start at once."""
    from discreet.conformance import run_every_combination
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
