"""Figures of cumulative regret as a function of the number of users.

Every curve is a mean over seeds with a pointwise 95 % band from Student's t. On logarithmic axes the band is
computed for the logarithm of the regret. The dashed reference line shows the regret of the uniform policy.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from discreet.core import checks
from discreet.experiments import statistics
from discreet.experiments.labels import privacy_words, short_labels
from discreet.utils.plot_style import (
    draw_interval,
    label_ends,
    look,
    new_figure,
    save_figure,
    styled,
    tidy,
    width_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from discreet.experiments.seed_run import FinishedRun


UNITS = "in the environment's units of reward"


def legend_label(result: FinishedRun, label: str | None = None) -> str:
    """Return a string that states the learner, the guarantee and the number of seeds."""
    seeds = len(result.runs)
    return (
        f"{label or result.label}: {privacy_words(result.guarantee)}; {seeds} seed{'s' if seeds > 1 else ''}"
    )


def draw_regret(
    axes: Axes, results: Sequence[FinishedRun], scale: str = "log", reference: bool = True
) -> list[tuple[float, str, str]]:
    """Draw the curves, their bands, and the reference line of the uniform policy into ``axes``.

    scale : "log" (both axes are logarithmic) or "linear".

    All results must have the same environment. Returns one tuple per curve: (height of the curve's last
    point, name, colour), the input of :func:`~discreet.utils.plot_style.label_ends`.
    """
    checks.choice("scale", scale, ("log", "linear"))
    _comparable(results)
    labels, _ = short_labels(results)
    ends = []
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
            draw_interval(axes, result.episodes, mean, half, colour, scale == "log")
        words = privacy_words(result.guarantee).replace("e-0", "e-")
        ends.append((float(mean[-1]), f"{label}: {words}", colour))
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
        never = float(longest.episodes[-1] * (first.optimal_value - first.uniform_value))
        ends.append((never, "uniform policy (never learns)", "0.2"))
    if scale == "log":
        axes.set_xscale("log")
        axes.set_yscale("log")
        lowest = min(float(statistics.bands(result.regret)[0][0]) for result in results)
        axes.set_ylim(bottom=max(lowest, 1e-3) * 0.5)
    else:
        axes.set_ylim(bottom=0)
    unit = "" if first.about.reward_scale == 1.0 else f" ({UNITS})"
    tidy(axes, x="users (episodes)", y=f"cumulative regret{unit}")
    return ends


def _width(i: int, curves: int) -> float:
    """Return the width of the line of curve ``i``."""
    return 1.4 if curves < 2 else 2.4 - 1.2 * i / (curves - 1)


def _folded(said: str, width: float) -> str:
    """Return the text with line breaks, with at most ``width`` characters per line."""
    return "\n".join(textwrap.fill(line, int(width)) for line in said.split("\n"))


def _comparable(results: Sequence[FinishedRun]) -> None:
    if not results:
        raise ValueError("results = []: must hold at least one result")
    worlds = sorted({result.environment for result in results})
    if len(worlds) > 1:
        raise ValueError(
            f"results are of {len(worlds)} environments ({', '.join(worlds)}): draw one figure for each"
        )


def regret_figure(
    results: Sequence[FinishedRun],
    path: Path | str | None = None,
    *,
    scale: str = "log",
    title: str | None = None,
    style: Path | str | None = None,
    columns: int | None = None,
    journal: str = "nature",
) -> Figure:
    """Draw the cumulative regret of several results on one environment.

    Parameters
    ----------
    results : results of runs on the same environment.
    path : file to which the figure is saved (.png, .pdf or .svg), or None.
    scale : "log" or "linear".
    title : first line of the title; by default, the name of the environment.
    style : file with a matplotlib style, which takes precedence over the library's style.
    columns : width of the figure in columns of a journal, 1 or 2; the font is then small. If None, the figure
        is 7 inches wide.
    journal : journal that defines the width of a column (a key of
        :data:`~discreet.utils.plot_style.JOURNALS`).

    Raises
    ------
    ValueError
        If there are no results, if their environments differ, if the scale, journal or file format is
        unknown, or if the style file does not exist.
    """
    _comparable(results)
    width = 7.0 if columns is None else width_of(columns, journal)
    small = columns is not None
    with styled(style, columns):
        figure = new_figure(width, min(0.64, 0.9 - 0.035 * width) * width)
        axes = figure.add_subplot()
        ends = draw_regret(axes, results, scale)
        axes.set_xlim(right=max(result.users for result in results))
        counts = sorted({len(result.runs) for result in results})
        seeds = f"{counts[0]} seed{'s' if counts[0] > 1 else ''}"
        if len(counts) > 1:
            seeds = f"{counts[0]} to {counts[-1]} seeds"
        log = ", of the logarithm" if scale == "log" else ""
        band = f"mean and pointwise 95 % band (t{log}) over {seeds}" if counts[-1] > 1 else "one seed"
        shared = short_labels(results)[1]
        said = f"{title or results[0].environment}\n{band}{f'; all with {shared}' if shared else ''}"
        folded = _folded(said, (width - 0.5) / (0.055 if small else 0.075))
        axes.set_title(folded, loc="left", fontsize=None if small else 9.0)
        if not label_ends(axes, ends, 6.0 if small else 7.5):
            figure.set_size_inches(width, figure.get_size_inches()[1] + 0.16 * (len(results) + 1))
            figure.legend(loc="outside lower left", frameon=False, ncols=1, fontsize=None if small else 8.0)
        if path is not None:
            save_figure(figure, Path(path))
    return figure
