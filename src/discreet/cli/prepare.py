"""Commands for raw records: ``schema``, ``prepare`` and ``discretize``."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from discreet.cli.common import (
    JsonFlag,
    check_files,
    command,
    console,
    new_table,
    print_json,
    say,
    typed_pairs,
)
from discreet.cli.stored_options import SourceOption, SqlOption, queried, rows_bar, source_of

_FILES = "Parquet or CSV files, folders, s3://..., or duckdb://FILE?table=NAME."


@command
def schema(
    init: Annotated[list[str] | None, typer.Option("--init", help=f"{_FILES} Repeatable.")] = None,
    out: Annotated[Path | None, typer.Option(help="New file (default: the screen).")] = None,
    sql: SqlOption = None,
    source: SourceOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a template of a schema from the names and types of columns, without reading rows."""
    from discreet.data.config_template import schema_template
    from discreet.utils.atomic_file import write_aside

    if not init and sql is None:
        raise ValueError("init is missing: give --init FILE, whose columns are named")
    where, reads = queried(init, sql)
    text = schema_template(where, sql=sql, reads=reads, **source_of(source, "delimiter", "encoding"))
    if out is not None:
        if out.exists():
            raise ValueError(f"out = {str(out)!r}: exists already, a skeleton overwrites nothing")
        write_aside(out, text.encode())
    if as_json:
        print_json({"out": None if out is None else str(out), "skeleton": text})
    elif out is None:
        print(text, end="")
    else:
        say(f"discreet: {out} is to be filled in; no row was read")


