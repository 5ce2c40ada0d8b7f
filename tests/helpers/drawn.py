"""Figures of a report are a function of the report: tests whose subject is no figure have them sketched.

That figures show what they should, and that equal reports give equal bytes, is tested with those that users
have (tests/reports/test_policy_report.py, tests/pipeline/learn/test_decision_points.py,
tests/cli/test_learn.py).
"""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from discreet.reports import figures
from discreet.reports.decision_report import DecisionReport
from discreet.reports.policy_report import Report
from discreet.utils.atomic_file import write_aside

_MADE = (
    (Report, "_values_figure"),
    (Report, "_support_figure"),
    (DecisionReport, "_figure"),
    (DecisionReport, "_outcome_figure"),
    (figures, "save_figure"),
)
_BY_MATPLOTLIB = [(where, name, getattr(where, name)) for where, name in _MADE]


def sketched(put: Callable[[Any, str, Any], None]) -> None:
    """Files of the same names are small pictures and texts of all that the report holds, without Matplotlib.

    put : ``setattr``, or that of a ``MonkeyPatch``.
    """
    for where, name in _MADE:
        put(where, name, _sketch if name == "save_figure" else _naming(name))


def by_matplotlib(put: Callable[[Any, str, Any], None]) -> None:
    """As users have it."""
    for where, name, function in _BY_MATPLOTLIB:
        put(where, name, function)


def _naming(name: str) -> Callable[[Any], str]:
    def all_that_it_holds(self: Any) -> str:
        with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
            held = f"{name} {vars(self)!r}"
        assert " at 0x" not in held
        return held

    return all_that_it_holds


def _sketch(figure: str, path: Path, text: bool) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    digest, content = hashlib.sha256(figure.encode()), io.BytesIO()
    if path.suffix == ".svg":
        content.write(f"<svg><text>{digest.hexdigest()}</text></svg>\n".encode())
    else:
        Image.frombytes("L", (8, 4), digest.digest()).save(content, path.suffix[1:])
    write_aside(path, content.getvalue())
