"""Layout of pages that consist of blocks, in Markdown and HTML. Other modules define the text of pages.

Text from outside the library is escaped, so that a name cannot imitate a line of the page. Readers can fill
in only the free lines (:class:`Blank`) of a page. :class:`Written` contains the fixed text around the content
of a free line. :mod:`discreet.pipeline.verify` can therefore separate the content from the fixed text.

The HTML contains its own style and pictures, has no script, and loads nothing. The HTML can be opened without
a network, and printed on A4 or letter paper. For screen readers, the language, headings, tables and header
cells are marked up.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from discreet.utils import markdown_table as tables

MARKS = "\\`*_[]<>|#~&"
"""Special characters of Markdown, which are escaped on a page."""


def escaped(text: object) -> str:
    """Return a string in which Markdown syntax characters are escaped."""
    text = str(text)
    for mark in MARKS:  # The backslash is the first, so that no backslash of an escape is escaped.
        text = text.replace(mark, f"\\{mark}")
    return text


# ------------------------------------------------------------------------------------------- blocks
@dataclass(frozen=True)
class Strong:
    """Emphasized words."""

    words: str


@dataclass(frozen=True)
class Code:
    """Text in code style, for example a command or the name of a key."""

    words: str


@dataclass(frozen=True)
class Formula:
    """Fixed text of the library without characters that Markdown must escape, for example a formula."""

    words: str


Text = str | tuple[str | Strong | Code | Formula, ...]
"""Text of a block: a string, or a tuple of strings, emphasized words, code and formulas."""


@dataclass(frozen=True)
class Heading:
    """Heading. Level 1 is the title of the page."""

    level: int
    text: str


@dataclass(frozen=True)
class Paragraph:
    """Paragraph of sentences.

    strong : True to emphasize the whole paragraph. source : reference that is placed after the last sentence.
    """

    text: Text
    strong: bool = False
    source: Link | None = None


@dataclass(frozen=True)
class Bullets:
    """List of items with bullets."""

    items: tuple[Text, ...]


@dataclass(frozen=True)
class NameValueList:
    """List of names with their values."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Link:
    """Link to a public address, in a cell of a table or as the source of a paragraph."""

    words: str
    address: str


@dataclass(frozen=True)
class Table:
    """Table with a header row.

    names : number of cells at the beginning of each row that name the row.

    more : line below the table. The line states what the table omits.

    label : label in HTML. By default, it is the caption, or the heading before the table and the header row.
    """

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Text | Link, ...], ...]
    names: int = 1
    more: str = ""
    label: str = ""


@dataclass(frozen=True)
class Picture:
    """Figure, which appears only on the HTML page. The text of the page states the same facts.

    name : file name of the figure, without the extension. alternative : text for readers who cannot see the
    figure.
    """

    name: str
    alternative: str


@dataclass(frozen=True)
class Blank:
    """Free line of a page: a label and the text that a reader enters."""

    label: str
    value: str = ""


Block = Heading | Paragraph | Bullets | NameValueList | Table | Picture | Blank


@dataclass(frozen=True)
class Written:
    """Free line of a page as text: a value that readers may enter, between two fixed ends.

    before, after : fixed text at both ends. allowed : regular expression that the value must match.
    """

    before: str
    value: str
    after: str
    allowed: str

    @property
    def text(self) -> str:
        """Complete line."""
        return f"{self.before}{self.value}{self.after}"


Line = str | Written


def text_of(lines: Sequence[Line]) -> str:
    """Return the text of a page that consists of the given lines."""
    return "\n".join(line if isinstance(line, str) else line.text for line in lines) + "\n"


