"""Style of figures: colours, journal column widths, names next to curves, intervals, file formats.

The colours are those of Okabe and Ito, which most colour-blind readers can distinguish. Curves also have
different line styles, so that they can be distinguished in print without colour. Figures do not use
matplotlib's global state (pyplot) and need no display. PDF files embed their fonts (TrueType, type 42, as
journals require). SVG files contain the letters as outlines. A matplotlib style file overrides these
settings.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from discreet.core import checks
from discreet.core.releases import Floats
from discreet.utils.atomic_file import write_aside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)))
FORMATS = (".png", ".pdf", ".svg")
# Widths in mm of a figure in one column, and of a figure in two columns (or of the full text). `Read` means
# that the numbers come directly from the named style file or page of the publisher. `Quoted` means that the
# publisher's page could not be read, and the numbers are those that other projects quote from it.
JOURNALS: Mapping[str, tuple[float, float]] = {
    # read: acmart.dtx (2024), sigconf: letter width minus 2 x 54 pt, columnsep 2 pc: 241.15 pt and 506.3 pt
    "acm": (84.75, 177.9),
    # quoted (CRAN package lehuynh): elsevier.com, artwork sizing: 90 mm (255 pt) and 190 mm (539 pt)
    "elsevier": (90.0, 190.0),
    # read: icml2025.sty: textwidth 6.75 in, columnsep 0.25 in
    "icml": (82.55, 171.45),
    # quoted: ieeeauthorcenter.ieee.org, size requirements for graphics: 3.5 in and 7.16 in.
    # Read: IEEEtran.cls 1.8b: column width 21 pc and text width 43 pc, which are 88.6 mm and 181.4 mm
    "ieee": (88.9, 181.9),
    # read: jmlr2e.sty: textwidth 6.0 true in
    "jmlr": (152.4, 152.4),
    # read: research-figure-guide.nature.com, building and exporting figure panels: 89 mm and 183 mm
    "nature": (89.0, 183.0),
    # read: neurips_2026.sty: textwidth 5.5 in
    "neurips": (139.7, 139.7),
    # quoted: journals.plos.org/plosone/s/figures: 5.2 in for the text column, 7.5 in at most
    "plos": (132.1, 190.5),
    # quoted: pnas.org, author center, digital art: 8.7 cm, (11.4 cm) and 17.8 cm
    "pnas": (87.0, 178.0),
    # quoted: science.org, preparing figures: 5.7 cm and 12.1 cm (and 18.4 cm, three columns)
    "science": (57.0, 121.0),
    # read: svglov3.clo of svjour3: textwidth 17.4 cm, columnsep 6 mm: two columns of 84 mm
    "springer": (84.0, 174.0),
}
_MM = 25.4  # millimetres per inch
_PRINT = {  # font sizes and line widths in points, for a figure that is printed without scaling
    "font.size": 7.0, "axes.titlesize": 7.0, "axes.labelsize": 7.0, "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5, "legend.fontsize": 6.5, "axes.linewidth": 0.6, "lines.linewidth": 1.0,
}  # fmt: skip


def width_of(columns: int, journal: str = "nature") -> float:
    """Return the width in inches of a figure that spans 1 or 2 columns of a journal.

    Raises ``ValueError`` if ``columns`` is not 1 or 2, or if ``journal`` is not in ``JOURNALS``.
    """
    columns = checks.integer("columns", columns, 1, 2)
    checks.choice("journal", journal, JOURNALS)
    return JOURNALS[journal][columns - 1] / _MM


@contextmanager
def styled(style: Path | str | None = None, columns: int | None = None) -> Iterator[None]:
    """Apply a matplotlib style within the block.

    style : a ``.mplstyle`` file, or None. Raises ``ValueError`` if the file cannot be read.

    columns : if it is not None, the font sizes for printed columns are applied too. The style file overrides
        them.
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
    """Return an empty figure with the given width and height in inches.

    The figure is not registered in matplotlib's global state. A notebook shows it as an image.
    """
    from discreet.utils.notebook_figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, path: Path, *, text: bool = False) -> None:
    """Write a figure to a .png (200 dpi), .pdf or .svg file atomically. Equal figures give equal bytes.

    text : if True, an SVG file contains its text as characters instead of outlines. The viewer then selects
        one of its fonts. Use this option for figures on screens.
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
    """Return the colour and the line style of curve number ``i``. The first 32 curves get different pairs."""
    return PALETTE[i % len(PALETTE)], LINES[(i + i // len(PALETTE)) % len(LINES)]


# --------------------------------------------------------------------------------------- intervals
def interval(mean: ArrayLike, half: ArrayLike, log: bool) -> tuple[Floats, Floats]:
    """Return the lower and upper ends of intervals around ``mean`` with half-width ``half``.

    On a linear axis, the ends are mean -+ half. On a logarithmic axis (``log``), the interval is that of the
    logarithm of the mean. To first order, the error of the logarithm of an estimate is half / mean. Therefore
    the ends are mean times exp(-+ half / mean). Both ends are above 0 and have the same distance to the mean
    on the axis.
    """
    centre, width = np.asarray(mean, np.float64), np.asarray(half, np.float64)
    if not log:
        return centre - width, centre + width
    relative = np.divide(width, centre, out=np.zeros_like(centre + width), where=centre > 0)
    return centre * np.exp(-relative), centre * np.exp(relative)


def draw_interval(
    axes: Axes, at: ArrayLike, mean: ArrayLike, half: ArrayLike, colour: str, log: bool
) -> None:
    """Draw a shaded band with the intervals of :func:`interval` around the curve (``at``, ``mean``)."""
    low, high = interval(mean, half, log)
    axes.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0, zorder=2)


def error_bars(mean: ArrayLike, half: ArrayLike, log: bool) -> Floats:
    """Return a (2, n) array with the lengths of error bars below and above each mean.

    The array can be passed as ``yerr`` to matplotlib's ``errorbar``.
    """
    low, high = interval(mean, half, log)
    return np.stack([np.asarray(mean) - low, high - np.asarray(mean)])


# ------------------------------------------------------------------------------------------ words
def label_ends(
    axes: Axes, ends: Sequence[tuple[float, str, str]], size: float = 7.5, width: int = 30
) -> bool:
    """Write the names of curves to the right of the axes, at the heights where the curves end.

    The names replace a legend. Overlapping names are moved apart. A thin line connects each name to the end
    of its curve. Returns False and draws nothing if the space is too small for all names. The limits and
    scales of the axes must be set before the call.

    ends : (y, name, colour) of each curve, where y is the height of its right end in data coordinates.

    width : largest number of characters in a line of a name.
    """
    page: Any = axes.figure
    figure_width, figure_height = page.get_size_inches()
    whole = [name.replace(" = ", "\u00a0=\u00a0") for _, name, _ in ends]  # prevents a line break around "="
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
    for _ in range(200):  # each of two overlapping neighbours is moved by half of the overlap
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


def tidy(axes: Axes, scales: str = "", title: str = "", **labels: str) -> None:
    """Apply the common style of all figures to ``axes``.

    Parameters
    ----------
    scales : "x", "y" or "xy": the axes that become logarithmic. "" for none
    title : title above the axes, aligned left
    labels : labels of the two axes, as ``x`` and ``y``. Both are optional
    """
    if "x" in scales:
        axes.set_xscale("log")
    if "y" in scales:
        axes.set_yscale("log")
    axes.grid(True, which="major", color="0.9", linewidth=0.6, zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
    if title:
        axes.set_title(title, fontsize=9, loc="left")
    if "x" in labels:
        axes.set_xlabel(labels["x"])
    if "y" in labels:
        axes.set_ylabel(labels["y"])
