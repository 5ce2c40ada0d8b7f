import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.text import Text

from discreet.experiments import statistics
from discreet.experiments.plots import regret_figure
from discreet.experiments.results import Result
from discreet.utils import plot_style as style
from discreet.utils.plot_style import PALETTE, look

Make = Callable[..., Result]


def test_figure_holds_mean_band_and_reference(make_result: Make) -> None:
    results = [make_result(seeds=8), make_result(seeds=1, slope=0.5)]
    figure = regret_figure(results)
    (axes,) = figure.axes
    first, second, reference = axes.lines
    assert np.allclose(first.get_ydata(), results[0].regret.mean(axis=0))
    assert np.allclose(second.get_ydata(), results[1].regret[0])
    assert np.allclose(reference.get_ydata(), 2.0 * results[0].episodes)
    assert reference.get_linestyle() != "-"
    assert len(axes.collections) == 1  # a band where there are several seeds, none for one
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    labels = [text.get_text() for text in axes.texts]  # at the curves' ends, from below
    assert labels == ["NoPrivacy: not private", "NoPrivacy: not private", "uniform policy (never learns)"]
    assert not figure.legends
    assert "over 1 to 8 seeds" in axes.get_title(loc="left")
    assert regret_figure(results, scale="linear").axes[0].get_xscale() == "linear"


def test_zero_regret_can_be_drawn_on_log_axes(make_result: Make, tmp_path: Path) -> None:
    regret_figure([make_result(slope=0.0)], tmp_path / "zero.png")
    assert (tmp_path / "zero.png").stat().st_size > 0


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")])
def test_files_are_of_their_kind_and_repeat(
    make_result: Make, tmp_path: Path, suffix: str, magic: bytes
) -> None:
    paths = [tmp_path / "deep" / f"{i}{suffix}" for i in range(2)]
    for path in paths:
        make_result().plot(path)
    contents = [path.read_bytes() for path in paths]
    assert contents[0].startswith(magic)
    assert contents[0] == contents[1]


def test_no_global_state_is_touched(make_result: Make) -> None:
    import sys

    make_result().plot()
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()


def test_bad_requests(make_result: Make, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end with one of \.png, \.pdf, \.svg"):
        make_result().plot(tmp_path / "figure.bmp")
    with pytest.raises(ValueError, match="scale = 'cubic'"):
        make_result().plot(scale="cubic")
    with pytest.raises(ValueError, match="2 environments"):
        regret_figure([make_result(), make_result(world="elsewhere")])
    with pytest.raises(ValueError, match="at least one"):
        regret_figure([])


def test_bands_on_logarithmic_axes_are_of_the_logarithm(make_result: Make) -> None:
    result = make_result(seeds=8)
    mean, half = statistics.bands(result.regret)
    assert half is not None
    for scale, low in (("log", mean * np.exp(-half / mean)), ("linear", mean - half)):
        (band,) = regret_figure([result], scale=scale).axes[0].collections
        drawn = band.get_paths()[0].vertices
        assert drawn[:, 1].min() == pytest.approx(low.min())
    lower, upper = style.interval([2.0, 0.0], [1.0, 0.0], True)
    assert lower == pytest.approx([2 * np.exp(-0.5), 0.0])
    assert upper == pytest.approx([2 * np.exp(0.5), 0.0])
    np.testing.assert_allclose(style.error_bars([2.0], [1.0], False), [[1.0], [1.0]])


def test_columns_of_a_journal_and_a_style_file(make_result: Make, tmp_path: Path) -> None:
    result = make_result(seeds=3)
    figure = regret_figure([result], tmp_path / "one.pdf", columns=1, journal="nature")
    assert figure.get_size_inches()[0] * 25.4 == pytest.approx(89.0)
    assert regret_figure([result], columns=2, journal="ieee").get_size_inches()[0] == pytest.approx(
        181.9 / 25.4
    )
    written = (tmp_path / "one.pdf").read_bytes()
    assert b"/FontFile2" in written  # embedded, TrueType
    assert b"/Type3" not in written
    regret_figure([result], tmp_path / "one.svg")
    assert b"<text" not in (tmp_path / "one.svg").read_bytes()  # letters are outlines
    own = tmp_path / "own.mplstyle"
    own.write_text("axes.labelsize: 17\n")
    assert regret_figure([result], style=own, columns=1).axes[0].xaxis.label.get_fontsize() == 17.0
    with pytest.raises(ValueError, match=r"style = .*none': no such file"):
        regret_figure([result], style=tmp_path / "none")
    with pytest.raises(ValueError, match="columns = 3: must be"):
        regret_figure([result], columns=3)
    with pytest.raises(ValueError, match="journal = 'gazette': must be one of 'acm'"):
        regret_figure([result], columns=1, journal="gazette")


def test_names_at_curves_ends_do_not_lie_on_each_other(make_result: Make) -> None:
    figure = regret_figure([make_result(seeds=2, slope=0.5 + 0.01 * i) for i in range(5)])
    figure.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in figure.axes[0].texts]  # without its line
    boxes.sort(key=lambda box: box.y0)
    assert all(below.y1 <= above.y0 + 1 for below, above in itertools.pairwise(boxes))
    assert max(box.x1 for box in boxes) <= figure.bbox.width + 1
    many = regret_figure([make_result() for _ in range(40)])  # no room: a legend
    assert many.legends
    assert not many.axes[0].texts


def test_more_curves_than_colours(make_result: Make) -> None:
    assert len({look(i) for i in range(4 * len(PALETTE))}) == 4 * len(PALETTE)
    figure = regret_figure([make_result() for _ in range(len(PALETTE) + 1)])
    assert len(figure.axes[0].lines) == len(PALETTE) + 2
