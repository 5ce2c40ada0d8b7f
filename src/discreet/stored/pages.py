"""Pages made of blocks, as Markdown and as HTML: what a page says stands elsewhere, here is how it looks.

Text from outside is escaped, so that a name cannot pass for a line of the page. Lines for people
(:class:`Blank`) are the only part of a page that is not fixed: :class:`Written` holds what stands around what
is written there, by which :mod:`discreet.stored.verification` tells them apart.

The HTML holds its own style, no script, and loads nothing: it opens from a disk without a network, prints on
A4 or letter, and names its language, headings, captions and header cells for screen readers.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from discreet import tables

__all__ = [
    "MARKS", "Blank", "Block", "Bullets", "Heading", "Line", "Link", "Pairs", "Paragraph", "Table", "Written",
    "blank_in_markdown", "compared_with", "escaped", "html_lines", "markdown_lines", "text_of",
]  # fmt: skip

MARKS = "\\`*_[]<>|#~&"
"""Characters that Markdown reads, and that are escaped on a page."""


def escaped(text: object) -> str:
    """A text that cannot pass for Markdown's own marks."""
    return "".join(f"\\{c}" if c in MARKS else c for c in str(text))


# ------------------------------------------------------------------------------------------- blocks
@dataclass(frozen=True)
class Heading:
    """A title; level 1 is the page's."""

    level: int
    text: str


@dataclass(frozen=True)
class Paragraph:
    """Sentences; ``strong`` ones stand out. source : stands at their end."""

    text: str
    strong: bool = False
    source: Link | None = None


@dataclass(frozen=True)
class Bullets:
    """A list."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Pairs:
    """Names and what belongs to each."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Link:
    """A public address, in a cell."""

    words: str
    address: str


