"""Commands for stored trajectories, such as ``learn``, ``power``, ``verify`` and ``ledger``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.common import (
    DeltaOption,
    Group,
    JsonFlag,
    PluginOption,
    announce_compilation,
    app,
    check_files,
    command,
    console,
    guarded,
    new_table,
    pairs,
    print_json,
    say,
    settings_of,
    typed_pairs,
)
from discreet.cli.examples import examples_of
from discreet.cli.passphrases import PassphraseFile, passphrase_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from discreet.data.row_batches import Progress, Source
    from discreet.data.schema import Schema
    from discreet.envs.mdp.tabular import TabularMDP
    from discreet.ledger.ledger import Ledger, TotalCost
    from discreet.pipeline.learn import LearnConfig, LearnResult
    from discreet.pipeline.power_analysis import PublicMDP
    from discreet.pipeline.synthetic_utility import Utility
    from discreet.reports.rule_files import StationaryRule


SqlOption = Annotated[
    str | None,
    typer.Option(
        help="A query of the database duckdb://FILE, or of the given files; it can read no other file.",
        rich_help_panel="Source",
    ),
]
_FORMAT = (
    "KEY=VALUE. Format of CSV files: delimiter (default: found from their first line), decimal (. or ,), "
    "encoding (a name in Python). Or scratch: a folder for temporary files. "
)
_SYNTHETIC = (
    "Or synthetic=true: the files hold users of `discreet synthesize`; intervals describe their model. "
)
_WORKERS = "Or workers: threads that read, check and count (default: all processors). "
SourceOption = Annotated[
    list[str] | None, typer.Option(help=f"{_FORMAT}Repeatable.", rich_help_panel="Source")
]
_KINDS = {
    "delimiter": str,
    "decimal": str,
    "encoding": str,
    "scratch": str,
    "synthetic": bool,
    "workers": int,
}
_SOURCE = ("delimiter", "decimal", "encoding", "scratch")
LearnerSettings = Annotated[
    list[str] | None,
    typer.Option("--set", help="KEY=VALUE for the learner; preset=NAME: named settings. Repeatable."),
]
SettingOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="KEY=VALUE for the learner; privatizer.KEY=VALUE for the noise; preset=NAME: named settings. "
        "Repeatable.",
    ),
]


def source_of(given: Sequence[str] | None, *keys: str) -> dict[str, Any]:
    """Return the keys and values of ``--source``.

    - keys : allowed keys. Default: those of CSV files, and ``scratch``.
    """
    return typed_pairs("source", given, {key: _KINDS[key] for key in keys or _SOURCE})


def queried(files: Sequence[str] | None, sql: str | None) -> tuple[list[str], list[str] | None]:
    """Return the sources of rows, and the files that a query of ``duckdb://`` can read.

    With a query and without a database, the query reads the given files.
    """
    given = list(files or ())
    if sql is None or any(one.startswith("duckdb://") and one != "duckdb://" for one in given):
        return given, None
    return ["duckdb://"], [one for one in given if one != "duckdb://"] or None


@contextmanager
def rows_bar() -> Iterator[Progress]:
    """Show a progress bar on standard error for each stage of a computation.

    Yields the function that reports progress; its arguments are (name of the stage, number done, total
    number).
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[parts]}"))
    with Progress(
        *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        tasks: dict[str, TaskID] = {}

        def update(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                for stage in tasks.values():
                    bar.stop_task(stage)
                tasks[what] = bar.add_task(what, total=total, parts="")
            of = f" of {total:,}" if total else ""
            bar.update(
                tasks[what], completed=done, total=total, parts=f"{done:,}{of}" if done or total else ""
            )

        yield update


# ------------------------------------------------------------------------------------- learn
LearnedFolder = Annotated[
    Path | None, typer.Option("--out", help="New folder for release, policy, report, statement.")
]
OfflineLearner = Annotated[
    str | None,
    typer.Option(
        "--learner",
        help="NAMES(offline learner). Default: decision-points where the schema says stationary = true, "
        "dp-apvi elsewhere.",
    ),
]
BudgetEpsilon = Annotated[
    float | None, typer.Option("--epsilon", help="Privacy budget, above 0.", rich_help_panel="Budget")
]
BudgetDelta = Annotated[
    float | None,
    typer.Option("--delta", help="Privacy delta, in (0, 1); 0: pure epsilon.", rich_help_panel="Budget"),
]
LedgerOption = Annotated[
    Path | None, typer.Option(help="Ledger (default: the user's own).", rich_help_panel="Budget")
]
BudgetRho = Annotated[
    float | None, typer.Option("--rho", help="Budget in zCDP instead of epsilon.", rich_help_panel="Budget")
]
UnsupportedOption = Annotated[
    str,
    typer.Option(
        help="Action where there are too few data: abstain, behaviour or policy.",
        rich_help_panel="Report and statement",
    ),
]
CompareOption = Annotated[
    list[Path] | None,
    typer.Option(
        help="RULE.csv (state,action[,probability]), or a folder with a policy.csv: the report compares "
        "the policy with it. For decision points whose rewards are paid by a rule. Repeatable.",
        rich_help_panel="Report and statement",
    ),
]
ReportOption = Annotated[
    list[str] | None,
    typer.Option(
        help="KEY=VALUE. Lines of the statement: operator (who runs this), approval (who approved it), "
        "purpose (also a line of the ledger). The report: level of its intervals (default: 0.95); "
        "return_bound with dp-apvi or apvi, the public bound of one episode's return, in [0, 1] a step "
        "(default: H; other learners take it from the schema). Repeatable.",
        rich_help_panel="Report and statement",
    ),
]
_REPORT = {"operator": str, "approval": str, "purpose": str, "level": float, "return_bound": float}
SeedOption = Annotated[
    int | None, typer.Option(help="For simulation: noise from a seed, which protects no user.")
]
JudgeShare = Annotated[
    float | None,
    typer.Option(
        "--judge-share",
        help="Share of users, in (0, 1), who evaluate the policy instead of being learned from, with the "
        "same budget: each user is in one of the two groups. For linear-advantage, and for decision points "
        "whose rewards are paid by a rule.",
    ),
]


@command
def learn(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Parquet or CSV files, folders, s3://..., duckdb://FILE?table=NAME, minari:NAME; or parts "
            "that `discreet aggregate` made (.tally)."
        ),
    ] = None,
    schema: Annotated[Path | None, typer.Option(help="SCHEMA.toml: what is public about the data.")] = None,
    sql: SqlOption = None,
    source: Annotated[
        list[str] | None,
        typer.Option(help=f"{_FORMAT}{_SYNTHETIC}{_WORKERS}Repeatable.", rich_help_panel="Source"),
    ] = None,
    learner: OfflineLearner = None,
    epsilon: BudgetEpsilon = None,
    delta: BudgetDelta = None,
    rho: BudgetRho = None,
    out: LearnedFolder = None,
    option: SettingOptions = None,
    unsupported: UnsupportedOption = "abstain",
    compare: CompareOption = None,
    judge_share: JudgeShare = None,
    ledger: LedgerOption = None,
    no_ledger: Annotated[
        bool,
        typer.Option(
            "--no-ledger",
            help="Write nothing down; the statement says so in capitals.",
            rich_help_panel="Budget",
        ),
    ] = False,
    seed: SeedOption = None,
    report: ReportOption = None,
    plugin: PluginOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Learn a policy from stored trajectories, with one private release, a report and a statement."""
    out = _prepared(out, plugin, learner)
    _check_sources(files, schema, sql, ledger, no_ledger, seed)
    assert schema is not None
    written = source_of(source, *_KINDS)
    scratch, workers = written.pop("scratch", None), written.pop("workers", None)
    synthetic_input = written.pop("synthetic", False)
    people = _looked_at(files, schema, sql, written, out, synthetic_input)

    from discreet.pipeline.learn import LearnConfig

    settings = LearnConfig(
        unsupported=unsupported,  # type: ignore[arg-type]  # LearnConfig checks it
        synthetic_input=synthetic_input,
        compare=_rules(compare, people[0]),
        **typed_pairs("report", report, _REPORT),
    )
    announce_compilation()
    outcome = _first(
        people, learner, _given(epsilon, delta, rho), option, out, settings, 0, ledger, no_ledger, seed,
        scratch, workers, judge_share,
    )  # fmt: skip
    _print_learned(outcome, out, as_json)


@command
def dry_run(
    schema: Annotated[Path, typer.Argument(help="SCHEMA.toml: what is public about the data.")],
    users: Annotated[int, typer.Option(help="Number of synthetic users.")] = 1000,
    source: Annotated[
        list[str] | None,
        typer.Option(
            help="scratch=DIR: folder for temporary files. workers=N: threads that read, check and count.",
            rich_help_panel="Source",
        ),
    ] = None,
    learner: OfflineLearner = None,
    epsilon: BudgetEpsilon = None,
    delta: BudgetDelta = None,
    rho: BudgetRho = None,
    out: LearnedFolder = None,
    option: SettingOptions = None,
    unsupported: UnsupportedOption = "abstain",
    compare: CompareOption = None,
    judge_share: JudgeShare = None,
    seed: SeedOption = None,
    report: ReportOption = None,
    plugin: PluginOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Run `discreet learn` on synthetic users of a schema, without data and without a ledger entry."""
    out = _prepared(out, plugin, learner)
    reading = source_of(source, "scratch", "workers")
    scratch, workers = reading.get("scratch"), reading.get("workers")
    people = _looked_at(None, schema, None, None, out)

    from discreet.pipeline.learn import LearnConfig

    settings = LearnConfig(
        unsupported=unsupported,  # type: ignore[arg-type]  # LearnConfig checks it
        synthetic=True,
        compare=_rules(compare, people[0]),
        **typed_pairs("report", report, _REPORT),
    )
    announce_compilation()
    outcome = _first(
        people, learner, _given(epsilon, delta, rho), option, out, settings, users, None, False, seed,
        scratch, workers, judge_share,
    )  # fmt: skip
    _print_learned(outcome, out, as_json)


@command
def replan(
    release: Annotated[Path, typer.Argument(help="DIR/release.parquet of a folder that `learn` made.")],
    out: LearnedFolder = None,
    learner: Annotated[
        str | None, typer.Option(help="NAMES(offline learner). Default: that of the release.")
    ] = None,
    option: LearnerSettings = None,
    unsupported: UnsupportedOption = "abstain",
    compare: CompareOption = None,
    rewards: Annotated[
        Path | None, typer.Option(help="Known rewards instead of those of the schema: .csv or .npy.")
    ] = None,
    report: ReportOption = None,
    plugin: PluginOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Compute another policy from a release, without data, privacy budget or ledger entry."""
    out = _prepared(out, plugin, None)
    if not release.is_file():
        raise ValueError(f"release = {str(release)!r}: must be a file, DIR/release.parquet")

    from discreet.pipeline.learn import LearnConfig

    settings = LearnConfig(
        unsupported=unsupported,  # type: ignore[arg-type]  # LearnConfig checks it
        compare=_rules_of_release(compare, release),
        **typed_pairs("report", report, _REPORT),
    )
    announce_compilation()
    _print_learned(_again(release, learner, option, out, settings, rewards), out, as_json)


def _prepared(out: Path | None, plugin: list[str] | None, learner: str | None) -> Path:
    """Load the plug-ins, and return ``out``. Raises ``ValueError`` if ``out`` is None or the learner is
    unknown.
    """
    if out is None:
        raise ValueError("out is missing: give --out DIR, a new folder")
    if plugin or learner is not None:
        from discreet import registry

        for module in plugin or []:
            registry.load_plugin(module)
        if learner is not None:
            registry.entry("offline learner", learner)
    return out


def _given(epsilon: float | None, delta: float | None, rho: float | None) -> dict[str, float]:
    """Return the parameters of the privacy budget that the user gave."""
    budget = {"epsilon": epsilon, "delta": delta, "rho": rho}
    return {name: value for name, value in budget.items() if value is not None}


def _print_learned(outcome: LearnResult, out: Path, as_json: bool) -> None:
    """Print the result of learning: first line of the report, guarantee, warnings, files, next commands."""
    from discreet.pipeline.judge_group import judgement_of, verdict

    document, judged = outcome.statement.to_dict(), judgement_of(out)
    if as_json:
        more = {} if judged is None else {"judgement": judged}
        print_json({"out": str(out), "statement": document, **more})
        return
    to = console()
    to.print(outcome.report.split("\n", 1)[0].strip("*"), style="bold")
    if judged is not None:
        to.print()
        to.print(f"By the other people: {verdict(judged, document['population']['unit'])}", style="bold")
    to.print()
    to.print(document["sentence"])
    for warning in document["warnings"]:
        to.print(f"Warning: {warning}")
    to.print()
    to.print(f"{out}: {', '.join(sorted(path.name for path in out.iterdir()))}")
    to.print(
        f"Check it with `discreet verify {out}`; plan again, free of budget, with `discreet replan "
        f"{out / 'release.parquet'}`."
    )


def _rules_of_release(compare: list[Path] | None, release: Path) -> tuple[StationaryRule, ...]:
    """Read the rules to which the policy will be compared. The schema is in the folder of the release."""
    if not compare:
        return ()
    from discreet.data.schema import read_schema

    path = release.parent / "schema.toml"
    if not path.is_file():
        raise ValueError(f"{release}: schema.toml must be in the same folder")
    return _rules(compare, read_schema(path))


def _rules(compare: list[Path] | None, public: Schema) -> tuple[StationaryRule, ...]:
    """Read the rules for a comparison, so that invalid rules fail before budget is spent."""
    if not compare:
        return ()
    from discreet.reports.rule_files import read_rule

    return tuple(read_rule(path, public) for path in compare)


def _check_sources(
    files: list[str] | None, schema: Path | None, sql: str | None, ledger: Path | None, no_ledger: bool,
    seed: int | None,
) -> None:  # fmt: skip
    """Raise ``ValueError`` if options contradict each other or are missing. No file is read."""
    if schema is None:
        raise ValueError("schema is missing: give --schema SCHEMA.toml")
    if ledger is not None and no_ledger:
        raise ValueError("ledger: must not be given together with --no-ledger")
    if seed is not None and not no_ledger:
        raise ValueError(f"seed = {seed}: noise from a seed protects no user; must be given with --no-ledger")
    if not (files or sql is not None):
        raise ValueError("files: none is given; give trajectories (`discreet dry-run SCHEMA` needs none)")


def _looked_at(
    files: list[str] | None,
    schema: Path,
    sql: str | None,
    written: dict[str, Any] | None,
    out: Path,
    synthetic_input: bool = False,
) -> tuple[Schema, Source | list[str] | None]:
    """Return the schema, and the source of rows after a check of the names and types of its columns.

    The source can also be a list of files with partial aggregates, or None for synthetic data. This check
    comes before the import of learners, which takes a second. Errors in files are therefore reported without
    delay.
    """
    from discreet.data.schema import read_schema
    from discreet.utils.atomic_folder import check_free

    check_files(files or [], schema=schema)
    public = read_schema(schema)
    check_free(out)
    if written is None:
        return public, None
    from discreet.data.row_batches import open_source
    from discreet.data.sources import COUNTED

    if files and all(name.endswith(COUNTED) for name in files):
        for name, value in {"sql": sql, **written}.items():
            if value is not None:
                raise ValueError(f"{name} = {value!r}: must not be given with counted parts")
        return public, files
    where, reads = queried(files, sql)
    return public, open_source(
        where, public, sql=sql, reads=reads, synthetic_input=synthetic_input, **written
    )


def _first(
    people: tuple[Schema, Source | list[str] | None], algorithm: str | None, budget: dict[str, float],
    option: list[str] | None, out: Path, settings: LearnConfig, users: int, ledger: Path | None,
    no_ledger: bool, seed: int | None, scratch: str | None, workers: int | None, judge_share: float | None,
) -> LearnResult:  # fmt: skip
    """Learn a policy from user data, or from synthetic data if the source is None."""
    import tempfile
    from contextlib import nullcontext

    from discreet.core.rng import Secure, Seeded
    from discreet.data.validate import DataError
    from discreet.ledger.ledger import Ledger, default_path
    from discreet.pipeline import learn as pipeline
    from discreet.pipeline.learned_files import default_algorithm
    from discreet.pipeline.partial_aggregates import merge_aggregates
    from discreet.pipeline.synthetic_data import write_made_up

    public, source = people
    algorithm = algorithm or default_algorithm(public)
    learner, privatizer = _asked(algorithm, option, budget, exact=no_ledger)
    private = privatizer is not None or algorithm.startswith("dp-")
    if not (private or no_ledger or settings.synthetic):
        raise ValueError(
            f"learner = {algorithm!r}: is not private, exact sums have no epsilon for a ledger; must "
            "be given with --no-ledger"
        )
    book = None
    if not (no_ledger or settings.synthetic):
        path = default_path() if ledger is None else ledger
        if not path.exists():
            say(f"discreet: the ledger is new: {path}")
        book = Ledger.open(path)
    with tempfile.TemporaryDirectory() as made_up, book or nullcontext(), rows_bar() as progress:
        if source is None:
            source = write_made_up(
                public, users, Path(made_up) / "people.parquet", seed=seed or 0, progress=progress
            )
        how: dict[str, Any] = {
            "privatizer": privatizer, "ledger": book, "settings": settings, "progress": progress,
            "randomness": Secure() if seed is None else Seeded(seed), "judge_share": judge_share,
        }  # fmt: skip
        if isinstance(source, list):
            return pipeline.learn(merge_aggregates(source), learner, out, schema=public, **how)
        try:
            return pipeline.learn(source, learner, out, scratch=scratch, workers=workers, **how)
        except DataError as error:
            error.add_note(
                "This message is private, because it quotes a user's row (rows are counted from 0, "
                "without the header). Nothing was spent or written."
            )
            raise


@command
def aggregate(
    files: Annotated[
        list[str] | None, typer.Argument(help="Files of one part of the data, as for `discreet learn`.")
    ] = None,
    schema: Annotated[Path | None, typer.Option(help="SCHEMA.toml, the same for all parts.")] = None,
    key: Annotated[
        Path | None, typer.Option(help="The run's secret key, the same for all parts (--new-key makes it).")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A new file, NAME.tally: RAW DATA, mode 0600.")] = None,
    new_key: Annotated[
        Path | None, typer.Option(help="Only create a new key. Delete it after the run.")
    ] = None,
    sql: SqlOption = None,
    source: Annotated[
        list[str] | None, typer.Option(help=f"{_FORMAT}{_SYNTHETIC}Repeatable.", rich_help_panel="Source")
    ] = None,
    learner: Annotated[
        str | None,
        typer.Option(
            help="What will be learned: decision-points, dp-apvi or apvi (default: as for `discreet learn`)."
        ),
    ] = None,
    option: LearnerSettings = None,
    as_json: JsonFlag = False,
) -> None:
    """Compute exact sums of one part of the users for `discreet learn PARTS.tally`; they are raw data."""
    from discreet import registry
    from discreet.data.row_batches import open_source
    from discreet.data.schema import read_schema
    from discreet.data.sources import COUNTED
    from discreet.data.validate import DataError
    from discreet.pipeline import partial_aggregates as counted
    from discreet.pipeline.learned_files import default_algorithm
    from discreet.utils.atomic_folder import claimed

    if new_key is not None:
        if files or out is not None or key is not None:
            raise ValueError("new-key: must be given alone")
        say(f"discreet: a new key: {counted.new_aggregate_key(new_key)}")
        return
    for what, value in {"files": files or sql, "--schema": schema, "--key": key, "--out": out}.items():
        if not value:
            raise ValueError(f"{what.lstrip('-')} is missing: give {what}")
    assert schema is not None and key is not None and out is not None
    if out.suffix != COUNTED:
        raise ValueError(f"out = {str(out)!r}: must end in {COUNTED}")
    if out.exists() or not out.absolute().parent.is_dir():
        raise ValueError(f"out = {str(out)!r}: must be a new file in a folder that exists")
    secret, public = counted.read_aggregate_key(key), read_schema(schema)
    written = source_of(source, *_SOURCE, "synthetic")
    scratch, synthetic_input = written.pop("scratch", None), written.pop("synthetic", False)
    where, reads = queried(files, sql)
    name = learner or default_algorithm(public)
    preset, options = settings_of(option)
    if "rho" in registry.options_of(registry.entry("offline learner", name).factory()):
        options = {"rho": "1", **options}  # a budget is required, but not used
    counted_for = registry.build("offline learner", name, preset, options)
    announce_compilation()
    try:
        with claimed(out), rows_bar() as progress:
            rows = open_source(
                where, public, sql=sql, reads=reads, synthetic_input=synthetic_input, **written
            )
            part = counted.aggregate_part(rows, counted_for, secret, progress=progress, scratch=scratch)
            part.save(out)
    except DataError as error:
        error.add_note("This message is private, because it quotes a user's row. Nothing was written.")
        raise
    say(f"discreet: {out} is RAW DATA (exact sums): store and delete it like the trajectories")
    if as_json:
        print_json({"out": str(out), "people": len(part.people)})


def _again(
    release: Path,
    algorithm: str | None,
    option: list[str] | None,
    out: Path,
    settings: LearnConfig,
    rewards: Path | None,
) -> LearnResult:
    from discreet.data.schema import read_rewards, read_schema
    from discreet.pipeline import learn as pipeline

    known = None
    if rewards is not None:
        known = read_rewards(rewards, read_schema(release.parent / pipeline.SCHEMA))
    learner = _asked_again(release, algorithm, option)
    with rows_bar() as progress:
        return pipeline.replan(release, learner, out, settings=settings, rewards=known, progress=progress)


def _asked_again(release: Path, algorithm: str | None, option: list[str] | None) -> Any:
    """Return the learner for a new plan from a release.

    By default, it is the learner of the release with its stored options. Options on the command line replace
    stored options.

    The learner needs no privacy budget.
    """
    from discreet import registry
    from discreet.learners.offline.release_files import read_tables

    facts = read_tables(release).facts
    name = algorithm or facts.algorithm or "dp-apvi"
    preset, asked = settings_of(option)
    options: dict[str, Any] = {}
    if preset is None and name == facts.algorithm:
        stored = dict(facts.options.get("learner", {}))
        options = {key: value for key, value in stored.items() if key != "preset" and value is not None}
    elif "rho" in registry.options_of(registry.entry("offline learner", name).factory()):
        options = {"rho": 1.0}  # a budget is required, but not used
    options |= asked
    return registry.build("offline learner", name, preset, options)


_EITHER = (
    "decision-points",
    "linear-advantage",
    "world-model",
)  # these learners, and plug-ins, can learn from noisy sums and from exact sums


def _asked(
    algorithm: str,
    option: list[str] | None,
    budget: dict[str, float],
    exact: bool = False,
) -> tuple[Any, Any]:
    """Build and return (learner, privatizer) from names and options.

    The privatizer is None if the learner adds noise itself, or is not private.

    - exact : True if sums without noise are allowed.
    """
    from discreet import registry

    found = registry.entry("offline learner", algorithm)
    taken = registry.options_of(found.factory())
    preset, given = settings_of(option)
    options: dict[str, Any] = {**given}
    noise = {
        name.removeprefix("privatizer."): options.pop(name)
        for name in [*options]
        if name.startswith("privatizer.")
    }
    either = (algorithm in _EITHER or found.plugin is not None) and not (exact and not budget)
    private = algorithm.startswith("dp-") or "rho" in taken or either
    if private and not {"epsilon", "rho"} & {*budget, *options, *noise}:
        raise ValueError(f"epsilon is missing: {algorithm} needs --epsilon (with --delta) or --rho")
    if budget and not private:
        name, value = next(iter(budget.items()))
        raise ValueError(f"{name} = {value:g}: {algorithm} is not private, it takes no budget")
    if "rho" in taken and "epsilon" in budget and "delta" not in {*budget, *options}:
        raise ValueError(f"delta is missing: {algorithm} needs --delta with --epsilon (0: Laplace noise)")
    if "rho" in taken:  # linear learners have the budget as options
        options = {**options, **budget}
        if noise:
            raise ValueError(f"set = 'privatizer.{next(iter(noise))}': {algorithm} has no privatizer")
        return registry.build("offline learner", algorithm, preset, options), None
    learner = registry.build("offline learner", algorithm, preset, options)
    if not private:
        return learner, None
    if "epsilon" in {*budget, *noise} and "delta" not in {*budget, *noise}:
        say(
            "discreet: no --delta is given: epsilon is pure, by Laplace noise. With --delta, below a tenth "
            "of 1/users, Gaussian noise is allowed too, which is often far less; --delta 0 says that pure is "
            "meant"
        )
    return learner, registry.build("privatizer", "central", None, {**noise, **budget})


def estimate_stored(
    schema: Path,
    users: int | None,
    budget: dict[str, float | None],
    algorithm: str | None,
    option: list[str] | None,
    share: float,
    as_json: bool,
) -> None:
    """Print the estimate of `discreet estimate --schema`: guarantee and noise of `discreet learn`, without
    data.
    """
    from discreet.data.schema import read_schema

    if users is None:
        raise ValueError("users is missing: give --users N, the expected number of users")
    from discreet.pipeline.estimate import estimate_release
    from discreet.pipeline.learned_files import default_algorithm

    public = read_schema(schema)
    given = {name: value for name, value in budget.items() if value is not None}
    learner, privatizer = _asked(algorithm or default_algorithm(public), option, given)

    with rows_bar() as progress:
        progress("estimate", 0, None)
        found = estimate_release(public, users, privatizer, learner, share=share)
    if as_json:
        print_json(found.to_dict())
        return
    table = new_table("", "")
    for what, value in found.rows():
        table.add_row(what, value)
    console().print(table)
    head, body = found.epsilon_rows()
    others = new_table(*head, right=head)
    for row in body:
        others.add_row(*row)
    console().print("With another ε:", style="bold")
    console().print(others)


def _differs(world: str | None) -> str:
    """Return advice to try other assumptions: other environments, or a smaller gain if ``world`` is None."""
    return f"Your world will differ: try {'others' if world else 'a smaller gain'}, too."


@command
def power(
    schema: Annotated[Path | None, typer.Option(help="SCHEMA.toml: what is public about the data.")] = None,
    target_gain: Annotated[
        float | None, typer.Option(help="Best possible gain in a synthetic MDP of the schema's sizes.")
    ] = None,
    world: Annotated[
        str | None, typer.Option(help="Instead: an environment (icu-sepsis, ...) or a table (.csv).")
    ] = None,
    users: Annotated[int | None, typer.Option(help="Expected users (default: found, for --epsilon).")] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Privacy budget, above 0 (default: found, for --users).")
    ] = None,
    delta: DeltaOption = None,
    learner: Annotated[
        str | None, typer.Option(help="decision-points, dp-pevi or dp-vapvi (default: as `discreet learn`).")
    ] = None,
    option: LearnerSettings = None,
    draws: Annotated[int, typer.Option(help="Simulated releases.")] = 60,
    as_json: JsonFlag = False,
) -> None:
    """Simulate the probability that a gain is shown; find the sample size or epsilon that a gain needs."""
    from discreet.data.schema import read_schema
    from discreet.pipeline.learned_files import default_algorithm, refuse_groups

    if schema is None:
        raise ValueError("schema is missing: give --schema SCHEMA.toml")
    public, target = read_schema(schema), target_gain
    if (target is None) == (world is None):
        raise ValueError("target-gain: give either --target-gain G (generates a world) or --world NAME|FILE")
    if users is None and epsilon is None:
        raise ValueError("users is missing: give --users N or --epsilon E; the other one is found")

    algorithm = learner or default_algorithm(public)
    if algorithm in _LINEAR:
        refuse_groups(public, algorithm)
        _power_linear(public, users, epsilon, delta, target, world, draws, as_json, algorithm, option)
        return
    if algorithm != "decision-points":
        raise ValueError(
            f"learner = {algorithm!r}: must be decision-points (with stationary = true in the schema), "
            "dp-pevi or dp-vapvi, the learners that `discreet power` simulates"
        )
    if not public.stationary:
        raise ValueError(
            "learner = 'decision-points': must be of a schema with stationary = true; `discreet learn` "
            "refuses it too"
        )
    if option:
        raise ValueError("set: must not be given for decision-points here")

    from discreet.mechanisms.privatizers.central import Central
    from discreet.pipeline import power_analysis
    from discreet.pipeline.power_analysis import EPSILONS

    if public.groups is not None:
        say("discreet: [groups] are left out of the simulation; they do not change the noise of a release")
    rows = []
    with rows_bar() as progress:
        progress("make the world", 0, None)
        known = (
            _world(world, public)
            if world is not None
            else power_analysis.synthetic_mdp(public, target or 0.0)
        )
        delta = 0.0 if delta is None else delta
        if epsilon is None:
            progress("find epsilon", 0, None)
            epsilon = power_analysis.smallest_epsilon(known, users or 1, delta, draws=draws)
            if epsilon is None:
                say(f"discreet: no epsilon up to {EPSILONS[-1]:g} shows such a gain in 9 of 10 draws")
                epsilon = EPSILONS[-1]
        privatizer = Central(epsilon=epsilon, delta=delta)
        if users is None:
            progress("find how many people", 0, None)
            users = power_analysis.sample_size(known, privatizer, draws=draws)
            if users is None:
                raise ValueError(f"epsilon = {epsilon:g}: not even 1e9 users would show such a gain")
        for done, times in enumerate((1 / 3, 1.0, 3.0)):
            progress("simulate releases", done, 3)
            many = max(round(users * times), 1)
            rows.append(power_analysis.gain_power(known, many, privatizer, draws=draws))
    if as_json:
        print_json({"usual": known.usual, "best": known.best, "rows": [row.to_dict() for row in rows]})
        return
    table = new_table(
        "people", "ε", "chance that a gain is shown", "true gain of the policy", "states changed"
    )
    for row in rows:
        table.add_row(
            f"{row.users:,}", f"{row.epsilon:g}", f"{100 * row.chance:.0f} % ({100 * row.low:.0f} to "
            f"{100 * row.high:.0f})",
            f"{row.gain:.3f} of {row.best:.3f}", f"{row.changes:.0f}",
        )  # fmt: skip
    console().print(table)
    where = f"{world} " if world else "a synthetic environment of the schema's sizes, "
    console().print(
        f"{draws} simulated releases each, in {where}where the best policy gains {known.best:.3f}. "
        f"{_differs(world)}"
    )


_LINEAR = ("dp-pevi", "dp-vapvi")


def _power_linear(
    schema: Schema,
    users: int | None,
    epsilon: float | None,
    delta: float | None,
    target: float | None,
    world: str | None,
    draws: int,
    as_json: bool,
    algorithm: str,
    option: list[str] | None,
) -> None:
    """Print the power of linear learners, estimated by simulation. Half of the simulated users are held
    out.
    """
    from dataclasses import replace

    from discreet.pipeline import linear_power_analysis as linear_power
    from discreet.pipeline.learned_files import LinearSums
    from discreet.pipeline.power_analysis import EPSILONS

    budget = {"epsilon": 1.0 if epsilon is None else epsilon}
    learner, _ = _asked(algorithm, option, budget if delta is None else {**budget, "delta": delta})
    features = LinearSums(schema, learner).features
    rows = []
    with rows_bar() as progress:
        progress("make the world", 0, None)
        if world is not None:
            known = _world(world, schema)
            if (known.mdp.states, known.mdp.actions) != (features.states, features.actions):
                raise ValueError(
                    f"world = {world!r}: has {known.mdp.states} states and {known.mdp.actions} actions, the "
                    f"schema's features {features.states} and {features.actions}"
                )
        else:
            known, features = linear_power.made_up(schema, features, target or 0.0)
        if epsilon is None:
            progress("find epsilon", 0, None)
            epsilon = linear_power.linear_smallest_epsilon(
                known, features, learner, users or 1, EPSILONS, draws=draws
            )
            if epsilon is None:
                say(f"discreet: no epsilon up to {EPSILONS[-1]:g} shows such a gain in 9 of 10 draws")
                epsilon = EPSILONS[-1]
            learner = replace(learner, epsilon=epsilon)
        if users is None:
            progress("find how many people", 0, None)
            users = linear_power.linear_sample_size(known, features, learner, draws=draws)
            if users is None:
                raise ValueError(f"epsilon = {epsilon:g}: not even 3e6 users would show such a gain")
        for done, times in enumerate((1 / 3, 1.0, 3.0)):
            progress("play people", done, 3)
            many = min(max(round(users * times), 1), linear_power.MOST_PEOPLE)
            rows.append(linear_power.linear_gain_power(known, features, learner, many, draws=draws))
    if as_json:
        print_json({"usual": known.usual, "best": known.best, "rows": [row.to_dict() for row in rows]})
        return
    table = new_table(
        "people", "ε", "chance that a gain is shown", "policy truly better", "true gain of the policy"
    )
    for row in rows:
        table.add_row(
            f"{row.users:,}", f"{row.epsilon:g}", f"{100 * row.chance:.0f} % ({100 * row.low:.0f} to "
            f"{100 * row.high:.0f})", f"{100 * row.better:.0f} %", f"{row.gain:.3f} of {row.best:.3f}",
        )  # fmt: skip
    console().print(table)
    where = f"{world}, " if world else "a synthetic linear environment of the schema's sizes, "
    off = rows[0].nonlinear
    console().print(
        f"{draws} data sets each, of users simulated in {where}where the best policy gains "
        f"{known.best:.3f}; one half is for learning, the other for evaluation (--set judged=true). "
        + (
            f"This environment is not linear in these features: probabilities differ by up to {off:.2g}. "
            if off
            else ""
        )
        + _differs(world)
    )


def _world(name: str, schema: Schema) -> PublicMDP:
    """Return a public MDP and its behaviour policy, from a file or from the environment with this name.

    A file is a table of the schema's states and actions. The behaviour policy of ICU-Sepsis is its expert
    policy. For any other environment, it is the uniform policy.
    """
    if Path(name).suffix in (".csv", ".parquet"):
        from discreet.pipeline.environment_table import read_mdp

        return read_mdp(name, schema)
    from discreet import registry
    from discreet.envs.icu_sepsis import expert_policy
    from discreet.envs.mdp.planning import uniform_policy
    from discreet.mechanisms.interfaces import ReturnBounds
    from discreet.pipeline.power_analysis import PublicMDP
    from discreet.pipeline.trajectory_files import outcomes_of

    mdp = registry.build("environment", name, None, {})
    behaviour = uniform_policy(mdp)
    if name == "icu-sepsis":
        behaviour = expert_policy(horizon=mdp.horizon, inadmissible="renormalised")
    return PublicMDP(mdp, behaviour, ReturnBounds(terminal=mdp.terminal, outcomes=outcomes_of(mdp)))


# ------------------------------------------------------------------------------ verify, ledger
@command
def verify(
    folder: Annotated[Path, typer.Argument(help="A folder that `discreet learn` made.")],
    ledger: Annotated[
        Path | None,
        typer.Option(help="Compare with this ledger too (default: the user's own, if it is there)."),
    ] = None,
    no_ledger: Annotated[bool, typer.Option("--no-ledger", help="Do not use a ledger.")] = False,
    public_key: Annotated[
        list[Path] | None, typer.Option(help="Public key file whose holder must have signed. Repeatable.")
    ] = None,
    limit_key: Annotated[
        Path | None,
        typer.Option(help="Public key file with which the limit must be signed, or handed over."),
    ] = None,
    plugin: PluginOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Recompute all numbers and hashes of a privacy statement; exit status 1 if one of them differs."""
    from contextlib import nullcontext

    if not folder.is_dir():
        raise ValueError(f"folder = {str(folder)!r}: must be a folder that `discreet learn` made")

    from discreet.ledger.signatures import read_public_key
    from discreet.pipeline.log_judgement import log_facts
    from discreet.pipeline.verify import verify as compared

    if (facts := log_facts(folder)) is not None:
        book = ledger_of(folder, ledger, no_ledger, bool(facts.get("ledger")))
        return _verify_log(folder, book, as_json, bool(public_key or limit_key))
    signers = [read_public_key(one) for one in public_key or []]
    owner = None if limit_key is None else read_public_key(limit_key, "limit-key")
    learner = plugged(folder, plugin)
    book = ledger_of(folder, ledger, no_ledger)
    with book or nullcontext(), rows_bar() as progress:
        checks = compared(
            folder, book, learner=learner, public_keys=signers, limit_key=owner, progress=progress
        )
    failed = [check for check in checks if not check.ok]
    if as_json:
        listed = [
            {"name": c.name, "stated": _said(c.stated), "recomputed": _said(c.recomputed), "ok": c.ok}
            for c in checks
        ]
        print_json({"ok": not failed, "ledger": None if book is None else str(book.path), "checks": listed})
    else:
        table = new_table("differs", "stated", "recomputed")
        for check in failed:
            table.add_row(check.name, _short(check.stated), _short(check.recomputed))
        if failed:
            console().print(table)
        where = "no ledger" if book is None else f"the ledger {book.path}"
        console().print(
            f"{len(checks) - len(failed)} of {len(checks)} numbers and hashes are as stated (with {where})."
        )
        if failed:
            _say_version(folder)
        for line in _signed(folder, signers):
            console().print(line, soft_wrap=True)
    if failed:
        raise typer.Exit(1)


def _say_version(folder: Path) -> None:
    """Print a remark if another version of the library made the folder.

    Verification compares the text of pages, which can differ between versions.
    """
    from discreet.names import __version__
    from discreet.reports.statement_page import stated_in

    wrote = stated_in(folder, "versions", "discreet")
    if wrote not in (None, __version__):
        say(f"discreet: the folder says that version {wrote} made it; this is {__version__}, use that one")


def plugged(folder: Path, plugin: Sequence[str] | None) -> Any:
    """Return the learner that made a folder if a plug-in module registers it; otherwise None."""
    if not plugin:
        return None
    from discreet import registry
    from discreet.reports.statement_page import stated_in

    for module in plugin:
        registry.load_plugin(module)
    name = stated_in(folder, "configuration", "algorithm")
    options = stated_in(folder, "configuration", "options", "learner")
    for one in registry.entries("offline learner") if isinstance(options, dict) else ():
        # a statement names the learner's class, because registered names depend on the plug-ins of a machine
        if one.plugin in plugin and getattr(one.factory(), "__name__", None) == name:
            given = {key: value for key, value in options.items() if key != "preset" and value is not None}
            return registry.build("offline learner", one.name, None, given)
    return None


def _verify_log(folder: Path, ledger: Ledger | None, as_json: bool, keys: bool) -> None:
    """Check the folder of a judgement of a log, and print what was not checked.

    - keys : True if a key was given, which raises ``ValueError``.
    """
    from contextlib import nullcontext

    from discreet.pipeline.log_judgement import verify_log

    if keys:
        raise ValueError(
            "public-key, limit-key: must be left out for a judgement of a log, which has no keys"
        )
    with ledger or nullcontext():
        unchecked = verify_log(folder, ledger)
    if as_json:
        print_json({"ok": True, "not_checked": list(unchecked)})
        return
    console().print(f"{folder}: files, guarantee, estimates and page follow from the noisy sums.")
    console().print(f"Not checked: {', '.join(unchecked)}.", soft_wrap=True)


def ledger_of(
    folder: Path, ledger: Path | None, no_ledger: bool, recorded: bool | None = None
) -> Ledger | None:
    """Open the ledger with which a folder is compared.

    This is ``ledger``, if given. Otherwise it is the default ledger, if the folder has a ledger entry.
    Returns None if this file does not exist, or if the folder has no ledger entry.

    - recorded : True if the folder has an entry; None to read that from its statement.
    """
    from discreet.ledger.ledger import Ledger, default_path
    from discreet.reports.statement_page import stated_in

    path = ledger or default_path()
    recorded = stated_in(folder, "ledger") is not None if recorded is None else recorded
    if no_ledger or not (ledger is not None or (path.exists() and recorded)):
        return None
    return Ledger.open(path, create=False)


def _signed(folder: Path, signers: Sequence[str]) -> Iterator[str]:
    """Yield a line for each signature in the folder. The line marks keys that are not among ``signers``."""
    from discreet.reports.signature_file import read_signatures

    try:
        entries = read_signatures(folder)
    except (OSError, ValueError):
        return  # the verification reports this error as a difference
    for one in entries:
        known = "" if one["key"] in signers else " (an unknown key; name it with --public-key FILE)"
        yield f"Signature of {one['name'] or 'somebody'}, {one['time']}, key {one['key']}{known}"
    if not entries:
        yield "No signature (`discreet sign` adds one)."


# ------------------------------------------------------------------------------------- ledger
ledger_app = typer.Typer(name="ledger", cls=Group, invoke_without_command=True, add_completion=False)
app.add_typer(ledger_app)


def recover(
    place: Annotated[Path, typer.Argument(help="Folder that contains the folders of runs.")] = Path("."),
    ledger: Annotated[
        Path | None, typer.Option(help="Ledger of the runs (default: the user's ledger).")
    ] = None,
    finish: Annotated[
        bool, typer.Option("--finish", help="Plan from the releases, rename their folders, and mark them.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """List releases that killed runs charged but did not publish; --finish writes their folders."""
    from contextlib import nullcontext

    if not place.is_dir():
        raise ValueError(f"place = {str(place)!r}: must be the folder that contains the folders of runs")

    from discreet.ledger.ledger import Ledger, default_path
    from discreet.pipeline import recovery

    path = ledger or default_path()
    book = Ledger.open(path, create=False) if ledger is not None or path.exists() else None
    with book or nullcontext(), rows_bar() as progress:
        rows = []
        for one in recovery.lost(place, book):
            made = recovery.finish(one, book, progress) if finish else None
            rows.append(
                {
                    "entry": one.number, "dataset": one.dataset, "time": one.time, "state": one.state,
                    "folder": None if one.folder is None else str(one.folder),
                    "finished": None if made is None else str(made),
                }
            )  # fmt: skip
    if as_json:
        print_json({"ledger": None if book is None else str(path), "lost": rows})
        return
    table = new_table("entry", "dataset", "time", "state", "folder", "finished", right=("entry",))
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    if rows:
        console().print(table)
    waiting = sum(row["state"] in ("hidden", "not marked") and row["finished"] is None for row in rows)
    console().print(
        f"{len(rows)} found" + (f"; {waiting} can be finished with --finish" if waiting else "") + "."
    )
    if any(row["state"] == "no release" for row in rows):
        console().print(
            f"`no release`: {place} contains no release of the run. If the run wrote to another folder, give "
            "that folder. Otherwise, it ended before its noise was drawn, and its reservation is spent."
        )


command(recover, ledger_app)


def _said(value: Any) -> Any:
    """Return a value if JSON can represent it, and otherwise a short text."""
    return value if isinstance(value, str | int | float | bool | None) else _short(value)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else text[:197] + "..."


def ledger(
    context: typer.Context,
    path: Annotated[Path | None, typer.Option("--ledger", help="Ledger (default: the user's own).")] = None,
    dataset: Annotated[str | None, typer.Option(help="Only this population.")] = None,
    limit: Annotated[
        float | None, typer.Option(help="Set the owner's total epsilon for the dataset.")
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            help="With --limit: its delta (0: only pure epsilon fits). Else: delta of the printed epsilon."
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(help="With --limit, --require or --hand-over: private key file that signs it."),
    ] = None,
    passphrase_file: PassphraseFile = None,
    recovery: Annotated[
        Path | None,
        typer.Option(help="With --limit and --key: public key file that may hand the limit over, too."),
    ] = None,
    hand_over: Annotated[
        Path | None,
        typer.Option(help="Public key file whose holder alone may change the dataset's limit from now on."),
    ] = None,
    require: Annotated[
        Path | None,
        typer.Option(help="Folder of the dataset's files: releases of them must be written in this ledger."),
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write all entries to a new .jsonl or .csv file.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the budget spent on each population, set the owner's limit, or export the ledger."""
    if context.invoked_subcommand is not None:
        for name, value in context.params.items():  # an environment variable can set the passphrase's file
            if value not in (None, False) and name != "passphrase_file":
                raise ValueError(f"--{name}: must be given after `{context.invoked_subcommand}`")
        return
    from dataclasses import asdict

    from discreet.ledger import ledger as ledgers
    from discreet.ledger.owner_rules import require_ledger
    from discreet.ledger.signatures import read_private_key, read_public_key

    where = ledgers.default_path() if path is None else path
    if limit is not None and dataset is None:
        raise ValueError(f"limit = {limit:g}: must be given with --dataset")
    if require is not None and dataset is None:
        raise ValueError(f"require = {str(require)!r}: must be given with --dataset")
    if hand_over is not None and (dataset is None or key is None or limit is not None or require is not None):
        raise ValueError(
            f"hand-over = {str(hand_over)!r}: must be given with --dataset and --key, that of the owner or "
            "the recovery key, and without --limit and --require"
        )
    if recovery is not None and (limit is None or key is None):
        raise ValueError(f"recovery = {str(recovery)!r}: must be given with --limit and --key")
    if key is not None and limit is None and require is None and hand_over is None:
        raise ValueError(
            f"key = {str(key)!r}: must be given with --limit, --require or --hand-over, which it signs"
        )
    heir = None if hand_over is None else read_public_key(hand_over, "hand-over")
    second = None if recovery is None else read_public_key(recovery, "recovery")
    owner = None if key is None else read_private_key(key, passphrase=passphrase_of(key, passphrase_file))
    with ledgers.Ledger.open(where, create=limit is not None) as book:
        if limit is not None:
            assert dataset is not None
            book.set_limit(dataset, limit, delta or 0.0, key=owner, recovery=second)
            if all(entry.kind == "limit" for entry in book.entries(dataset)):
                others = sorted({entry.dataset for entry in book.entries() if entry.dataset} - {dataset})
                say(
                    f"discreet: nothing has been spent on {dataset!r} in this ledger; the limit applies to "
                    "releases with this name"
                    + (f" (others here: {', '.join(map(repr, others[:8]))})" if others else "")
                )
            if not delta:
                say(
                    "discreet: the limit is at delta = 0, which only pure epsilon noise (Laplace) can meet; "
                    "set it with --delta to allow Gaussian noise"
                )
        if heir is not None:
            assert dataset is not None and owner is not None
            book.hand_over(dataset, heir, owner)
            say(f"discreet: only the holder of the key {heir} can now change the limit of {dataset!r}")
        if require is not None:
            assert dataset is not None
            path_of_rule = require_ledger(require, book, dataset, owner)
            say(f"discreet: {path_of_rule}: releases of data there and below must be in this ledger now")
        if export is not None:
            if export.suffix not in (".jsonl", ".csv"):
                raise ValueError(f"export = {str(export)!r}: must end in .jsonl or .csv")
            book.export(export, "jsonl" if export.suffix == ".jsonl" else "csv")
        entries = book.entries(dataset)
        names = sorted({entry.dataset for entry in entries if entry.dataset})
        totals = [book.totals(name, delta=None if limit is not None else delta) for name in names]
        head, identity = book.head, book.identity
    if as_json:
        listed = [dict(zip(ledgers.COLUMNS, row, strict=True)) for row in ledgers.table(entries)]
        print_json(
            {
                "ledger": str(where),
                "identity": identity,
                "head": head,
                "entries": listed,
                "totals": [*map(_plainly, map(asdict, totals))],
            }
        )
        return
    shown = ("number", "time", "dataset", "entry", "epsilon", "delta", "users", "state")
    table = new_table(*shown, right=("number", "time", "epsilon", "delta", "users"))
    for row in ledgers.table(entries):
        cells = dict(zip(ledgers.COLUMNS, row, strict=True))
        table.add_row(
            *(cells[name][:16].replace("T", " ") if name == "time" else cells[name] for name in shown)
        )
    console().print(table)
    for one in totals:
        console().print(_spent(one))
    console().print(
        f"{where}, identity {identity}: entries shown: {len(entries)}, every hash checked; the last one is "
        f"{head}"
    )


ledger_app.callback(epilog=examples_of("ledger"))(guarded(ledger))


def _spent(totals: TotalCost) -> str:
    """Return a sentence about the total privacy cost of a population's releases, and the owner's limit."""
    from discreet.accounting.text.guarantee_sentences import up

    releases = f"{totals.reservations} release{'s' if totals.reservations != 1 else ''}"
    if totals.unmarked:
        releases += f" ({totals.unmarked} spent, not published)"
    limit = "no limit is set"
    if totals.limit is not None:
        limit = f"the owner's limit is epsilon = {totals.limit[0]:g} at delta = {totals.limit[1]:g}"
        limit += f", signed with the key {totals.limit_key}" if totals.limit_key else ""
        if totals.filtered is not None:
            limit += f", of which {up(totals.filtered, 6)} is used"
    return (
        f"{totals.dataset}: {releases}, together epsilon = {up(totals.epsilon, 6)} at delta = "
        f"{totals.delta:g} ({totals.method}), rho = {up(totals.rho, 6)}; {limit}."
    )


def _plainly(values: dict[str, Any]) -> dict[str, Any]:
    """Replace numbers that are not finite by text, because JSON has no such numbers."""
    import math

    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }


# ------------------------------------------------------------------------------------ synthetic data
@command
def simulate_data(
    env: Annotated[str, typer.Argument(help="Environment that generates the users.")],
    users: Annotated[int, typer.Option(help="Number of users, one episode each.")],
    out: Annotated[
        Path, typer.Option(help="New .parquet or .csv file; its schema is written to the same folder.")
    ],
    policy: Annotated[
        str, typer.Option(help="Behaviour policy: uniform, optimal, random, or expert (of icu-sepsis).")
    ] = "uniform",
    env_option: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for the environment.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Name of the population (default: ENV).")] = None,
    trim: Annotated[bool, typer.Option(help="End episodes in terminal states early.")] = True,
    seed: Annotated[int, typer.Option(help="Seed of everything.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Write synthetic trajectories of any number of users of an environment, and their schema."""
    from discreet import registry
    from discreet.data.schema import write_schema
    from discreet.pipeline.trajectory_files import cohort_schema, write_cohort

    mdp = registry.build("environment", env, None, pairs("env-option", env_option))
    behaviour = _behaviour(mdp, env, policy, seed)
    schema = cohort_schema(mdp, dataset or env)
    beside = out.with_suffix(".toml")
    for path in (out, beside):
        if path.exists():
            raise ValueError(f"out = {str(out)!r}: {path} exists; synthetic data overwrite nothing")
    out.parent.mkdir(parents=True, exist_ok=True)
    with rows_bar() as progress:
        write_cohort(mdp, behaviour, users, out, schema, seed=seed, trim=trim, progress=progress)
    write_schema(schema, beside)
    facts = {"file": str(out), "schema": str(beside), "users": users, "bytes": out.stat().st_size}
    if as_json:
        print_json(facts)
    else:
        console().print(f"{users:,} people of {env} under the {policy} policy: {out}, schema {beside}")


@command
def synthesize(
    release: Annotated[Path, typer.Argument(help="A folder that `learn` made, or its release.parquet.")],
    users: Annotated[int, typer.Option(help="Number of synthetic users.")],
    out: Annotated[
        Path,
        typer.Option(
            help="New .parquet or .csv file, or Minari folder; its schema is written to the same folder."
        ),
    ],
    members: Annotated[
        int, typer.Option(help="1: draw from the expected MDP. K: from K MDPs that the release allows.")
    ] = 1,
    seed: Annotated[int, typer.Option(help="Seed of everything.")] = 0,
    share: Annotated[
        float,
        typer.Option(help="Share of the users for the model; the others are for the utility."),
    ] = 0.5,
    level: Annotated[float, typer.Option(help="Level of the intervals of the utility.")] = 0.95,
    declaration: Annotated[
        Path | None, typer.Option(help="P.toml of `discreet prepare`: also write its readings as columns.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write synthetic users from a release's model, and their distance from the real users of the release."""
    from discreet.pipeline.synthetic_users import synthesize as make

    with rows_bar() as progress:
        made = make(
            release, out, users, members=members, seed=seed, share=share, level=level,
            declaration=declaration, progress=progress,
        )  # fmt: skip
    utility = made.utility
    if as_json:
        measured = None if utility is None else utility.to_dict()
        print_json({"file": str(made.path), "schema": str(made.schema), **made.facts, "utility": measured})
        return
    if utility is None:
        console().print("Utility is not known: the whole release gave the model (--share 1).")
    else:
        _print_utility(utility)
    if made.facts["epsilon"] is None or made.facts["randomness"] == "seeded":
        console().print("NOT PRIVATE: the release protects no user, and neither does this file.")
    console().print(
        f"{users:,} synthetic users: {made.path}, schema {made.schema}. Their intervals describe the model, "
        "not people."
    )


def _print_utility(utility: Utility) -> None:
    """Print the distances of synthetic users from real users, and the values of simple policies."""
    to = console()
    to.print(f"Total variation between people and synthetic users, at level {utility.level:g}:")
    table = new_table("", "estimate", "interval", right=("estimate",))
    for name in ("states", "pairs", "transitions"):
        one = getattr(utility, name)
        found = (
            ("unknown", "") if one is None else (f"{one.estimate:.3f}", f"{one.low:.3f} to {one.high:.3f}")
        )
        table.add_row(name, *found)
    to.print(table)
    to.print("Mean return, and gains of other policies over the behaviour policy:")
    table = new_table("", "synthetic users", "people", "interval", right=("synthetic users", "people"))
    for name, one in utility.values.items():
        table.add_row(name, f"{one.synthetic:.4g}", f"{one.estimate:.4g}", f"{one.low:.4g} to {one.high:.4g}")
    to.print(table)


def _behaviour(mdp: TabularMDP, env: str, policy: str, seed: int) -> NDArray[np.float64] | NDArray[np.int64]:
    """Return the behaviour policy with the given name.

    - seed : seed of the policy "random".
    """
    import numpy as np

    from discreet.core import checks
    from discreet.envs.mdp import planning

    checks.choice("policy", policy, ("uniform", "optimal", "random", "expert"))
    if policy == "expert":
        if env != "icu-sepsis":
            raise ValueError("policy = 'expert': only icu-sepsis has one")
        from discreet.envs.icu_sepsis import expert_policy

        return expert_policy(horizon=mdp.layout.horizon, inadmissible="renormalised")
    if policy == "optimal":
        return planning.optimal_values(mdp)[2]
    uniform = planning.uniform_policy(mdp)
    if policy == "uniform":
        return uniform
    weights = uniform * np.random.default_rng(seed).exponential(size=uniform.shape)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
