"""What strangers read is in words that they know: no word of how the library came to be."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "pyproject.toml", "Makefile"]
FOLDERS = ["docs", "src", "papers", "benchmarks"]
SUFFIXES = {".md", ".py", ".toml", ".cff", ".rst", ".txt", ".html"}
INNER = re.compile(
    r"\b(issues?|specifications?|another code|figures? to reach|to_reach|goals? (?:set|to reach)|"
    r"former defaults?|"
    r"session of work|erratum|errata|table 11\.\d)\b",
    re.IGNORECASE,
)
ALLOWED = ("GitHub issue", "issue tracker", "/issues", "XDG specification")


def inner_words(text: str) -> list[str]:
    """The line number and the word of each."""
    for allowed in ALLOWED:
        text = text.replace(allowed, "")
    lines = enumerate(text.splitlines(), 1)
    return [f"{number}: {found[0]}" for number, line in lines for found in INNER.finditer(line)]


def files() -> list[Path]:
    found = [ROOT / name for name in PAGES]
    for folder in FOLDERS:
        found += sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)
    return [path for path in found if path.is_file() and "__pycache__" not in path.parts]


def test_nothing_public_speaks_of_how_it_came_to_be() -> None:
    found = {str(path.relative_to(ROOT)): inner_words(path.read_text("utf-8")) for path in files()}
    assert len(found) > 300
    assert {path: words for path, words in found.items() if words} == {}


@pytest.mark.parametrize(
    "line", ["see issue 7", "Source: specification, section 9", "Figures to reach", "another code"]
)
def test_an_inner_word_is_found(line: str) -> None:
    assert len(inner_words(f"fine\n{line}")) >= 1
    assert inner_words("the GitHub issue tracker; a reissued tissue") == []
