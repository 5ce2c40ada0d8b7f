"""Commands that write documents about a verified release for readers outside the project: registry,
crosswalk.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from discreet.cli.common import JsonFlag, PluginOption, command, print_json, say

Folder = Annotated[Path, typer.Argument(help="A folder that `discreet learn` made.")]
Out = Annotated[
    Path | None, typer.Option(help="File to write, outside the folder (default: print the text).")
]
LedgerFile = Annotated[
    Path | None, typer.Option(help="Compare with this ledger first (default: the user's own).")
]
NoLedger = Annotated[bool, typer.Option("--no-ledger", help="Do not look at any ledger.")]


@command
def registry(
    folder: Folder,
    out: Out = None,
    status: Annotated[str, typer.Option(help="Draft or Pending.")] = "Draft",
    ledger: LedgerFile = None,
    no_ledger: NoLedger = False,
    plugin: PluginOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Verify a folder, and write its record for the public registry of deployments, in YAML."""
    from discreet.pipeline.disclosures import registry_record

    _write("record", folder, out, (ledger, no_ledger, plugin), as_json, registry_record, status=status)


@command
def crosswalk(
    folder: Folder,
    out: Out = None,
    ledger: LedgerFile = None,
    no_ledger: NoLedger = False,
    plugin: PluginOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Verify a folder, and write a page that puts its numbers beside texts for regulators, without
    verdicts.
    """
    from discreet.pipeline.disclosures import crosswalk as page

    _write("page", folder, out, (ledger, no_ledger, plugin), as_json, page)


def _write(
    name: str, folder: Path, out: Path | None, options: tuple[Path | None, bool, Sequence[str] | None],
    as_json: bool, make: Any, **more: Any,
) -> None:  # fmt: skip
    """Make a document from a folder, and print it or write it to ``out``.

    name : key of the document in JSON output.

    options : ledger file, whether no ledger is used, and plug-ins.

    make : function that returns the document as a string. more : its further arguments.
    """
    from contextlib import nullcontext

    from discreet.cli.stored_options import ledger_of, plugged
    from discreet.utils.atomic_file import write_aside

    if out is not None and out.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"out = {str(out)!r}: must be outside the folder, whose files its statement names")
    if out is not None and (out.is_dir() or not out.absolute().parent.is_dir()):
        raise ValueError(f"out = {str(out)!r}: must be a file in an existing folder")
    ledger, no_ledger, plugin = options
    with ledger_of(folder, ledger, no_ledger) or nullcontext() as book:
        text = make(folder, ledger=book, learner=plugged(folder, plugin), **more)
    if out is not None and out.exists():
        start = text.partition(":")[0].encode()  # of the title, or the first key
        if not out.is_file() or not out.read_bytes().startswith(start):
            raise ValueError(f"out = {str(out)!r}: exists already, and a {name} overwrites only a {name}")
    if out is not None:
        write_aside(out, text.encode())
    if as_json:
        print_json({name: text, "out": None if out is None else str(out)})
    elif out is None:
        print(text, end="")
    else:
        say(f"discreet: {folder} is verified; wrote {out}")
