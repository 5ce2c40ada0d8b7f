"""Reports as lists of blocks, which are converted to a page in Markdown and a page in HTML.

Both pages have the same text. The HTML page also has the figures, which show the numbers in the text. All
contents are computed from the release.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from discreet.utils.document import Block, Paragraph, html_lines, markdown_lines, text_of

MARKDOWN_REPORT, HTML_REPORT = "report.md", "report.html"
_TITLE = "Report on the learned policy"


def report_markdown(blocks: Sequence[Block]) -> str:
    """Return the report in Markdown."""
    return text_of(markdown_lines(blocks, plain=True))


def report_html(blocks: Sequence[Block], pictures: Mapping[str, bytes]) -> str:
    """Return the text of the report as a single HTML file.

    pictures : contents of PNG files, by file name without the extension.
    """
    return text_of(html_lines(_TITLE, blocks, pictures))


def pictures_in(files: Iterable[Path]) -> dict[str, bytes]:
    """Return the contents of the PNG files among the given files, by file name without the extension."""
    return {path.stem: path.read_bytes() for path in files if path.suffix == ".png" and path.is_file()}


def with_preface(blocks: Sequence[Block], words: str) -> list[Block]:
    """Return a report's blocks, with the given words before the verdict (the first paragraph)."""
    first, *rest = blocks
    if not isinstance(first, Paragraph):
        raise TypeError("blocks: a report begins with its verdict")
    parts = (first.text,) if isinstance(first.text, str) else first.text
    return [replace(first, text=(words, *parts)), *rest]


class ReportPage(ABC):
    """Base class of reports. The method :meth:`blocks` returns the content of a report."""

    @abstractmethod
    def blocks(self) -> list[Block]:
        """Return all blocks of the report; the first one is the verdict."""

    def to_markdown(self) -> str:
        """Return the report in Markdown, one to two pages. The first line is the verdict."""
        return report_markdown(self.blocks())

    def to_html(self, figures: Iterable[Path] = ()) -> str:
        """Return the report as one HTML file that has no scripts and loads no other files.

        figures : files that the method ``figures`` wrote; the page includes them.
        """
        return report_html(self.blocks(), pictures_in(figures))
