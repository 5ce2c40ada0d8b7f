"""Style of figures: widths, distinct curves, and intervals on both kinds of axes."""

from pathlib import Path

import numpy as np
import pytest

from discreet.utils.plot_style import error_bars, interval, look, new_figure, save_figure, styled, width_of


def test_columns_have_widths_of_the_journal() -> None:
    assert 0 < width_of(1) < width_of(2) < 10
    for columns, journal in ((3, "nature"), (0, "nature"), (1, "no journal")):
        with pytest.raises(ValueError, match="columns|journal"):
            width_of(columns, journal)


def test_the_first_32_curves_look_different() -> None:
    assert len({str(look(i)) for i in range(32)}) == 32


def test_intervals_on_logarithmic_axes_are_symmetric_there() -> None:
    mean, half = np.array([1.0, 10.0, 0.0]), np.array([0.5, 20.0, 1.0])
    low, high = interval(mean, half, log=False)
    assert low.tolist() == [0.5, -10.0, -1.0]
    low, high = interval(mean, half, log=True)
    assert (low[:2] > 0).all()
    np.testing.assert_allclose(low[:2] * high[:2], mean[:2] ** 2)
    np.testing.assert_allclose(error_bars(mean, half, True), [mean - low, high - mean])


def test_figures_of_other_kinds_and_missing_styles_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must end with one of"):
        save_figure(new_figure(), tmp_path / "a.jpg")
    with pytest.raises(ValueError, match="no such file"), styled(tmp_path / "none.mplstyle"):
        pass
    assert list(tmp_path.iterdir()) == []
