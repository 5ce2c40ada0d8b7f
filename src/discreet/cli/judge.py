"""Command ``judge``: estimate the value of a policy from logged decisions."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from discreet.cli.common import JsonFlag, check_files, command, console, print_json, say, typed_pairs
from discreet.cli.stored_options import (
    BudgetDelta,
    BudgetEpsilon,
    BudgetRho,
    LedgerOption,
    rows_bar,
    source_of,
)

_KEYS = {"cap": float, "expected": float, "least": float, "level": float, "rows": str}


@command
def judge(
    policy: Annotated[
        str | None,
        typer.Argument(
            help="Folder or policy.json of linear-advantage; uniform; or column:NAME, the probability of the "
            "row's action under the policy."
        ),
    ] = None,
    log: Annotated[
        list[str] | None, typer.Option(help="Parquet or CSV file, or folder, of decisions. Repeatable.")
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(help="SCHEMA.toml with horizon = 1 and a column of propensities.")
    ] = None,
    epsilon: BudgetEpsilon = None,
    delta: BudgetDelta = None,
    rho: BudgetRho = None,
    out: Annotated[Path | None, typer.Option(help="New folder for the judgement.")] = None,
    users: Annotated[
        int | None, typer.Option(help="Without --log: print the forecast for this number of units.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="KEY=VALUE: cap of weights (default: 10); expected, a guess of the mean reward; least, the "
            "smallest logged probability; level; rows=mean if users have several. All public. Repeatable.",
        ),
    ] = None,
    ledger: LedgerOption = None,
    no_ledger: Annotated[
        bool, typer.Option("--no-ledger", help="Write nothing down.", rich_help_panel="Budget")
    ] = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Judge even if the forecast says that nothing can be shown.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(help="For simulation: noise from a seed, which protects no user.")
    ] = None,
    purpose: Annotated[str, typer.Option(help="Purpose, a line of the ledger.")] = "",
    source: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE: delimiter, decimal, encoding. Repeatable.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Judge a policy by logged decisions with known probabilities, or print the forecast (no --log)."""
    from discreet.data.schema import read_schema

    if schema is None:
        raise ValueError("schema is missing: give --schema SCHEMA.toml")
    check_files(log or [], schema=schema)
    public = read_schema(schema)
    asked: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "rho": rho}
    asked |= typed_pairs("set", option, _KEYS)
    if not log:
        _forecast(public, users, asked, as_json)
        return
    asked |= source_of(source, "delimiter", "decimal", "encoding") | {"anyway": anyway, "purpose": purpose}
    if users is not None:
        raise ValueError("users: must be left out with --log, whose rows are counted")
    _judge(policy, log, public, out, ledger, not no_ledger, seed, as_json, **asked)


def _forecast(schema: Any, users: int | None, asked: dict[str, Any], as_json: bool) -> None:
    """Print the forecast of a judgement."""
    from discreet.pipeline.log_judgement import forecast_log, forecast_sentence

    if users is None:
        raise ValueError("log is missing: give --log FILE, or --users N for a forecast")
    found = forecast_log(schema, users, **asked)
    if as_json:
        print_json({"users": users, "least": found.least, "most": found.most, "hopeless": found.hopeless})
    else:
        console().print(forecast_sentence(found, schema, asked.get("level", 0.95)), soft_wrap=True)


def _judge(
    policy: str | None, log: list[str], schema: Any, out: Path | None, path: Path | None, keep: bool,
    seed: int | None, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Judge a policy, and print the first sentence and the files of the folder."""
    from discreet.core.rng import Secure, Seeded
    from discreet.data.validate import DataError
    from discreet.ledger.ledger import Ledger, default_path
    from discreet.pipeline.log_judgement import judge_log

    if policy is None or out is None:
        raise ValueError("policy, out: must both be given: discreet judge POLICY --log FILE --out DIR")
    if seed is not None and keep:
        raise ValueError("seed: must be given with --no-ledger, because seeded noise protects no user")
    book = None
    if keep:
        path = default_path() if path is None else path
        if not path.exists():
            say(f"discreet: the ledger is new: {path}")
        book = Ledger.open(path)
    randomness = Secure() if seed is None else Seeded(seed)
    with book or nullcontext(), rows_bar() as progress:
        try:
            found = judge_log(
                log, policy, schema, out, ledger=book, randomness=randomness, progress=progress, **options
            )
        except DataError as error:
            error.add_note("This message is private, because it is about rows of users. Nothing was spent.")
            raise
    if as_json:
        from dataclasses import asdict

        verdict = found.verdict
        print_json({"out": str(out), "shown": verdict.shown, "refuted": verdict.refuted,
                    "gain": asdict(verdict.gain), "value": asdict(verdict.value),
                    "users": verdict.users})  # fmt: skip
        return
    console().print(found.text.split("\n")[2].strip("*"), style="bold", soft_wrap=True)
    console().print(f"{out}: {', '.join(sorted(one.name for one in out.iterdir()))}")
    console().print(f"Check it with `discreet verify {out}`.")
