"""Passphrases for private keys, read from a file, an environment variable or the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from getpass import getpass
from pathlib import Path
from typing import Annotated

import typer

PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        envvar="DISCREET_PASSPHRASE_FILE",
        help="File (mode 0600) with the key's passphrase, for jobs; else $DISCREET_PASSPHRASE, else it is "
        "asked for.",
    ),
]
_VARIABLE = "DISCREET_PASSPHRASE"


def passphrase_of(key: Path, file: Path | None) -> Callable[[], str]:
    """Return a function that reads the passphrase of a private key when it is called.

    Parameters
    ----------
    key : file of the private key.
    file : file with the passphrase. If None, the environment variable is used or, without it, the terminal.
    """

    def found() -> str:
        from discreet.ledger.signatures import PassphraseMissing, read_passphrase

        if file is not None:
            return read_passphrase(file)
        if _VARIABLE in os.environ:
            return os.environ[_VARIABLE]
        if not sys.stdin.isatty():
            raise PassphraseMissing(
                f"key = {str(key)!r}: needs a passphrase, and there is no terminal to ask at: give "
                f"--passphrase-file FILE, or set {_VARIABLE}_FILE or {_VARIABLE}"
            )
        return getpass(f"Passphrase of {key}: ")

    return found


def new_passphrase(key: Path, file: Path | None) -> str:
    """Return the passphrase of a new key. On a terminal the user must type the passphrase twice, because it
    is not displayed.
    """
    given = passphrase_of(key, file)()
    if file is None and _VARIABLE not in os.environ:
        _same_again(given)
    return given


def changed_passphrase(key: Path, file: Path | None) -> str:
    """Return the new passphrase of a key whose passphrase is changed.

    The environment variables are not used, because they contain the old passphrase.
    """
    from discreet.ledger.signatures import PassphraseMissing, read_passphrase

    if file is not None:
        return read_passphrase(file, "new-passphrase-file")
    if not sys.stdin.isatty():
        raise PassphraseMissing("new-passphrase-file: must be given, there is no terminal to ask at")
    given = getpass(f"New passphrase of {key}: ")
    _same_again(given)
    return given


def _same_again(given: str) -> None:
    if getpass("The same once more: ") != given:
        raise ValueError("passphrase: must be the same twice; nothing was written")
