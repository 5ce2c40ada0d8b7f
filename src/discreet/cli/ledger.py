"""Commands ``ledger`` and ``ledger recover``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.common import (
    Group,
    JsonFlag,
    app,
    command,
    console,
    guarded,
    new_table,
    print_json,
    say,
)
from discreet.cli.examples import examples_of
from discreet.cli.passphrases import PassphraseFile, passphrase_of
from discreet.cli.stored_options import (
    rows_bar,
)

if TYPE_CHECKING:
    from discreet.ledger.ledger import TotalCost


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
    rho = "" if totals.rho is None else f", rho = {up(totals.rho, 6)}"
    return (
        f"{totals.dataset}: {releases}, together epsilon = {up(totals.epsilon, 6)} at delta = "
        f"{totals.delta:g} ({totals.method}){rho}; {limit}."
    )


def _plainly(values: dict[str, Any]) -> dict[str, Any]:
    """Replace numbers that are not finite by text, because JSON has no such numbers."""
    import math

    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }
