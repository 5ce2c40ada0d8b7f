"""Commands for data owners and approvers of releases: ``keys`` and ``sign``."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from discreet.cli.common import JsonFlag, PluginOption, command, console, print_json
from discreet.cli.passphrases import PassphraseFile, changed_passphrase, new_passphrase, passphrase_of

KeyOption = Annotated[
    Path | None,
    typer.Option("--key", help="Private key file (mode 0600) for the signature; see `discreet keys`."),
]


@command
def keys(
    what: Annotated[
        str,
        typer.Argument(
            help="new: make a key. show: print the public key of a file. passphrase: change or take away "
            "that of a private key."
        ),
    ],
    file: Annotated[Path, typer.Argument(help="Private key file; the public key is in FILE.pub.")],
    passphrase: Annotated[
        bool | None,
        typer.Option(help="With new and passphrase: encrypt the private key (passphrase: the default)."),
    ] = None,
    passphrase_file: PassphraseFile = None,
    new_passphrase_file: Annotated[
        Path | None, typer.Option(help="With passphrase: file (mode 0600) with the new one, for jobs.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a key that signs statements and limits, show its public key, or change its passphrase."""
    from discreet.core import checks
    from discreet.ledger import signatures

    checks.choice("what", what, ("new", "show", "passphrase"))
    if new_passphrase_file is not None and (what != "passphrase" or passphrase is False):
        raise ValueError(f"new-passphrase-file = {str(new_passphrase_file)!r}: must be given with passphrase")
    if what == "new":
        public = signatures.new_key(file, new_passphrase(file, passphrase_file) if passphrase else None)
    elif file.suffix == ".pub":
        if what == "passphrase":
            raise ValueError(f"file = {str(file)!r}: must be the private key, a public one has no passphrase")
        public = signatures.read_public_key(file, "file")
    elif what == "show":
        public = signatures.read_private_key(file, "file", passphrase_of(file, passphrase_file)).public
    else:
        # the old passphrase is requested first, and only once
        old = cache(passphrase_of(file, passphrase_file))
        signatures.read_private_key(file, "file", old)
        new = None if passphrase is False else changed_passphrase(file, new_passphrase_file)
        public = signatures.change_passphrase(file, old, new)
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
    name: Annotated[str, typer.Option(help="Name of the holder of the key, stored with the signature.")] = "",
    passphrase_file: PassphraseFile = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Compare with this ledger first (default: the user's ledger).")
    ] = None,
    no_ledger: Annotated[bool, typer.Option("--no-ledger", help="Do not use a ledger.")] = False,
    plugin: PluginOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Verify a folder of `discreet learn`, and sign its present content."""
    from contextlib import nullcontext

    from discreet.cli.stored_options import ledger_of, plugged
    from discreet.ledger.signatures import read_private_key
    from discreet.pipeline.approve import sign as signed

    if key is None:
        raise ValueError("key is missing: give --key FILE, as `discreet keys new FILE` makes it")
    secret = read_private_key(key, passphrase=passphrase_of(key, passphrase_file))
    with ledger_of(folder, ledger, no_ledger) or nullcontext() as book:
        made = signed(folder, secret, name=name, ledger=book, learner=plugged(folder, plugin))
    if as_json:
        print_json(made)
        return
    console().print(f"{folder} is verified, and signed with the key", soft_wrap=True)
    console().print(made["key"], soft_wrap=True)
