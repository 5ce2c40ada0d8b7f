"""Command ``aggregate``: exact sums of one part of the users."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from discreet.cli.common import (
    JsonFlag,
    announce_compilation,
    command,
    print_json,
    say,
    settings_of,
)
from discreet.cli.stored_options import (
    CSV_KEYS,
    FORMAT,
    SYNTHETIC,
    LearnerSettings,
    SqlOption,
    queried,
    rows_bar,
    source_of,
)


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
        list[str] | None, typer.Option(help=f"{FORMAT}{SYNTHETIC}Repeatable.", rich_help_panel="Source")
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
    written = source_of(source, *CSV_KEYS, "synthetic")
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
