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


def share_of(value: float) -> float:
    """Return a share clipped to [0, 1]. Noise can move an estimated share outside this interval."""
    return float(np.clip(value, 0.0, 1.0))


def percent(share: float) -> str:
    """Return a share as text in percent."""
    return f"{100 * share:.1f} %"


def number(value: float) -> str:
    """Return a number as text with three decimals.

    Numbers other than 0 whose absolute value is below 0.001 are in scientific notation.
    """
    return f"{value:.3f}" if abs(value) >= 0.001 or value == 0.0 else f"{value:.1e}"


def plain_axes(axes: Axes) -> None:
    """Hide the top and right spines of the axes, and make the labels of the ticks small."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def save_figures(folder: Path | str, figures: Mapping[str, Figure]) -> tuple[Path, ...]:
    """Save each figure as a PNG file and an SVG file under its name. Returns the paths of the files.

    Files are written under a temporary name first and are then renamed. Equal figures give equal bytes. Text
    in SVG files is stored as text, not as outlines.
    """
    written = []
    for name, figure in figures.items():
        for suffix in ("png", "svg"):
            written.append(Path(folder, f"{name}.{suffix}"))
            save_figure(figure, written[-1], text=True)
    return tuple(written)
