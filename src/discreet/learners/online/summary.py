"""Summary text of a learner."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any


def summary_of(learner: Any, heuristics: Iterable[str], theorem: str = "") -> str:
    """Return a text with the options and with whether the regret theorem holds for them.

    heuristics : options whose values invalidate the theorem, each with the reason. theorem : scope of the
    theorem, which the text appends after a comma.
    """
    said = ", ".join(
        f"{f.name}={getattr(learner, f.name)!r}"
        for f in fields(learner)
        if getattr(learner, f.name) is not None
    )
    reasons = tuple(heuristics)
    verdict = (
        "The regret theorem does not cover these options: " + "; ".join(reasons) + "."
        if reasons
        else f"The options are those of the regret theorem{theorem}."
    )
    return f"{type(learner).__name__}({said})\n{verdict}"
