"""Figures of a report are a function of the report: equal reports are drawn once in a test run.

For tests that have the same folder made or verified many times. That equal reports give equal bytes is tested
where nothing is remembered (tests/stored/test_report.py, tests/test_cli_stored.py).
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from discreet.storage.files import write_aside
from discreet.stored.report import Report

_DRAWN: dict[bytes, tuple[tuple[str, bytes], ...]] = {}


def drawn_once(patch: pytest.MonkeyPatch) -> None:
    """Remember what reports draw, by all that they hold."""
    patch.setattr(Report, "figures", _remembering(Report.figures))


def _remembering(draw: Any) -> Any:
    def figures(self: Any, folder: Path | str) -> tuple[Path, ...]:
        key, folder = pickle.dumps(vars(self)), Path(folder)
        if key not in _DRAWN:
            _DRAWN[key] = tuple((path.name, path.read_bytes()) for path in draw(self, folder))
        else:
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in _DRAWN[key]:
                write_aside(folder / name, content)
        return tuple(folder / name for name, _ in _DRAWN[key])

    return figures
