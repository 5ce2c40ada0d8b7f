"""Helpers of the gallery scripts: figures in a common style, tables, and a stamp for each of them.

A stamp states the guarantee (the true ε, computed from the noise), the number of seeds, and the running time.
Each script also runs without Sphinx: ``python docs/gallery/NAME.py`` prints and draws the same results.
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
    """Close all figures and restart the clock. Sphinx-gallery calls this function before each script."""
    global _began
    plt.close("all")
    _began = time.perf_counter()


def figure(columns: int = 1, width: float = 7.0, height: float = 3.8) -> tuple[Figure, Any]:
    """Return a figure and its axes (one object, or an array for several ``columns`` in one row)."""
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
    """Draw an interval around a curve."""
    axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)


def epsilon_of(guarantee: Any) -> str:
    """Return the trust model, epsilon and delta of a guarantee as short text."""
    if guarantee is None or guarantee.epsilon is None:
        return "not private"
    delta = f", δ = {guarantee.delta:.0e}".replace("e-0", "e-") if guarantee.delta else ""
    return f"{guarantee.trust} ε = {guarantee.epsilon:.3g}{delta}"


def stamp(promised: Any, seeds: int | str, drawn: Figure | None = None) -> None:
    """Write the guarantee, the seeds and the running time in seconds under a figure.

    Without a figure, print them.

    promised : one guarantee, a sequence of guarantees, or a string.
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
    """Table with a header. It is shown as text in a terminal and as HTML on a page."""

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
