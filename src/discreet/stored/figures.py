"""Numbers in words, and figures that are equal byte for byte: for all reports."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from discreet.storage.files import write_aside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["number", "percent", "plain_axes", "save_figure", "share_of"]


def share_of(value: float) -> float:
    """A noisy share, in [0, 1]."""
    return float(np.clip(value, 0.0, 1.0))


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.1f} %"


def number(value: float) -> str:
    """Three figures behind the point, more where all of them are 0."""
    return f"{value:.3f}" if abs(value) >= 0.001 or value == 0.0 else f"{value:.1e}"


def plain_axes(axes: Axes) -> None:
    """Two spines, small ticks."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def save_figure(figure: Figure, path: Path) -> None:
    """Written aside, then renamed; equal figures give equal bytes."""
    import matplotlib

    suffix = path.suffix[1:]
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "discreet"}):
        figure.savefig(content, format=suffix, dpi=200, metadata={"Date": None} if suffix == "svg" else {})
    write_aside(path, content.getvalue())
