"""Plot style: more curves than colours."""

from collections.abc import Callable

from discreet.experiments.plots import regret_figure
from discreet.experiments.results import Result
from discreet.utils.plot_style import PALETTE, look

Make = Callable[..., Result]


def test_more_curves_than_colours(make_result: Make) -> None:
    assert len({look(i) for i in range(4 * len(PALETTE))}) == 4 * len(PALETTE)
    figure = regret_figure([make_result() for _ in range(len(PALETTE) + 1)])
    assert len(figure.axes[0].lines) == len(PALETTE) + 2