@command
def prepare(
    files: Annotated[list[str] | None, typer.Argument(help=_FILES)] = None,
    schema: Annotated[
        Path | None, typer.Option(help="The declaration: a schema with a section `prepare`.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="New folder for rows and finished schema.")] = None,
    offending: Annotated[
        Path | None, typer.Option(help="Private file for offending rows (default: OUT.offending.csv).")
    ] = None,
    sql: SqlOption = None,
    source: SourceOption = None,
    memory: Annotated[int, typer.Option(help="Largest number of bytes of one partition of the records.")] = 2
    ** 31,
    as_json: JsonFlag = False,
) -> None:
    """Convert raw records to trajectories and a schema, as a declaration says; no budget is spent."""
    schema = _given("schema", schema, "P.toml, a schema with a section [prepare]")
    out = _given("out", out, "DIR, a new folder")
    if not files and sql is None:
        raise ValueError("files: none is given; give the records")
    check_files(files or [], schema=schema)

    from discreet.data.prepare import ROWS, SCHEMA
    from discreet.data.prepare import prepare as make

    where, reads = queried(files, sql)
    with rows_bar() as progress:
        made = make(
            where, schema, out, sql=sql, reads=reads, offending=offending, memory=memory, progress=progress,
            **source_of(source),
        )  # fmt: skip
    facts = {"folder": str(out), "people": made.people, "episodes": made.episodes, "steps": made.steps}
    if as_json:
        print_json({**facts, "counts": dict(made.counts), "notes": list(made.notes), "private": True})
        return
    table = new_table("done", "how often", right=("how often",))
    for what, count in made.counts.items():
        table.add_row(what, f"{count:,}")
    console().print(table)
    for note in made.notes:
        console().print(note, markup=False)
    console().print(
        f"{made.people:,} users, {made.episodes:,} episodes, {made.steps:,} steps. These counts, like the "
        "rows, are private."
    )
    console().print(f"Go on with `discreet learn {out / ROWS} --schema {out / SCHEMA}`.")


@command
def discretize(
    what: Annotated[str, typer.Argument(help="estimate, fit, or verify.")],
    files: Annotated[
        list[str] | None, typer.Argument(help=f"fit: {_FILES} verify: the folder of a fit.")
    ] = None,
    schema: Annotated[Path | None, typer.Option(help="The declaration, with a section `prepare`.")] = None,
    centres: Annotated[int | None, typer.Option(help="Number of centres of states.")] = None,
    quantiles: Annotated[
        str | None, typer.Option(help="VALUE=N: cut points of a value into N bins of equal shares.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="KEY=VALUE for the fit: rounds of k-means (default: 5); bins, public cells of the histogram "
            "for quantiles (default: 64); start, a file of public centres. Repeatable.",
        ),
    ] = None,
    users: Annotated[int | None, typer.Option(help="estimate: expected number of users.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Budget, above 0.")] = None,
    delta: Annotated[float | None, typer.Option(help="In (0, 1).")] = None,
    rho: Annotated[float | None, typer.Option(help="Budget in zCDP instead of epsilon.")] = None,
    out: Annotated[Path | None, typer.Option(help="fit: new folder.")] = None,
    ledger: Annotated[Path | None, typer.Option(help="Ledger (default: the user's own).")] = None,
    no_ledger: Annotated[bool, typer.Option("--no-ledger", help="Write nothing down.")] = False,
    public_key: Annotated[
        list[Path] | None,
        typer.Option(help="verify: public key file whose holder must have signed. Repeatable."),
    ] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Fit even if the forecast is hopeless.")] = False,
    purpose: Annotated[str, typer.Option(help="Purpose of the fit, a line of the ledger.")] = "",
    sql: SqlOption = None,
    source: SourceOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Fit state centres or cut points to user data, which costs budget; `estimate` prints the error."""
    from discreet.core import checks

    checks.choice("what", what, ("estimate", "fit", "verify"))
    if what != "verify" and schema is not None:
        check_files(files or [], schema=schema)

    from discreet.ledger.ledger import default_path

    path = None if no_ledger else ledger or default_path()
    if what == "verify":
        _verify_fit(files, path, public_key)
        return
    schema = _given("schema", schema, "P.toml, a schema with a section [prepare]")
    asked: dict[str, Any] = {
        "centres": centres, "quantiles": _quantiles(quantiles), "rounds": 5, "bins": 64, "epsilon": epsilon,
        "delta": delta, "rho": rho,
    } | typed_pairs("set", option, {"rounds": int, "bins": int, "start": str})  # fmt: skip
    if what == "estimate":
        _show_estimate(schema, _given("users", users, "N, the expected number of users"), asked, as_json)
        return
    out = _given("out", out, "DIR, a new folder")
    if not files and sql is None:
        raise ValueError("files: none is given; give the records")
    _fit(files, sql, schema, out, path, as_json, anyway=anyway, purpose=purpose, **source_of(source), **asked)


def _given(name: str, value: Any, what: str) -> Any:
    """Return the value of a required option. Raise ``ValueError`` if it was not given."""
    if value is None:
        raise ValueError(f"{name} is missing: give --{name} {what}")
    return value


def _fit(
    files: list[str] | None, sql: str | None, schema: Path, out: Path, ledger: Path | None, as_json: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Fit a codebook, and print its forecast and the files of its folder."""
    from discreet.ledger.ledger import Ledger
    from discreet.pipeline.state_codebook import fit_codebook

    where, reads = queried(files, sql)
    if ledger is not None and not ledger.exists():
        say(f"discreet: the ledger is new: {ledger}")
    with nullcontext() if ledger is None else Ledger.open(ledger) as book, rows_bar() as progress:
        fitted = fit_codebook(
            where, schema, out, ledger=book, progress=progress, sql=sql, reads=reads, **options
        )
    if as_json:
        print_json({"out": str(out), **fitted.forecast.to_dict()})
        return
    console().print(fitted.forecast.verdict)
    console().print(f"{out}: {', '.join(sorted(one.name for one in out.iterdir()))}")


def _verify_fit(files: list[str] | None, ledger: Path | None, public_key: list[Path] | None) -> None:
    """Check the folder of a fit. Prints what was not checked, and who has signed."""
    from discreet.ledger.ledger import Ledger
    from discreet.ledger.signatures import read_public_key
    from discreet.pipeline.state_codebook import verify_codebook
    from discreet.reports.signature_file import read_signatures

    if not files or len(files) != 1:
        raise ValueError("files: must be the folder of one fit")
    signers = [read_public_key(one) for one in public_key or []]
    with nullcontext() if ledger is None else Ledger.open(ledger, create=False) as book:
        unchecked = verify_codebook(files[0], book, public_keys=signers)
    console().print(
        f"{files[0]}: files, pages and guarantee are as stated, and what was found follows from them."
        if not unchecked
        else f"{files[0]}: files and guarantee are as stated."
    )
    for sentence in unchecked:
        console().print(f"Not checked: {sentence}.", soft_wrap=True)
    for one in read_signatures(Path(files[0])):
        known = "" if one["key"] in signers else " (an unknown key; name it with --public-key FILE)"
        said = f"Signature of {one['name'] or 'somebody'}, {one['time']}, key {one['key']}{known}"
        console().print(said, soft_wrap=True)


def _quantiles(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    name, _, number = text.partition("=")
    if not number.isdecimal():
        raise ValueError(f"quantiles = {text!r}: must be VALUE=N, as pressure=4")
    return name, int(number)


def _show_estimate(schema: Path, users: int, asked: dict[str, Any], as_json: bool) -> None:
    """Print the estimated error of a fit, and the errors of the same fit with other budgets."""
    from discreet.pipeline.state_codebook import estimate_codebook

    asked.pop("start", None)  # the initial centres of a fit do not affect the forecast
    found = estimate_codebook(schema, users, **asked)
    budgets = ({**asked, "epsilon": e, "rho": None} for e in (0.1, 1.0, 10.0))
    others = [estimate_codebook(schema, users, **budget) for budget in budgets]
    if as_json:
        print_json({**found.to_dict(), "others": [one.to_dict() for one in others]})
        return
    console().print(found.verdict)
    unit = "share of users" if found.what == "quantiles" else "in its own unit"
    table = new_table("ε", *(f"{name}, ± ({unit})" for name in found.names), "hopeless")
    for one in (found, *(other for other in others if other.epsilon != found.epsilon)):
        lengths = [1.0] * len(one.names) if one.what == "quantiles" else one.widths
        cells = [f"{off * width:.3g}" for off, width in zip(one.error, lengths, strict=True)]
        table.add_row(f"{one.epsilon:.4g}", *cells, "yes" if one.hopeless else "no")
    console().print(table)
