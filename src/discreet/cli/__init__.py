"""The command line, thin: reads arguments, calls the library, prints.

:mod:`~discreet.cli.shell` has what commands share, the other modules the commands.
"""

from __future__ import annotations

from typing import Annotated

import typer

from discreet.cli.shell import app

# isort: off
# the order of `discreet --help`
from discreet.cli import simulations  # noqa: F401
from discreet.cli import prepare  # noqa: F401
from discreet.cli import stored  # noqa: F401
from discreet.cli import owner  # noqa: F401
from discreet.cli import service  # noqa: F401
from discreet.cli import evidence  # noqa: F401
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
    """Entry point of the ``discreet`` command."""
    app()
