"""Passphrases: the file first, then the environment, then the terminal, which asks for a new one twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from discreet.cli import passphrases
from discreet.ledger.signatures import PassphraseMissing

Terminal = Callable[..., list[str]]
KEY = Path("owner.key")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Answers of a person at the terminal, or nobody there; returns the list of questions, as it grows."""
    monkeypatch.delenv("DISCREET_PASSPHRASE", raising=False)

    def answering(*answers: str) -> list[str]:
        asked: list[str] = []
        left = iter(answers)

        def getpass(question: str) -> str:
            asked.append(question)
            return next(left)

        monkeypatch.setattr(passphrases, "getpass", getpass)
        monkeypatch.setattr(passphrases.sys, "stdin", SimpleNamespace(isatty=lambda: bool(answers)))
        return asked

    return answering


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a passphrase that only its owner can read."""
    path = tmp_path / "phrase"
    path.write_text("of the file\nand no more\n")
    path.chmod(0o600)
    return path


def test_the_file_comes_first_and_the_terminal_last(
    terminal: Terminal, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = terminal("of the person")
    assert passphrases.passphrase_of(KEY, None)() == "of the person"
    assert asked == ["Passphrase of owner.key: "]
    monkeypatch.setenv("DISCREET_PASSPHRASE", "of the environment")
    assert passphrases.passphrase_of(KEY, None)() == "of the environment"
    assert passphrases.passphrase_of(KEY, file)() == "of the file"
    assert len(asked) == 1


def test_nothing_is_asked_before_it_is_needed(terminal: Terminal) -> None:
    asked = terminal("a word")
    find = passphrases.passphrase_of(KEY, None)
    assert asked == []
    assert find() == "a word"


def test_a_new_passphrase_is_asked_for_twice(
    terminal: Terminal, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert passphrases.new_passphrase(KEY, file) == "of the file"
    asked = terminal("a word", "a word")
    assert passphrases.new_passphrase(KEY, None) == "a word"
    assert len(asked) == 2
    terminal("a word", "another")
    with pytest.raises(ValueError, match="must be the same twice; nothing was written"):
        passphrases.new_passphrase(KEY, None)
    monkeypatch.setenv("DISCREET_PASSPHRASE", "of the environment")
    asked = terminal("a word")
    assert passphrases.new_passphrase(KEY, None) == "of the environment"
    assert asked == []


def test_a_changed_passphrase_is_not_the_variables(
    terminal: Terminal, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable holds the old one."""
    monkeypatch.setenv("DISCREET_PASSPHRASE", "the old one")
    assert passphrases.changed_passphrase(KEY, file) == "of the file"
    asked = terminal("a word", "a word")
    assert passphrases.changed_passphrase(KEY, None) == "a word"
    assert asked[0] == "New passphrase of owner.key: "
    terminal("a word", "another")
    with pytest.raises(ValueError, match="must be the same twice"):
        passphrases.changed_passphrase(KEY, None)


def test_nobody_at_the_terminal_is_told_what_to_give(terminal: Terminal, file: Path) -> None:
    terminal()
    with pytest.raises(PassphraseMissing, match=r"^key = 'owner.key': .*--passphrase-file FILE"):
        passphrases.passphrase_of(KEY, None)()
    with pytest.raises(PassphraseMissing, match="^new-passphrase-file: must be given"):
        passphrases.changed_passphrase(KEY, None)
    file.write_text("\n")
    with pytest.raises(ValueError, match="^new-passphrase-file = .*must hold a passphrase"):
        passphrases.changed_passphrase(KEY, file)
