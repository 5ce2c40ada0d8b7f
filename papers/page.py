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
from discreet.utils.markdown_table import Table

__all__ = [
    "FAILS", "HOLDS", "OPEN", "Claims", "budget", "claims_table", "clearly_below", "filled", "papers", "plus",
    "power_of_ten", "reference_lines", "standard_error", "tally", "verdict",
]  # fmt: skip

HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot be told at this size"
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

    def add(self, claim: str, verdict: bool | str, numbers: str, source: str = "") -> None:
        """A claim, its verdict (whether it holds, or in words), the reason and the numbers that decide it.

        source : where the paper makes it (theorem, figure, section); none: it is not the paper's.
        """
        told = {"verdict": verdict} if isinstance(verdict, str) else {"holds": bool(verdict)}
        where = {"source": source} if source else {}
        self.found.append({"claim": claim, **told, "numbers": numbers, **where})


def verdict(one: Mapping[str, Any]) -> str:
    """:data:`HOLDS`, :data:`FAILS` or :data:`OPEN`."""
    return str(one["verdict"]) if "verdict" in one else HOLDS if one["holds"] else FAILS


def papers(found: Sequence[Mapping[str, Any]], ours: bool = False) -> list[Mapping[str, Any]]:
    """The claims that the paper makes; ours : the others."""
    return [one for one in found if ("source" in one) != ours]


def tally(found: Sequence[Mapping[str, Any]]) -> str:
    """``3 hold, 1 does not, 2 cannot be told at this size``."""
    words = [verdict(one) for one in found]
    holds, fails, opened = (words.count(word) for word in (HOLDS, FAILS, OPEN))
    said = [f"{holds} hold{'s' if holds == 1 else ''}", f"{fails} do{'es' if fails == 1 else ''} not"]
    return ", ".join(said + [f"{opened} {OPEN}"] * bool(opened))


def claims_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """A line a claim; what does not hold stands out. Where the paper makes it, if it is the paper's."""
    sourced = any("source" in one for one in found)
    lines: list[tuple[str, ...]] = [("claim", *(["in the paper"] * sourced), "verdict", "reason and figures")]
    for one in found:
        word = verdict(one)
        where = [one.get("source", "")] * sourced
        lines.append((one["claim"], *where, word if word == HOLDS else f"**{word}**", one["numbers"]))
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
