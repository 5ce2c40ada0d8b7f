"""Commands for records as they are: schema, prepare, codebook."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from discreet.cli.shell import JsonFlag, command, console, new_table, print_json, say
from discreet.cli.stored import DecimalOption, DelimiterOption, EncodingOption, SqlOption, rows_bar

_FILES = "Parquet or CSV files, folders, s3://..., or duckdb://FILE?table=NAME."


@command
def schema(
    init: Annotated[list[str] | None, typer.Option("--init", help=f"{_FILES} Repeatable.")] = None,
    out: Annotated[Path | None, typer.Option(help="New file (default: the screen).")] = None,
    sql: SqlOption = None,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = "utf-8",
) -> None:
    """Write a skeleton of a schema from the names and types of columns; reads no row."""
    from discreet.core.files import write_aside
    from discreet.data.skeleton import skeleton

    if not init and sql is None:
        raise ValueError("init is missing: give --init FILE, whose columns are named")
    text = skeleton(init or ["duckdb://"], sql=sql, delimiter=delimiter, encoding=encoding)
    if out is None:
        print(text, end="")
        return
    if out.exists():
        raise ValueError(f"out = {str(out)!r}: exists already, a skeleton overwrites nothing")
    write_aside(out, text.encode())
    say(f"discreet: {out} is to be filled in; no row was read")


@command
def prepare(
    files: Annotated[list[str] | None, typer.Argument(help=_FILES)] = None,
    schema: Annotated[
        Path | None, typer.Option(help="The declaration: a schema with a section [prepare].")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="New folder for rows and finished schema.")] = None,
    offending: Annotated[
        Path | None, typer.Option(help="Private file for offending rows (default: OUT.offending.csv).")
    ] = None,
    sql: SqlOption = None,
    delimiter: DelimiterOption = None,
    decimal: DecimalOption = ".",
    encoding: EncodingOption = "utf-8",
    memory: Annotated[int, typer.Option(help="Bytes that a part of the records may take.")] = 2**31,
    scratch: Annotated[
        Path | None, typer.Option(help="Folder for temporary files, where they do not.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make trajectories and their schema of records as they are, as a declaration says; spends nothing."""
    from discreet.data.prepare import ROWS, SCHEMA
    from discreet.data.prepare import prepare as make

    if schema is None:
        raise ValueError("schema is missing: give --schema P.toml, a schema with a section [prepare]")
    if out is None:
        raise ValueError("out is missing: give --out DIR, a new folder")
    if not files and sql is None:
        raise ValueError("files: none is given; give the records")
    with rows_bar() as progress:
        made = make(
            files or ["duckdb://"], schema, out, sql=sql, delimiter=delimiter, decimal=decimal,
            encoding=encoding, offending=offending, memory=memory, scratch=scratch, progress=progress,
        )  # fmt: skip
    facts = {"folder": str(out), "people": made.people, "episodes": made.episodes, "steps": made.steps}
    if as_json:
        print_json({**facts, "counts": dict(made.counts), "private": True})
        return
    table = new_table("done", "how often", right=("how often",))
    for what, count in made.counts.items():
        table.add_row(what, f"{count:,}")
    console().print(table)
    console().print(
        f"{made.people:,} people, {made.episodes:,} episodes, {made.steps:,} steps. These counts, like the "
        "rows, are private."
    )
    console().print(f"Go on with `discreet learn {out / ROWS} --schema {out / SCHEMA}`.")
