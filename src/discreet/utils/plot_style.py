"""Style of figures: colours, journal column widths, names next to curves, intervals, file formats.

The colours are those of Okabe and Ito, which most colour-blind readers can distinguish. Curves also differ by
line style, for print without colour. Figures are built without matplotlib's global state and need no display.
PDF files embed their fonts (TrueType, type 42, as journals require). SVG files draw their letters as
outlines. A matplotlib style file overrides these settings.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import checks
from discreet.utils.atomic_file import write_aside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "FORMATS", "JOURNALS", "LINES", "PALETTE", "draw_interval", "error_bars", "interval", "label_ends",
    "look", "new_figure", "save_figure", "styled", "tidy", "width_of",
]  # fmt: skip

Floats = NDArray[np.float64]

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)))
FORMATS = (".png", ".pdf", ".svg")
# Widths in mm of one column and of two (or of the text). `Read` means in the publisher's own style file or
# page of that name. `Quoted` means the publisher's words as other projects quote them, because the
# publisher's page could not be read.
JOURNALS: Mapping[str, tuple[float, float]] = {
    # read: acmart.dtx (2024), sigconf: letter paper less 2 x 54 pt, columnsep 2 pc: 241.15 pt and 506.3 pt
    "acm": (84.75, 177.9),
    # quoted (CRAN package lehuynh): elsevier.com, artwork sizing: 90 mm (255 pt) and 190 mm (539 pt)
    "elsevier": (90.0, 190.0),
    # read: icml2025.sty: textwidth 6.75 in, columnsep 0.25 in
    "icml": (82.55, 171.45),
    # quoted: ieeeauthorcenter.ieee.org, size requirements for graphics: 3.5 in and 7.16 in.
    # Read: IEEEtran.cls 1.8b: columns of 21 pc in a text of 43 pc, which is 88.6 mm and 181.4 mm
    "ieee": (88.9, 181.9),
    # read: jmlr2e.sty: textwidth 6.0 true in
    "jmlr": (152.4, 152.4),
    # read: research-figure-guide.nature.com, building and exporting figure panels: 89 mm and 183 mm
    "nature": (89.0, 183.0),
    # read: neurips_2026.sty: textwidth 5.5 in
    "neurips": (139.7, 139.7),
    # quoted: journals.plos.org/plosone/s/figures: 5.2 in in the column of text, 7.5 in at most
    "plos": (132.1, 190.5),
    # quoted: pnas.org, author center, digital art: 8.7 cm, (11.4 cm) and 17.8 cm
    "pnas": (87.0, 178.0),
    # quoted: science.org, preparing figures: 5.7 cm and 12.1 cm (and 18.4 cm, three columns)
    "science": (57.0, 121.0),
    # read: svglov3.clo of svjour3: textwidth 17.4 cm, columnsep 6 mm: two columns of 84 mm
    "springer": (84.0, 174.0),
}
_MM = 25.4  # millimetres per inch
_PRINT = {  # font sizes in points, for a figure that is printed without scaling
    "font.size": 7.0, "axes.titlesize": 7.0, "axes.labelsize": 7.0, "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5, "legend.fontsize": 6.5, "axes.linewidth": 0.6, "lines.linewidth": 1.0,
}  # fmt: skip


def width_of(columns: int, journal: str = "nature") -> float:
    """Return the width in inches of 1 or 2 columns of a journal; raises ``ValueError`` for others."""
    columns = checks.integer("columns", columns, 1, 2)
    checks.choice("journal", journal, JOURNALS)
    return JOURNALS[journal][columns - 1] / _MM


@contextmanager
def styled(style: Path | str | None = None, columns: int | None = None) -> Iterator[None]:
    """Apply a matplotlib style file, and font sizes for print in columns, within the block.

    style : a ``.mplstyle`` file. Raises ``ValueError`` if it cannot be read.
    """
    import matplotlib

    settings: dict[str, Any] = {} if columns is None else dict(_PRINT)
    if style is not None:
        path = Path(style)
        if not path.is_file():
            raise ValueError(f"style = {str(style)!r}: no such file")
        try:
            settings |= matplotlib.rc_params_from_file(str(path), use_default_template=False)
        except (KeyError, ValueError, UnicodeDecodeError) as error:
            raise ValueError(
                f"style = {str(style)!r}: must be a style file of matplotlib ({error})"
            ) from error
    with matplotlib.rc_context(settings):
        yield


def new_figure(width: float = 7.0, height: float = 4.6) -> Figure:
    """Make an empty figure, with its size in inches, outside matplotlib's global state.

    A notebook shows it as a picture.
    """
    from discreet.utils.notebook_figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, path: Path, *, text: bool = False) -> None:
    """Write a .png (200 dpi), .pdf or .svg atomically; equal figures give equal bytes.

    text : if True, text in an SVG file stays text, for screens, and is shown in an available font.
    """
    import matplotlib

    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise ValueError(f"path = {str(path)!r}: must end with one of {', '.join(FORMATS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}[suffix]
    content = io.BytesIO()
    fonts = {"svg.fonttype": "none" if text else "path", "pdf.fonttype": 42, "svg.hashsalt": "discreet"}
    with matplotlib.rc_context(fonts):
        figure.savefig(content, format=suffix[1:], dpi=200, metadata=metadata)
    write_aside(path, content.getvalue())


def look(i: int) -> tuple[str, Any]:
    """Return colour and line style of the i-th curve: different for the first 32."""
    return PALETTE[i % len(PALETTE)], LINES[(i + i // len(PALETTE)) % len(LINES)]


# --------------------------------------------------------------------------------------- intervals
def interval(mean: ArrayLike, half: ArrayLike, log: bool) -> tuple[Floats, Floats]:
    """Return (low, high) for means with half-widths.

    On a logarithmic axis, it is the interval of the logarithm.

    To first order, the error of the logarithm of an estimate is half / mean. Therefore low and high are mean
    times exp(-+ half / mean). Both are above 0, and both parts have equal length on the axis.
    """
    centre, width = np.asarray(mean, np.float64), np.asarray(half, np.float64)
    if not log:
        return centre - width, centre + width
    relative = np.divide(width, centre, out=np.zeros_like(centre + width), where=centre > 0)
    return centre * np.exp(-relative), centre * np.exp(relative)


def draw_interval(
    axes: Axes, at: ArrayLike, mean: ArrayLike, half: ArrayLike, colour: str, log: bool
) -> None:
    """Draw a band around a curve."""
    low, high = interval(mean, half, log)
    axes.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0, zorder=2)


def error_bars(mean: ArrayLike, half: ArrayLike, log: bool) -> Floats:
    """Return the (2, n) lengths of error bars below and above, as matplotlib's ``errorbar`` needs them."""
    low, high = interval(mean, half, log)
    return np.stack([np.asarray(mean) - low, high - np.asarray(mean)])