@dataclass(frozen=True)
class Table:
    """Rows under a head; the first cell of a row names it."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str | Link, ...], ...]


@dataclass(frozen=True)
class Blank:
    """A line for people: a label, and what is written there."""

    label: str
    value: str = ""


Block = Heading | Paragraph | Bullets | Pairs | Table | Blank


@dataclass(frozen=True)
class Written:
    """A line of a page in which people may write, between two fixed ends.

    ``allowed`` : a regular expression of what may stand there.
    """

    before: str
    value: str
    after: str
    allowed: str

    @property
    def text(self) -> str:
        """The whole line."""
        return f"{self.before}{self.value}{self.after}"


Line = str | Written


def text_of(lines: Sequence[Line]) -> str:
    """The page."""
    return "\n".join(line if isinstance(line, str) else line.text for line in lines) + "\n"


def compared_with(text: str, lines: Sequence[Line]) -> Iterator[tuple[str, object, object, bool]]:
    """A page as it lies there and as it must be: (what, found there, must be, whether they agree), line by
    line, but for what people wrote into its lines for people.
    """
    stated = text.split("\n")
    rendered: list[Line] = [*lines, ""]
    yield "lines", len(stated), len(rendered), len(stated) == len(rendered)
    for i, (found, line) in enumerate(zip(stated, rendered, strict=False), 1):
        one, other = found, line if isinstance(line, str) else line.text
        if isinstance(line, Written):
            rest = max(len(line.before), len(found) - len(line.after))
            said = found[len(line.before) : rest]
            one, other = found[: len(line.before)] + found[rest:], line.before + line.after
            plain = re.fullmatch(line.allowed, said) is not None and said.isprintable()
            words = "plain text on one line, marks of the page's language escaped"
            yield f"text of line {i}", words, words if plain else repr(said), plain
        yield f"line {i}", one, other, one == other


# ----------------------------------------------------------------------------------------- Markdown
_IN_MARKDOWN = rf"( (?:[^{re.escape(MARKS)}]|\\[{re.escape(MARKS)}]){{0,500}})?"


def blank_in_markdown(start: str, value: str) -> Written:
    """A line that begins so."""
    return Written(start, f" {escaped(value)}", "", _IN_MARKDOWN)


def markdown_lines(blocks: Sequence[Block]) -> list[Line]:
    """A page in Markdown, line by line."""
    return [line for block in blocks for line in (*_markdown(block), "")][:-1]


def _markdown(block: Block) -> Iterator[Line]:
    if isinstance(block, Heading):
        yield f"{'#' * block.level} {escaped(block.text)}"
    elif isinstance(block, Paragraph):
        text = f"**{escaped(block.text)}**" if block.strong else escaped(block.text)
        yield text if block.source is None else f"{text} Source: {_cell(block.source)}."
    elif isinstance(block, Bullets):
        yield from (f"- {escaped(item)}" for item in block.items)
    elif isinstance(block, Pairs):
        yield from (f"- **{escaped(name)}:** {escaped(value)}" for name, value in block.items)
    elif isinstance(block, Blank):
        yield blank_in_markdown(f"**{escaped(block.label)}:**", block.value)
    else:
        rows = [[_cell(cell) for cell in row] for row in (block.head, *block.rows)]
        yield f"*{escaped(block.caption)}*"
        yield ""
        yield from tables.markdown(rows).split("\n")


def _cell(cell: str | Link) -> str:
    return escaped(cell) if isinstance(cell, str) else f"[{escaped(cell.words)}](<{cell.address}>)"


# --------------------------------------------------------------------------------------------- HTML
_IN_HTML = r"(?:[^<>&]|&(?:lt|gt|amp|quot|#x27);){0,500}"
_STYLE = """\
body { max-width: 46em; margin: 1.5em auto; padding: 0 1em; font: 11pt/1.45 Georgia, serif; color: #000;
  background: #fff; }
h1 { font-size: 1.5em; } h2 { font-size: 1.2em; margin-top: 1.6em; border-bottom: 1px solid #555; }
h3 { font-size: 1em; margin-bottom: .2em; }
p, li, dd { overflow-wrap: anywhere; }
div.table { overflow-x: auto; }
table { min-width: 100%; border-collapse: collapse; margin: .8em 0; font-size: .9em; }
caption { text-align: left; font-style: italic; padding-bottom: .3em; }
th, td { border: 1px solid #555; padding: .25em .5em; text-align: left; vertical-align: top; }
thead th { background: #eee; } a { color: #00308f; overflow-wrap: anywhere; }
a:focus-visible, div.table:focus-visible { outline: 3px solid #00308f; }
dt { font-weight: bold; } dd { margin: 0 0 .4em 1.5em; }
p.blank { margin: 1.1em 0; display: flex; flex-wrap: wrap; gap: 0 .5em; } p.blank span { flex: 1 1 14em;
  min-height: 1.5em; border-bottom: 1px solid #000; }
@page { margin: 18mm 16mm; }
@media screen and (max-width: 40em) { div.table table { font-size: .8em; } td:last-child { min-width: 9em; } }
@media print { body { margin: 0; padding: 0; max-width: none; font-size: 10pt; }
  h2, h3, dt, caption { break-after: avoid; } p, dd, tr, p.blank { break-inside: avoid; }
  div.table { overflow: visible; } a::after { content: " (" attr(href) ")"; } }"""


def html_lines(title: str, blocks: Sequence[Block]) -> list[Line]:
    """A page in HTML, line by line; ``title`` is the document's."""
    return [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src '
        "'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(title)}</title>",
        "<style>",
        *_STYLE.split("\n"),
        "</style>",
        "</head>",
        "<body>",
        "<main>",
        *(line for block in blocks for line in _html(block)),
        "</main>",
        "</body>",
        "</html>",
    ]


def _html(block: Block) -> Iterator[Line]:
    if isinstance(block, Heading):
        yield f"<h{block.level}>{html.escape(block.text)}</h{block.level}>"
    elif isinstance(block, Paragraph):
        text = html.escape(block.text)
        text = f"<strong>{text}</strong>" if block.strong else text
        yield (
            f"<p>{text}</p>" if block.source is None else f"<p>{text} Source: {_html_cell(block.source)}.</p>"
        )
    elif isinstance(block, Bullets):
        yield from ("<ul>", *(f"<li>{html.escape(item)}</li>" for item in block.items), "</ul>")
    elif isinstance(block, Pairs):
        yield "<dl>"
        yield from (f"<dt>{html.escape(n)}</dt><dd>{html.escape(v)}</dd>" for n, v in block.items)
        yield "</dl>"
    elif isinstance(block, Blank):
        before = f'<p class="blank">{html.escape(block.label)}: <span>'
        yield Written(before, html.escape(block.value), "</span></p>", _IN_HTML)
    else:
        caption = html.escape(block.caption)
        # wider than a phone: it scrolls by itself, by keys too
        yield f'<div class="table" role="region" aria-label="{caption}" tabindex="0">'
        yield from ("<table>", f"<caption>{caption}</caption>")
        heads = "".join(f'<th scope="col">{html.escape(one)}</th>' for one in block.head)
        yield f"<thead><tr>{heads}</tr></thead>"
        yield "<tbody>"
        for first, *rest in block.rows:
            cells = "".join(f"<td>{_html_cell(cell)}</td>" for cell in rest)
            yield f'<tr><th scope="row">{_html_cell(first)}</th>{cells}</tr>'
        yield from ("</tbody>", "</table>", "</div>")


def _html_cell(cell: str | Link) -> str:
    if isinstance(cell, str):
        return html.escape(cell)
    return f'<a href="{html.escape(cell.address)}">{html.escape(cell.words)}</a>'
