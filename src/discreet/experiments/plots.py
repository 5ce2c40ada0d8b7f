"""Figures: cumulative regret against users, with its spread and a reference that needs no data.

Every curve is a mean over seeds with a pointwise 95 % band (Student's t); its legend line states the
learner, the trust model with the true epsilon, and the number of seeds. The dashed line is the
uniform policy, which never learns. Colours are those of Okabe and Ito, told apart by most
colour-blind readers; line styles repeat the distinction for print. Figures are built without
matplotlib's global state and need no display.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.core import checks
from discreet.experiments import statistics
from discreet.experiments.labels import short_labels
from discreet.storage.files import write_aside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from discreet.experiments.results import Result

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)))
FORMATS = (".png", ".pdf", ".svg")
_TRUST = {"joint": "joint DP", "local": "local DP", "shuffle": "shuffle DP"}


def privacy_words(guarantee: Any) -> str:
    """Trust model and true budget in a few words: ``joint DP, ε = 2.1 (stated 1)`` or ``not private``."""
    if guarantee.trust == "none" or guarantee.epsilon is None:
        return "not private"
    nominal, digits = guarantee.epsilon_nominal, 3
    differs = nominal is not None and not np.isclose(nominal, guarantee.epsilon, rtol=1e-6, atol=0.0)
    while differs and digits < 7 and f"{guarantee.epsilon:.{digits}g}" == f"{nominal:.{digits}g}":
        digits += 1  # 1.003 (stated 1), not 1 (stated 1)
    words = f"{_TRUST.get(guarantee.trust, guarantee.trust)}, ε = {guarantee.epsilon:.{digits}g}"
    if guarantee.delta:
        words += f", δ = {guarantee.delta:.0e}"
    return f"{words} (stated {nominal:.{digits}g})" if differs else words


def legend_label(result: Result, label: str | None = None) -> str:
    """Learner, privacy, number of seeds."""
    seeds = len(result.runs)
    return (
        f"{label or result.label}: {privacy_words(result.guarantee)}; {seeds} seed{'s' if seeds > 1 else ''}"
    )


def draw_regret(axes: Axes, results: Sequence[Result], scale: str = "log", reference: bool = True) -> None:
    """Draw curves, bands and the reference of the uniform policy into axes.

    scale : "log" (both axes) or "linear". Results must share environment and number of users.
    """
    checks.choice("scale", scale, ("log", "linear"))
    _comparable(results)
    labels, _ = short_labels(results)
    for i, (result, label) in enumerate(zip(results, labels, strict=True)):
        colour, line = look(i)
        mean, half = statistics.bands(result.regret)
        axes.plot(
            result.episodes,
            mean,
            color=colour,
            linestyle=line,
            linewidth=_width(i, len(results)),
            label=legend_label(result, label),
            zorder=3,
        )
        if half is not None:
            axes.fill_between(
                result.episodes, mean - half, mean + half, color=colour, alpha=0.18, linewidth=0, zorder=2
            )
    first = results[0]
    if reference:
        longest = max(results, key=lambda result: result.users)
        axes.plot(
            longest.episodes,
            longest.episodes * (first.optimal_value - first.uniform_value),
            color="0.2",
            linestyle=(0, (2, 3)),
            linewidth=0.9,
            label="uniform policy (never learns)",
            zorder=4,
        )
    if scale == "log":
        axes.set_xscale("log")
        axes.set_yscale("log")
        lowest = min(float(statistics.bands(result.regret)[0][0]) for result in results)
        axes.set_ylim(bottom=max(lowest, 1e-3) * 0.5)
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel("users (episodes)")
    axes.set_ylabel("cumulative regret")
    axes.grid(True, which="major", color="0.9", linewidth=0.6, zorder=0)
    axes.spines[["top", "right"]].set_visible(False)


def look(i: int) -> tuple[str, Any]:
    """Colour and line style of the i-th curve: different for the first 32."""
    return PALETTE[i % len(PALETTE)], LINES[(i + i // len(PALETTE)) % len(LINES)]


def _width(i: int, curves: int) -> float:
    """Curves drawn later are thinner: where they lie on each other, all are seen."""
    return 1.4 if curves < 2 else 2.4 - 1.2 * i / (curves - 1)


def _comparable(results: Sequence[Result]) -> None:
    if not results:
        raise ValueError("results = []: must hold at least one result")
    worlds = sorted({result.environment for result in results})
    if len(worlds) > 1:
        raise ValueError(
            f"results are of {len(worlds)} environments ({', '.join(worlds)}): draw one figure for each"
        )


def new_figure(width: float = 7.0, height: float = 4.6) -> Figure:
    """An empty figure in inches, outside matplotlib's global state, text kept as text in PDF and SVG."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def regret_figure(
    results: Sequence[Result], path: Path | str | None = None, *, scale: str = "log", title: str | None = None
) -> Figure:
    """Cumulative regret of several results on one environment.

    Parameters
    ----------
    results : of one environment.
    path : where to save it (.png, .pdf or .svg), or None.
    scale : "log" or "linear".
    title : first line of the title, the environment by default; the second says what the band is.

    Raises
    ------
    ValueError
        No results, different environments, an unknown scale or file format.
    """
    _comparable(results)
    figure = new_figure(height=4.2 + 0.18 * len(results))
    axes = figure.add_subplot()
    draw_regret(axes, results, scale)
    several = any(len(result.runs) > 1 for result in results)
    band = "mean and pointwise 95 % band (t) over seeds" if several else "one seed"
    shared = short_labels(results)[1]
    said = f"{title or results[0].environment}\n{band}{f'; all with {shared}' if shared else ''}"
    axes.set_title(said, fontsize=9, loc="left")
    figure.legend(loc="outside lower left", fontsize=8, frameon=False, ncols=1)
    if path is not None:
        save_figure(figure, Path(path))
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a .png (200 dpi), .pdf or .svg, whole or not at all; equal figures give equal bytes."""
    import io

    import matplotlib

    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise ValueError(f"path = {str(path)!r}: must end with one of {', '.join(FORMATS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}[suffix]
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "pdf.fonttype": 42, "svg.hashsalt": "discreet"}):
        figure.savefig(content, format=suffix[1:], dpi=200, metadata=metadata)
    write_aside(path, content.getvalue())
