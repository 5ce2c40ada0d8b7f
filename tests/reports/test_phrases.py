"""Texts of the statement: both versions have the same keys and use the same numbers."""

import re
import tomllib
from pathlib import Path

import pytest

from discreet import reports
from discreet.reports.phrases import phrases

FOLDER = Path(reports.__file__).parent
NOW, EARLIER = (
    tomllib.loads((FOLDER / name).read_text("utf-8")) for name in ("phrases.toml", "phrases_4.toml")
)


def fields(text: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", text))


def test_the_earlier_version_changes_known_texts_only() -> None:
    for table, texts in EARLIER.items():
        for key, text in texts.items():
            assert NOW[table][key] != text
            assert fields(NOW[table][key]) == fields(text), key


def test_a_version_has_its_texts_and_the_claims_about_epsilon() -> None:
    assert phrases()["officer.what"] == "quantity"
    assert phrases(4)["officer.what"] == "what"
    assert list(phrases(4)) == list(phrases())
    assert "{factor}" in phrases()["patient"]
    with pytest.raises(TypeError):
        phrases()["officer.what"] = "what"  # type: ignore[index]
    with pytest.raises(ValueError, match="version = 3"):
        phrases(3)
