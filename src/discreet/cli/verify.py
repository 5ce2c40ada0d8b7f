"""Command ``verify``: recompute what a folder states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discreet.cli.common import (
    JsonFlag,
    PluginOption,
    command,
    console,
    new_table,
    print_json,
    say,
)
from discreet.cli.stored_options import (
    ledger_of,
    plugged,
    rows_bar,
)

if TYPE_CHECKING:
    from discreet.ledger.ledger import Ledger


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


def _said(value: Any) -> Any:
    """Return a value if JSON can represent it, and otherwise a short text."""
    return value if isinstance(value, str | int | float | bool | None) else _short(value)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else text[:197] + "..."
