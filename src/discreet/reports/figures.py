"""Helpers for all reports: formatted numbers, and figures that are reproducible byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from discreet.utils.plot_style import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["number", "percent", "plain_axes", "save_figures", "share_of"]


def share_of(value: float) -> float:
    """Return a noisy share after clipping to [0, 1]."""
    return float(np.clip(value, 0.0, 1.0))


def percent(share: float) -> str:
    """Return a share as text in percent."""
    return f"{100 * share:.1f} %"


def number(value: float) -> str:
    """Return a number as text with three decimals, or with more decimals if these three are 0."""
    return f"{value:.3f}" if abs(value) >= 0.001 or value == 0.0 else f"{value:.1e}"


def plain_axes(axes: Axes) -> None:
    """Style axes with two spines and small ticks."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def save_figures(folder: Path | str, figures: Mapping[str, Figure]) -> tuple[Path, ...]:
    """Save each figure as PNG and as SVG under its name; return the files.

    Files are written under a temporary name and then renamed. Equal figures give equal bytes. Text in SVG
    files stays text.
    """
    written = []
    for name, figure in figures.items():
        for suffix in ("png", "svg"):
            written.append(Path(folder, f"{name}.{suffix}"))
            save_figure(figure, written[-1], text=True)
    return tuple(written)
