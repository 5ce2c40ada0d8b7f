"""Figure that a notebook shows as an image.

The module is separate because it imports matplotlib, which takes time.
"""

from __future__ import annotations

import io

import matplotlib.figure

_DPI = 100  # resolution of the image in a notebook, in dots per inch


class Figure(matplotlib.figure.Figure):
    """Matplotlib figure that notebooks show without ``%matplotlib inline``.

    The figure is not registered in matplotlib's global state (pyplot).
    """

    def _repr_png_(self) -> bytes:
        """Return the figure as the bytes of a PNG file. Notebooks call this method to show the figure."""
        content = io.BytesIO()
        self.savefig(content, format="png", dpi=_DPI)
        return content.getvalue()
