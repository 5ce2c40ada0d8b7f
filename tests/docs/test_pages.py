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
    (tmp_path / "reader").mkdir()
    pages.Reader(tmp_path / "reader").read(page)
