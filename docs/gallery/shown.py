"""What the gallery's scripts share: figures of one look, tables, and the stamp under each of them.

A stamp says what was promised (the true ε, computed from the noise), how many seeds there were, and how long
it took. Scripts run by themselves, too: ``python docs/gallery/NAME.py`` prints and draws the same.
"""

from __future__ import annotations

import html
import textwrap
import time
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito
_began = time.perf_counter()


def reset(_settings: Any, _script: str) -> None:
    """Sphinx-gallery calls this before each script."""
    global _began
    plt.close("all")
    _began = time.perf_counter()


def figure(columns: int = 1, width: float = 7.0, height: float = 3.8) -> tuple[Figure, Any]:
    """A figure and its axes, in one row."""
    style = {
        "font.size": 9.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "axes.prop_cycle": plt.cycler(color=COLOURS),
        "legend.frameon": False,
        "axes.axisbelow": True,
        "axes.titlesize": 10,
        "figure.dpi": 110,
    }
    plt.rcParams.update(style)
    return plt.subplots(1, columns, figsize=(width, height), layout="constrained")


def band(axes: Axes, x: Any, low: Any, high: Any, colour: str) -> None:
    """An interval around a curve."""
    axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)


def epsilon_of(guarantee: Any) -> str:
    """The true budget in a few words."""
    if guarantee is None or guarantee.epsilon is None:
        return "not private"
    delta = f", δ = {guarantee.delta:.0e}".replace("e-0", "e-") if guarantee.delta else ""
    return f"{guarantee.trust} ε = {guarantee.epsilon:.3g}{delta}"


def stamp(promised: Any, seeds: int | str, drawn: Figure | None = None) -> None:
    """What was promised, seeds and seconds: under the figure, or printed where there is none.

    promised : a guarantee, several, or words.
    """
    if isinstance(promised, str):
        words = promised
    elif isinstance(promised, Sequence):
        words = "; ".join(dict.fromkeys(epsilon_of(one) for one in promised))
    else:
        words = epsilon_of(promised)
    line = f"{words} · seeds: {seeds} · {time.perf_counter() - _began:.1f} s"
    if drawn is None:
        print(line)
    else:
        drawn.supxlabel("\n".join(textwrap.wrap(line, 110)), fontsize=7.5, color="0.4", x=0.01, ha="left")


class Table:
    """Rows under a header: text in a terminal, a table on a page."""

    def __init__(self, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self.header = list(header)
        self.rows = [[cell if isinstance(cell, str) else f"{cell:,.4g}" for cell in row] for row in rows]

    def __repr__(self) -> str:
        wide = [max(len(row[i]) for row in [self.header, *self.rows]) for i in range(len(self.header))]
        return "\n".join(
            "  ".join(cell.ljust(wide[i]) if i == 0 else cell.rjust(wide[i]) for i, cell in enumerate(row))
            for row in [self.header, *self.rows]
        )

    def _repr_html_(self) -> str:
        def line(tag: str, row: Sequence[str]) -> str:
            side = ' style="text-align: {}"'.format
            cells = (
                f"<{tag}{side('right' if i else 'left')}>{html.escape(cell)}</{tag}>"
                for i, cell in enumerate(row)
            )
            return f"<tr>{''.join(cells)}</tr>"

        head, body = line("th", self.header), "".join(line("td", row) for row in self.rows)
        return f'<table class="table"><thead>{head}</thead><tbody>{body}</tbody></table>'
