"""Summary text of a learner."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any


def summary_of(learner: Any, heuristics: Iterable[str], theorem: str = "") -> str:
    """Return a string that lists the options of a learner and states whether the regret theorem covers them.

    ``heuristics`` yields one string for each option value that the theorem does not cover. ``theorem`` is the
    scope of the theorem, for example " of Jin et al. (2020)". It is appended to the words "the regret
    theorem" and must begin with a space.
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