# ------------------------------------------------------------------------------------------ words
def label_ends(
    axes: Axes, ends: Sequence[tuple[float, str, str]], size: float = 7.5, width: int = 30
) -> bool:
    """Write names to the right of the axes, at the heights where the curves end, instead of a legend.

    ends : (y, name, colour). Overlapping names are moved apart, with a thin line to their curve's end.
    Returns False, and draws nothing, if the space is too small for all names. Limits and scales of the axes
    must be set.
    """
    page: Any = axes.figure
    figure_width, figure_height = page.get_size_inches()
    whole = [name.replace(" = ", "\u00a0=\u00a0") for _, name, _ in ends]  # no line break at this position
    said = [textwrap.fill(name, width, break_long_words=False) for name in whole]
    lines = np.array([1 + text.count("\n") for text in said])
    longest = max(len(line) for text in said for line in text.split("\n"))
    tall = 1.25 * size / 72 / (figure_height * axes.get_position().height)
    room = (lines + 0.3) * tall
    if room.sum() > 1.0 or 0.55 * size * longest / 72 > 0.45 * figure_width:
        return False
    x = axes.get_xlim()[1]
    axes.get_ylim()
    heights = [axes.transAxes.inverted().transform(axes.transData.transform((x, y)))[1] for y, *_ in ends]
    order = np.argsort(heights, kind="stable")
    places = np.clip(heights, 0.0, 1.0)[order]
    apart = (room[order][1:] + room[order][:-1]) / 2
    for _ in range(200):  # two overlapping neighbours are moved by half of the overlap each
        lack = np.maximum(0.0, apart - np.diff(places)) / 2
        if lack.max(initial=0.0) < 1e-4:
            break
        places[:-1] -= lack
        places[1:] += lack
        places = np.clip(places, room[order] / 2, 1 - room[order] / 2)
    for i, place in zip(order.tolist(), places.tolist(), strict=True):
        height = float(np.clip(heights[i], 0.0, 1.0))
        axes.annotate(
            said[i], (1.0, height), (1.035, place), "axes fraction", "axes fraction", fontsize=size,
            color=ends[i][2], va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": ends[i][2], "linewidth": 0.5, "shrinkA": 0, "shrinkB": 0,
                        "relpos": (0.0, 0.5)},
        )  # fmt: skip
    return True


def tidy(axes: Axes, scales: str = "", title: str = "", size: float = 9, **labels: str) -> None:
    """Apply the common style of all figures to axes.

    Parameters
    ----------
    scales : "x", "y" or "xy": the axes that are logarithmic
    title : title above the axes, aligned left
    labels : ``x`` and ``y``
    """
    if "x" in scales:
        axes.set_xscale("log")
    if "y" in scales:
        axes.set_yscale("log")
    axes.grid(True, which="major", color="0.9", linewidth=0.6, zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
    if title:
        axes.set_title(title, fontsize=size, loc="left")
    if "x" in labels:
        axes.set_xlabel(labels["x"])
    if "y" in labels:
        axes.set_ylabel(labels["y"])
