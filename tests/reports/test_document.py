"""Documents: labels are words, and escapes are marks too."""

from __future__ import annotations

from pathlib import Path

import pytest

from discreet.reports.document import Picture, Table, html_lines, in_markdown, markdown_lines, text_of

from .test_report_files import Read, decisions

pytestmark = pytest.mark.usefixtures("figures_are_sketched")


SCRIPT = '<script>alert("x")</script> & <img src=x>'


def test_labels_are_words(folders: Path) -> None:
    page = (folders / "tabular" / "report.html").read_text("utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp; &lt;img src=x&gt;" in page
    assert "&lt;b&gt;drug&lt;/b&gt;" in page
    assert SCRIPT in "".join("".join(one) for one in Read(page).blocks)
    assert "<script" not in decisions(label=SCRIPT).to_html()
    table = Table(SCRIPT, (SCRIPT, "b"), ((SCRIPT, SCRIPT),))
    shown = text_of(html_lines(SCRIPT, [table, Picture("a", SCRIPT)], {"a": b"x"}))
    assert "<script" not in shown
    assert "<img src=x" not in shown
    assert 'alt="&lt;script&gt;alert(&quot;x' in shown


def test_pages_with_escapes_have_marks_too() -> None:
    """What the other pages are written with takes the same parts: nothing of a label passes for a mark."""
    table = Table("a", ("b", "c"), (("*x*", "`y`"),), names=2)
    assert "\n".join(line for line in markdown_lines([table]) if isinstance(line, str)) == (
        "*a*\n\n| b | c |\n|---|---|\n| \\*x\\* | \\`y\\` |"
    )
    assert in_markdown("a_b") == "a\\_b"
    assert in_markdown("a_b", plain=True) == "a_b"
    assert 'th scope="row">*x*</th><th scope="row">`y`</th>' in text_of(html_lines("t", [table]))
