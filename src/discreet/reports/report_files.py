"""Reports as lists of blocks, from which Markdown and HTML are made.

Markdown and HTML have the same text. The HTML also has the figures, which show the numbers in the text. All
contents are determined by the release.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from discreet.reports.document import Block, Paragraph, html_lines, markdown_lines, text_of

__all__ = [
    "HTML_REPORT", "MARKDOWN_REPORT", "ReportPage", "pictures_in", "rehearsed", "report_html",
    "report_markdown",
]  # fmt: skip

MARKDOWN_REPORT, HTML_REPORT = "report.md", "report.html"
_TITLE = "Report on the learned policy"


def report_markdown(blocks: Sequence[Block]) -> str:
    """Return the report in Markdown."""
    return text_of(markdown_lines(blocks, plain=True))


def report_html(blocks: Sequence[Block], pictures: Mapping[str, bytes]) -> str:
    """Return the report as a single HTML file. pictures : PNG files by name, without extension."""
    return text_of(html_lines(_TITLE, blocks, pictures))


def pictures_in(files: Iterable[Path]) -> dict[str, bytes]:
    """Return the PNG files among the given files, by name without extension."""
    return {path.stem: path.read_bytes() for path in files if path.suffix == ".png" and path.is_file()}


def rehearsed(blocks: Sequence[Block], words: str) -> list[Block]:
    """Return the report with the given words in front of its verdict, in the same paragraph."""
    first, *rest = blocks
    if not isinstance(first, Paragraph):
        raise TypeError("blocks: a report begins with its verdict")
    parts = (first.text,) if isinstance(first.text, str) else first.text
    return [replace(first, text=(words, *parts)), *rest]


class ReportPage(ABC):
    """Base of reports; :meth:`blocks` is their content."""

    @abstractmethod
    def blocks(self) -> list[Block]:
        """Return all blocks of the report; the first one is the verdict."""

    def to_markdown(self) -> str:
        """Return one to two pages of Markdown; the first line is the verdict."""
        return report_markdown(self.blocks())

    def to_html(self, figures: Iterable[Path] = ()) -> str:
        """Return the report as one HTML file that has no scripts and loads no other files.

        figures : files that ``figures`` wrote; they are included in the page.
        """
        return report_html(self.blocks(), pictures_in(figures))
