"""The command line, thin: reads arguments, calls the library, prints.

:mod:`~discreet.cli.common` has what commands share, the other modules the commands.
"""

from __future__ import annotations

import atexit
import gc
from typing import Annotated

import typer

from discreet.cli.common import app

# isort: off
# the order of `discreet --help`
from discreet.cli import simulate as simulations  # noqa: F401
from discreet.cli import prepare  # noqa: F401
from discreet.cli import learn as stored  # noqa: F401
from discreet.cli import keys as owner  # noqa: F401
from discreet.cli import service  # noqa: F401
from discreet.cli import audit as evidence  # noqa: F401
# isort: on


def _version(asked: bool) -> None:
    if asked:
        from discreet import __version__

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
    """Entry point of the ``discreet`` command.

    Loaded objects stay in use until the end. By default the garbage collector scans them repeatedly, and
    twice at the end, which takes a third of a short command's time. Here it runs rarely.
    """
    gc.set_threshold(50_000, 20, 20)
    atexit.register(gc.freeze)
    app()