def compared_with(text: str, lines: Sequence[Line]) -> Iterator[tuple[str, object, object, bool]]:
    """Compare the text of a page with the required lines. In free lines, only the fixed text must agree.

    Yields one tuple for each comparison: name of the comparison, found value, required value, and True if the
    two values agree. The content of a free line must match the regular expression of that line.
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


def in_markdown(text: Text, plain: bool = False) -> str:
    """Return a string in Markdown, with marks for emphasis and code.

    plain : if True, special characters in the string are not escaped.
    """
    put = str if plain else escaped
    return "".join(
        put(part)
        if isinstance(part, str)
        else f"**{put(part.words)}**"
        if isinstance(part, Strong)
        else f"`{part.words}`"
        if isinstance(part, Code)
        else part.words
        for part in _parts(text)
    )


def _parts(text: Text) -> tuple[str | Strong | Code | Formula, ...]:
    return (text,) if isinstance(text, str) else text


def markdown_lines(blocks: Sequence[Block], plain: bool = False) -> list[Line]:
    """Return the lines of a page in Markdown.

    plain : if True, text is not escaped, and list items begin with stars. Reports use this setting, because
    their labels contain no bars and no line breaks.
    """
    seen = (block for block in blocks if not isinstance(block, Picture))
    return [line for block in seen for line in (*_markdown(block, plain), "")][:-1]


def _markdown(block: Block, plain: bool) -> Iterator[Line]:
    if isinstance(block, Heading):
        yield f"{'#' * block.level} {in_markdown(block.text, plain)}"
    elif isinstance(block, Paragraph):
        text = in_markdown(block.text, plain)
        text = f"**{text}**" if block.strong else text
        yield text if block.source is None else f"{text} Source: {_cell(block.source, plain)}."
    elif isinstance(block, Bullets):
        yield from (f"{'*' if plain else '-'} {in_markdown(item, plain)}" for item in block.items)
    elif isinstance(block, NameValueList):
        yield from (f"- **{escaped(name)}:** {escaped(value)}" for name, value in block.items)
    elif isinstance(block, Blank):
        yield Written(f"**{escaped(block.label)}:**", f" {escaped(block.value)}", "", _IN_MARKDOWN)
    elif isinstance(block, Table):
        rows = [[_cell(cell, plain) for cell in row] for row in (block.head, *block.rows)]
        if block.caption:
            yield f"*{in_markdown(block.caption, plain)}*"
            yield ""
        yield from tables.markdown(rows).split("\n")
        if block.more:
            yield in_markdown(block.more, plain)


def _cell(cell: Text | Link, plain: bool) -> str:
    if isinstance(cell, Link):
        return f"[{in_markdown(cell.words, plain)}](<{cell.address}>)"
    return in_markdown(cell, plain)


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


_PICTURES = """\
figure { margin: 1em 0; } figure img { max-width: 100%; height: auto; }
code { font-size: .9em; overflow-wrap: anywhere; }
@media print { thead { display: table-header-group; } figure { break-inside: avoid; }
  figure img { max-height: 235mm; object-fit: contain; } }"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def html_lines(
    title: str, blocks: Sequence[Block], pictures: Mapping[str, bytes] | None = None
) -> list[Line]:
    """Return the lines of a page in HTML.

    title : title of the document. The title is also the first heading if the page has no heading of level 1.
    pictures : contents of PNG files, by the name of their :class:`Picture`. A picture without a file is
        omitted.
    """
    titled = any(isinstance(block, Heading) and block.level == 1 for block in blocks)
    policy = _POLICY if pictures is None else f"{_POLICY}; img-src data:"
    return [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(title)}</title>",
        "<style>",
        *_STYLE.split("\n"),
        *([] if pictures is None else _PICTURES.split("\n")),
        "</style>",
        "</head>",
        "<body>",
        "<main>",
        *([] if titled else [f"<h1>{html.escape(title)}</h1>"]),
        *html_body(blocks, pictures),
        "</main>",
        "</body>",
        "</html>",
    ]


def html_body(blocks: Sequence[Block], pictures: Mapping[str, bytes] | None = None) -> Iterator[Line]:
    """Yield the lines of blocks in HTML, without the head and the style of a page.

    pictures : contents of PNG files, as for :func:`html_lines`.
    """
    above = ""
    for block in blocks:
        if isinstance(block, Heading):
            above = block.text
        if isinstance(block, Table):
            named = block.label or block.caption or f"{above}: {', '.join(filter(None, block.head))}"
            yield from _html_table(block, named)
        elif not isinstance(block, Picture):
            yield from _html(block)
        elif pictures is not None and block.name in pictures:
            data = base64.b64encode(pictures[block.name]).decode("ascii")
            alternative = html.escape(block.alternative)
            yield f'<figure><img alt="{alternative}" src="data:image/png;base64,{data}"></figure>'


def _html(block: Heading | Paragraph | Bullets | NameValueList | Blank) -> Iterator[Line]:
    if isinstance(block, Heading):
        yield f"<h{block.level}>{html.escape(block.text)}</h{block.level}>"
    elif isinstance(block, Paragraph):
        text = _html_text(block.text)
        text = f"<strong>{text}</strong>" if block.strong else text
        yield (
            f"<p>{text}</p>" if block.source is None else f"<p>{text} Source: {_html_cell(block.source)}.</p>"
        )
    elif isinstance(block, Bullets):
        yield from ("<ul>", *(f"<li>{_html_text(item)}</li>" for item in block.items), "</ul>")
    elif isinstance(block, NameValueList):
        yield "<dl>"
        yield from (f"<dt>{html.escape(n)}</dt><dd>{html.escape(v)}</dd>" for n, v in block.items)
        yield "</dl>"
    else:
        before = f'<p class="blank">{html.escape(block.label)}: <span>'
        yield Written(before, html.escape(block.value), "</span></p>", _IN_HTML)


def _html_table(block: Table, named: str) -> Iterator[Line]:
    # A table can be wider than a phone's screen. It therefore scrolls separately from the page, also with the
    # keyboard.
    yield f'<div class="table" role="region" aria-label="{html.escape(named)}" tabindex="0">'
    yield "<table>"
    if block.caption:
        yield f"<caption>{html.escape(block.caption)}</caption>"
    # An empty header cell names no column, so it is marked up as a cell with data.
    heads = "".join(f'<th scope="col">{html.escape(one)}</th>' if one else "<td></td>" for one in block.head)
    yield f"<thead><tr>{heads}</tr></thead>"
    yield "<tbody>"
    for row in block.rows:
        names = "".join(f'<th scope="row">{_html_cell(cell)}</th>' for cell in row[: block.names])
        cells = "".join(f"<td>{_html_cell(cell)}</td>" for cell in row[block.names :])
        yield f"<tr>{names}{cells}</tr>"
    yield from ("</tbody>", "</table>", "</div>")
    if block.more:
        yield f"<p>{html.escape(block.more)}</p>"


def _html_text(text: Text) -> str:
    return "".join(
        html.escape(part)
        if isinstance(part, str)
        else f"<strong>{html.escape(part.words)}</strong>"
        if isinstance(part, Strong)
        else f"<code>{html.escape(part.words)}</code>"
        if isinstance(part, Code)
        else html.escape(part.words)
        for part in _parts(text)
    )


def _html_cell(cell: Text | Link) -> str:
    if isinstance(cell, Link):
        return f'<a href="{html.escape(cell.address)}">{html.escape(cell.words)}</a>'
    return _html_text(cell)
