"""Figure that a notebook shows as a picture. This module is imported only where matplotlib is needed."""

from __future__ import annotations

import io

import matplotlib.figure

__all__ = ["Figure"]

_DPI = 100  # resolution of the picture in a notebook


class Figure(matplotlib.figure.Figure):
    """Figure outside matplotlib's global state, which notebooks show without ``%matplotlib inline``."""

    def _repr_png_(self) -> bytes:
        """Return the picture as the bytes of a PNG file, the form that notebooks ask for."""
        content = io.BytesIO()
        self.savefig(content, format="png", dpi=_DPI)
        return content.getvalue()
