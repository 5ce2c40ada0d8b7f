"""Tables of words: the head, a line for each row, and cells that HTML escapes."""

from discreet.utils.markdown_table import html, markdown

TABLE = (("a", "b"), ("1", "<x>"))


def test_tables_have_a_line_for_each_row() -> None:
    assert markdown(TABLE) == "| a | b |\n|---|---|\n| 1 | <x> |"
    assert html(TABLE) == (
        "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>&lt;x&gt;</td></tr></table>"
    )
    assert "<th>" not in html(TABLE, head=False)
