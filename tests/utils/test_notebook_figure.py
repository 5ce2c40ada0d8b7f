"""A figure shows itself in notebooks as a PNG of its size, outside matplotlib's global state."""

import matplotlib.pyplot

from discreet.utils.notebook_figure import Figure


def test_a_figure_is_a_png_of_its_size() -> None:
    before = matplotlib.pyplot.get_fignums()
    content = Figure(figsize=(2.0, 1.0))._repr_png_()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert [int.from_bytes(content[at : at + 4]) for at in (16, 20)] == [200, 100]  # at 100 dpi
    assert matplotlib.pyplot.get_fignums() == before
