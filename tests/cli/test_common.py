"""What all commands share: help, errors as one line with a status, streams, KEY=VALUE."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from commands import call

from discreet.cli import common

CENTRAL = ("--privatizer", "central", "--epsilon", "1")


def test_version_and_help() -> None:
    import discreet

    assert call("--version").stdout == f"discreet {discreet.__version__}\n"
    shown = call("--help").stdout
    for name in ("list", "run", "sweep", "compare", "plot", "check-plugin", "warmup"):
        assert name in shown


def test_unknown_flags_are_status_two() -> None:
    for arguments, message in (
        (["run", "--episodes=many"], "--episodes = 'many': "),
        (["run", "--no-such-flag"], "--no-such-flag (see `discreet run --help`)"),
        (["no-such-command"], "'no-such-command'. (see `discreet --help`)"),
        (["sweep"], "argument 'config'"),
    ):
        (line,) = call(*arguments, code=2).stderr.splitlines()
        assert line.startswith("discreet: ")
        assert message.lower() in line.lower().replace("root ", "discreet ")


def test_a_reader_that_leaves_is_no_error() -> None:
    command = f"{sys.executable} -m discreet list --json | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[\n", "")


def test_too_little_memory_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: Any, **__: Any) -> None:
        raise MemoryError("Unable to allocate 74.5 GiB")

    monkeypatch.setattr("discreet.experiments.estimate.estimate_run", exhausted)
    assert (
        call("estimate", *CENTRAL, code=1).stderr
        == "discreet: not enough memory (Unable to allocate 74.5 GiB)\n"
    )


def test_another_name_of_an_option_is_told() -> None:
    assert "did you mean --episodes?" in call("run", "--users", 5, code=2).stderr


def test_pairs_are_read_once_each() -> None:
    assert common.pairs("set", None) == {}
    assert common.pairs("set", ["a-b=1", " c =d=e", "f="]) == {"a_b": "1", "c": "d=e", "f": ""}
    for given, message in (
        (["a"], "--set 'a': must be KEY=VALUE"),
        (["=1"], "--set '=1': must be KEY=VALUE"),
        (["a-b=1", "a_b=2"], "--set 'a_b=2': a_b is given twice"),
    ):
        with pytest.raises(ValueError, match=message):
            common.pairs("set", given)


def test_a_preset_is_an_option_of_set() -> None:
    assert common.settings_of(["preset=paper", "a=1"]) == ("paper", {"a": "1"})
    assert common.settings_of(None) == (None, {})


def test_pairs_with_certain_keys_are_converted() -> None:
    kinds = {"level": float, "return_bound": float, "operator": str}
    assert common.typed_pairs("report", ["return-bound=2", "operator=1"], kinds) == {
        "return_bound": 2.0,
        "operator": "1",
    }
    for given, message in (
        ("levels=0.9", "--report levels: must be one of 'level', 'return_bound', 'operator'"),
        ("level=high", "level = 'high': must be a number"),
        ("level", "--report 'level': must be KEY=VALUE"),
    ):
        with pytest.raises(ValueError, match=message):
            common.typed_pairs("report", [given], kinds)


def test_missing_files_are_named(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("")
    common.check_files([str(there), "s3://somewhere/else", "minari:D4RL/x-v0"], schema=there)
    with pytest.raises(ValueError, match="^schema = '.*absent': no such file$"):
        common.check_files([], schema=tmp_path / "absent")
    with pytest.raises(ValueError, match="absent: no such file$"):
        common.check_files([str(tmp_path / "absent")])


def end_of(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    """The status with which a command ends that raises an error."""
    monkeypatch.setattr(common, "_ORDER", [])

    def failing() -> None:
        raise error

    with pytest.raises(typer.Exit) as end:
        common.guarded(failing)()
    return end.value.exit_code


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (ValueError("seed = -1:\nmust be at least 0"), 2, "discreet: seed = -1: must be at least 0\n"),
        (OSError("no space"), 1, "discreet: no space\n"),
        (MemoryError(), 1, "discreet: not enough memory (no details)\n"),
        (KeyboardInterrupt(), 130, "discreet: interrupted\n"),
    ],
)
def test_an_error_is_a_line_and_a_status(
    error: BaseException, status: int, said: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert end_of(error, monkeypatch) == status
    assert capsys.readouterr().err == said


def test_notes_of_an_error_are_further_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = ValueError("seed = -1")
    error.add_note("a note")
    assert end_of(error, monkeypatch) == 2
    assert capsys.readouterr().err == "discreet: seed = -1\ndiscreet: a note\n"


def test_an_error_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="a mistake"):
        end_of(RuntimeError("a mistake of the library"), monkeypatch)
