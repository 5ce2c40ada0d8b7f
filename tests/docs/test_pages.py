"""What pages show is run as it stands (``make test-docs``): see tests/helpers/pages.py."""

from pathlib import Path

import pages
import pytest

PAGES = pages.pages()


@pytest.mark.docs
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(pages.ROOT)))
def test_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "XDG_DATA_HOME": str(tmp_path / "home"),
        "XDG_STATE_HOME": str(tmp_path / "home"),
        "COLUMNS": "132",
        "MPLBACKEND": "agg",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("DISCREET_LEDGER", raising=False)
    if page.stem == "agents":
        pytest.importorskip("stable_baselines3")
    (tmp_path / "reader").mkdir()
    pages.Reader(tmp_path / "reader").read(page)


SOUND = """<!-- run: quick 1000 -> 2 -->
```python
print("rows", 1000 + 1)
```

<!-- run: prints -->
```
rows  3
```

<!-- run: fails -->
```
discreet run --epsilon 1
```

<!-- run: as kept.txt -->
```
kept
```

```
cat kept.txt
```

<!-- run: prints -->
```
k...t
```
"""


@pytest.mark.parametrize(
    ("change", "to", "words"),
    [
        ("", "", None),
        ("rows  3", "rows  4", "shows\nrows 4\nbut this was printed:\nrows 3"),
        ("1000 -> 2", "2000 -> 2", "there is no '2000'"),
        ("fails", "failing", "must be one of those"),
        ("run --epsilon 1", "--version", "ended with 0"),
        ("cat kept.txt", "cat lost.txt", "ended with 1"),
        ("k...t\n", "k...x\n", "but this was printed"),
        ("```\ncat", "cat", "must be closed"),
    ],
)
def test_a_page_that_says_what_is_not_so_is_told(
    change: str, to: str, words: str | None, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text(SOUND.replace(change, to) if change else SOUND, encoding="utf-8")
    (tmp_path / "reader").mkdir()
    reader = pages.Reader(tmp_path / "reader")
    if words is None:
        reader.read(page)
        assert reader.printed.strip() == "kept"
        return
    with pytest.raises((AssertionError, ValueError)) as told:
        reader.read(page)
    assert words in str(told.value)
