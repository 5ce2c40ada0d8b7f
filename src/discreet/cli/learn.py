"""Commands that learn a policy from stored trajectories: ``learn``, ``dry-run`` and ``replan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.common import (
    JsonFlag,
    PluginOption,
    announce_compilation,
    check_files,
    command,
    console,
    new_table,
    print_json,
    say,
    settings_of,
    typed_pairs,
)
from discreet.cli.stored_options import (
    FORMAT,
    SOURCE_KEYS,
    SYNTHETIC,
    WORKERS,
    BudgetDelta,
    BudgetEpsilon,
    BudgetRho,
    LearnerSettings,
    LedgerOption,
    SqlOption,
    learner_and_privatizer,
    queried,
    rows_bar,
    source_of,
)

if TYPE_CHECKING:
    from discreet.data.row_batches import Source
    from discreet.data.schema import Schema
    from discreet.pipeline.learn import LearnConfig, LearnResult
    from discreet.reports.rule_files import StationaryRule


SettingOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="KEY=VALUE for the learner; privatizer.KEY=VALUE for the noise; preset=NAME: named settings. "
        "Repeatable.",
    ),
]


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
        typer.Option(help=f"{FORMAT}{SYNTHETIC}{WORKERS}Repeatable.", rich_help_panel="Source"),
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
    written = source_of(source, *SOURCE_KEYS)
    scratch, workers = written.pop("scratch", None), written.pop("workers", None)
    synthetic_input = written.pop("synthetic", False)
    people = _looked_at(files, schema, sql, written, out, synthetic_input)

    settings = _settings(unsupported, _rules(compare, people[0]), report, synthetic_input=synthetic_input)
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

    settings = _settings(unsupported, _rules(compare, people[0]), report, synthetic=True)
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

    settings = _settings(unsupported, _rules_of_release(compare, release), report)
    _print_learned(_again(release, learner, option, out, settings, rewards), out, as_json)


def _settings(
    unsupported: str, compare: tuple[StationaryRule, ...], report: list[str] | None, **more: bool
) -> LearnConfig:
    """Return the settings of a run. This function also announces the compilation of kernels."""
    from discreet.pipeline.learn import LearnConfig

    given = typed_pairs("report", report, _REPORT)
    found = LearnConfig(unsupported=unsupported, compare=compare, **more, **given)  # type: ignore[arg-type]
    announce_compilation()
    return found


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
        to.print(
            f"Evaluated with the held-out users: {verdict(judged, document['population']['unit'])}",
            style="bold",
        )
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
    learner, privatizer = learner_and_privatizer(algorithm, option, budget, exact=no_ledger)
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
    learner, privatizer = learner_and_privatizer(algorithm or default_algorithm(public), option, given)

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
