from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from discreet.core.guarantee import no_guarantee
from discreet.experiments.plots import PALETTE, legend_label, look, privacy_words, regret_figure
from discreet.experiments.results import Result

Make = Callable[..., Result]


def test_legend_says_learner_trust_true_epsilon_and_seeds(
    make_result: Make, private: Callable[..., Any]
) -> None:
    assert legend_label(make_result(seeds=8)) == "NoPrivacy: not private; 8 seeds"
    assert legend_label(make_result(seeds=1, guarantee=private())) == "NoPrivacy: joint DP, ε = 1; 1 seed"
    published = private(calibration="published", noise="laplace")
    assert privacy_words(published) == "joint DP, ε = 2.01 (stated 1)"  # 2 * 10 / log2(1000)
    assert privacy_words(private(noise="gaussian", delta=1e-6)) == "joint DP, ε = 1, δ = 1e-06"
    assert privacy_words(no_guarantee("seeded", trust="joint", reason="code")) == "not private"


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
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == [legend_label(results[0]), legend_label(results[1]), "uniform policy (never learns)"]
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


def test_more_curves_than_colours(make_result: Make) -> None:
    assert len({look(i) for i in range(4 * len(PALETTE))}) == 4 * len(PALETTE)
    figure = regret_figure([make_result() for _ in range(len(PALETTE) + 1)])
    assert len(figure.axes[0].lines) == len(PALETTE) + 2


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


def test_a_true_epsilon_beside_the_stated_one_is_told_apart() -> None:
    from types import SimpleNamespace

    from discreet.experiments.plots import privacy_words

    def said(epsilon: float) -> str:
        return privacy_words(SimpleNamespace(trust="joint", epsilon=epsilon, delta=0.0, epsilon_nominal=1.0))

    assert said(1.0034) == "joint DP, ε = 1.003 (stated 1)"
    assert said(2.0076) == "joint DP, ε = 2.01 (stated 1)"
    assert said(1.0) == "joint DP, ε = 1"
