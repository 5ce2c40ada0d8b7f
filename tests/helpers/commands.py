"""Commands, called as from a shell."""

from __future__ import annotations

import json
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner, Result

from discreet import cli

RUNNER = CliRunner()
ALL: dict[str, Any] = dict(get_command(cli.app).commands)  # type: ignore[attr-defined]
ALL |= {f"ledger {name}": one for name, one in ALL["ledger"].commands.items()}


def call(*arguments: Any, code: int = 0) -> Result:
    """What a command printed; it must end with this exit status."""
    result = RUNNER.invoke(cli.app, [str(a) for a in arguments])
    assert result.exit_code == code, (result.output, result.stderr, result.exception)
    return result


def document(*arguments: str, code: int = 0) -> Any:
    """The JSON document that a command printed."""
    return json.loads(call(*arguments, "--json", code=code).stdout)
