"""Commands of the data's owner and of those who approve: keys, sign."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from discreet.cli.shell import JsonFlag, command, console, print_json

KeyOption = Annotated[
    Path | None, typer.Option("--key", help="Private key file (mode 0600) that signs; see `discreet keys`.")
]


@command
def keys(
    what: Annotated[str, typer.Argument(help="new: make a key. show: print the public key of a file.")],
    file: Annotated[Path, typer.Argument(help="Private key; the public one is beside it, FILE.pub.")],
    as_json: JsonFlag = False,
) -> None:
    """Make a key to sign statements and limits with, or show its public half."""
    from discreet.core import checks
    from discreet.storage import signatures

    checks.choice("what", what, ("new", "show"))
    if what == "new":
        public = signatures.new_key(file)
    elif file.suffix == ".pub":
        public = signatures.read_public_key(file, "file")
    else:
        public = signatures.read_private_key(file, "file").public
    beside = file if file.suffix == ".pub" else file.with_name(file.name + ".pub")
    if as_json:
        print_json({"public_key": public, "file": str(beside)})
        return
    if what == "new":
        console().print(f"{file}: private, for you alone. {beside}: for everybody.")
    console().print(public, soft_wrap=True)


@command
def sign(
    folder: Annotated[Path, typer.Argument(help="A folder that `discreet learn` made.")],
    key: KeyOption = None,
    name: Annotated[str, typer.Option(help="Whose key it is: a line beside the signature.")] = "",
    ledger: Annotated[
        Path | None, typer.Option(help="Compare with this ledger first (default: the user's own).")
    ] = None,
    no_ledger: Annotated[bool, typer.Option("--no-ledger", help="Do not look at any ledger.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Verify a folder, and sign it as it lies there, with all that people have filled in."""
    from contextlib import nullcontext

    from discreet.cli.stored import ledger_of
    from discreet.storage.signatures import read_private_key
    from discreet.stored.approval import sign as signed

    if key is None:
        raise ValueError("key is missing: give --key FILE, as `discreet keys new FILE` makes it")
    secret = read_private_key(key)
    with ledger_of(folder, ledger, no_ledger) or nullcontext() as book:
        made = signed(folder, secret, name=name, ledger=book)
    if as_json:
        print_json(made)
        return
    console().print(f"{folder} is verified, and signed with the key", soft_wrap=True)
    console().print(made["key"], soft_wrap=True)
