"""What pages of reproductions share: templates, claims, words for budgets, errors and axes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from discreet.experiments.statistics import number
from discreet.tables import Table

__all__ = [
    "HOLDS", "Claims", "budget", "claims_table", "clearly_below", "filled", "plus", "power_of_ten",
    "reference_lines", "standard_error",
]  # fmt: skip

HOLDS = "holds"
WIDTH = 115
_AS_THEY_ARE = ("#", "```", "!", "|")


# --------------------------------------------------------------------------------- templates
def filled(template: Path, wrap: bool = True, **values: Any) -> str:
    """A page from its template: ``{name}`` is replaced, paragraphs are wrapped anew.

    Headings, code, figures and tables stay as they are, as does everything if ``wrap`` is false. A paragraph
    that becomes empty is left out.
    """
    parts = (part.strip("\n") for part in template.read_text("utf-8").format(**values).split("\n\n"))
    kept = [part for part in parts if part]
    if wrap:
        kept = [
            part if part.startswith(_AS_THEY_ARE) else textwrap.fill(part, WIDTH, break_on_hyphens=False)
            for part in kept
        ]
    return "\n\n".join(kept) + "\n"


# ------------------------------------------------------------------------------------ claims
class Claims:
    """Claims in the order in which they are added."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    def add(self, claim: str, verdict: bool | str, numbers: str) -> None:
        """A claim, its verdict (whether it holds, or in words), and the numbers that decide it."""
        told = {"verdict": verdict} if isinstance(verdict, str) else {"holds": bool(verdict)}
        self.found.append({"claim": claim, **told, "numbers": numbers})


def claims_table(found: Sequence[Mapping[str, Any]], verdict: str = "verdict") -> Table:
    """A line a claim; what does not hold stands out. verdict : the head of its column."""
    lines = [("claim", verdict, "numbers")]
    for one in found:
        word = one["verdict"] if "verdict" in one else HOLDS if one["holds"] else "fails"
        lines.append((one["claim"], word if word == HOLDS else f"**{word}**", one["numbers"]))
    return lines


# ------------------------------------------------------------------------------------- words
def budget(epsilon: float | None) -> str:
    """``ε = 1``, or ``no privacy``."""
    return "no privacy" if epsilon is None else f"ε = {epsilon:g}"


def power_of_ten(delta: float) -> str:
    """``1e-6`` for 1e-06."""
    return f"{delta:.0e}".replace("e-0", "e-")


def plus(mean: float, error: float, digits: int = 2) -> str:
    """``1.25 ± 0.10``."""
    return f"{mean:,.{digits}f} ± {error:,.{digits}f}"


def reference_lines(losses: Mapping[str, float], *users: float, plain: bool = False) -> list[tuple[str, ...]]:
    """(name, regret after each number of users) of policies that need no data, from their loss a user."""
    word = "{:,.0f}".format if plain else number
    return [(f"*{name}*", *(word(loss * k) for k in users)) for name, loss in losses.items()]


# ----------------------------------------------------------------------------------- numbers
def standard_error(values: ArrayLike) -> float:
    """Of the mean of independent values (n,); nan of a single one."""
    array = np.asarray(values, float)
    return float(array.std(ddof=1)) / math.sqrt(array.size) if array.size > 1 else math.nan


def clearly_below(mean: float, error: float, other_mean: float, other_error: float) -> bool:
    """Whether a mean is smaller by two standard errors of the difference."""
    return bool(other_mean - mean > 2 * math.hypot(error, other_error))
