"""Commands, called as from a shell."""

from __future__ import annotations

from typing import Any

from typer.testing import CliRunner, Result

from discreet import cli

RUNNER = CliRunner()


def call(*arguments: Any, code: int = 0) -> Result:
    """What a command printed; it must end with this exit status."""
    result = RUNNER.invoke(cli.app, [str(a) for a in arguments])
    assert result.exit_code == code, (result.output, result.stderr, result.exception)
    return result
