"""Command line. Commands only read arguments, call the library and print results.

:mod:`~discreet.cli.common` contains code that commands share. The other modules contain the commands.
"""

from __future__ import annotations

import atexit
import gc
from typing import Annotated

import typer

from discreet.cli.common import app

# isort: off
# the order of these imports is the order of commands in `discreet --help`
from discreet.cli import simulate as simulations  # noqa: F401
from discreet.cli import tune as tuning  # noqa: F401
from discreet.cli import prepare  # noqa: F401
from discreet.cli import learn  # noqa: F401
from discreet.cli import aggregate  # noqa: F401
from discreet.cli import power  # noqa: F401
from discreet.cli import verify  # noqa: F401
from discreet.cli import ledger  # noqa: F401
from discreet.cli import synthesize  # noqa: F401
from discreet.cli import evaluate  # noqa: F401
from discreet.cli import judge  # noqa: F401
from discreet.cli import keys as owner  # noqa: F401
from discreet.cli import disclosures  # noqa: F401
from discreet.cli import service  # noqa: F401
from discreet.cli import audit as evidence  # noqa: F401
# isort: on


def _version(asked: bool) -> None:
    if asked:
        from discreet.names import __version__

        print(f"discreet {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the ``discreet`` command.

    Imported objects are used until the process ends. By default the garbage collector scans these objects
    repeatedly, and twice at the end, which takes a third of the time of a short command. Therefore the
    collector runs rarely here, and not at the end.
    """
    gc.set_threshold(50_000, 20, 20)
    atexit.register(gc.freeze)
    app()
