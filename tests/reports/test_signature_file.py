"""The file of signatures: as the library writes it, or refused."""

from pathlib import Path

import pytest

from discreet.reports.signature_file import SIGNATURES_NAME, content_of, read_signatures, text_of_signatures


def test_a_folder_without_the_file_has_no_signatures(tmp_path: Path) -> None:
    assert read_signatures(tmp_path) == []
    (tmp_path / SIGNATURES_NAME).symlink_to(tmp_path / "none")
    with pytest.raises((ValueError, OSError)):
        read_signatures(tmp_path)


def test_only_the_text_that_is_written_is_read(tmp_path: Path) -> None:
    path, text = tmp_path / SIGNATURES_NAME, text_of_signatures([])
    path.write_text(text)
    assert read_signatures(tmp_path) == []
    for other in (text + " ", text.replace("\n", "\r\n"), text.replace('"version": 1', '"version": 2'), "[]"):
        path.write_text(other, newline="")
        with pytest.raises(ValueError, match=SIGNATURES_NAME):
            read_signatures(tmp_path)


def test_a_signature_covers_all_but_itself() -> None:
    assert content_of({"key": "a", "name": "b", "signature": "c"}) == {"key": "a", "name": "b"}
