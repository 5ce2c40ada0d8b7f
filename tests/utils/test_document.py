"""Documents: labels are words, and escapes are marks too."""

from __future__ import annotations

import pytest

from discreet.utils.document import (
    Formula,
    Paragraph,
    Table,
    html_lines,
    in_markdown,
    markdown_lines,
    text_of,
)

pytestmark = pytest.mark.usefixtures("figures_are_sketched")


def test_pages_with_escapes_have_marks_too() -> None:
    """What the other pages are written with takes the same parts: nothing of a label passes for a mark."""
    table = Table("a", ("b", "c"), (("*x*", "`y`"),), names=2)
    assert "\n".join(line for line in markdown_lines([table]) if isinstance(line, str)) == (
        "*a*\n\n| b | c |\n|---|---|\n| \\*x\\* | \\`y\\` |"
    )
    assert in_markdown("a_b") == "a\\_b"
    assert in_markdown("a_b", plain=True) == "a_b"
    assert in_markdown(("|", Formula("P(E | D)"))) == "\\|P(E | D)"
    assert "<p>&lt;P(E | D)</p>" in text_of(html_lines("t", [Paragraph(("<", Formula("P(E | D)")))]))
    longer = Table("", ("b",), (("1",),), more="and 2 more")
    assert markdown_lines([longer])[-2:] == ["| 1 |", "and 2 more"]
    assert "</div>\n<p>and 2 more</p>" in text_of(html_lines("t", [longer]))
    assert 'th scope="row">*x*</th><th scope="row">`y`</th>' in text_of(html_lines("t", [table]))
