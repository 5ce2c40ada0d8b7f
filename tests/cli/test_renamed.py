"""Commands and options of version 0.2.0 are answered with their new names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from commands import ALL, call

from discreet.cli.renamed import COMMANDS, MOVED, OPTIONS


@pytest.mark.parametrize("old", COMMANDS)
def test_an_old_command_ends_with_the_new_one(old: str) -> None:
    refused = call(old, "--schema", "S.toml", code=2)
    assert refused.stdout == ""
    assert refused.stderr == f"discreet {old} was renamed in 0.3.0: {COMMANDS[old]}\n"
    for new in COMMANDS[old].split(", or "):
        assert new.startswith("python -m ") or new.removeprefix("discreet ") in ALL


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("learn", "--algorithm", "apvi"), "--algorithm was renamed: --learner"),
        (("serve", "study.toml", "--rehearse", 5), "--rehearse was renamed: --dry-run"),
        (("learn", "--from-release", "a"), "--from-release: use discreet replan"),
        (("learn", "--rewards=a.csv"), "--rewards: use discreet replan"),
        (("learn", "--synthetic"), "--synthetic: use discreet dry-run"),
        (("estimate", "--target-gain", 1), "--target-gain: use discreet power"),
        (("replan", "a", "--world", "riverswim"), "--world: use discreet power"),
        (("learn", "--label", 2), "--label: use discreet run"),
        (("learn", "--delimiter", ";"), "--delimiter was renamed: --source delimiter=TEXT"),
        (("learn", "--reads", "a.csv"), "--reads was renamed: FILES --sql QUERY"),
        (("dry-run", "--operator", "me"), "--operator was renamed: --report operator=TEXT"),
        (("replan", "a", "--level=0.9"), "--level was renamed: --report level=NUMBER"),
        (("discretize", "fit", "--rounds", 9), "--rounds was renamed: --set rounds=N"),
        (("prepare", "--scratch", "."), "--scratch was renamed: --source scratch=DIR"),
        (("audit", "--preset", "paper"), "--preset was renamed: --set preset=NAME"),
        (("run", "--first-seed", 2), "--first-seed was renamed: --seeds FIRST:END"),
    ],
)
def test_an_old_option_ends_with_the_new_one(words: tuple[Any, ...], said: str) -> None:
    assert call(*words, code=2).stderr == f"discreet: {said}\n"


def test_new_names_exist() -> None:
    assert {one.removeprefix("discreet ") for one in MOVED.values()} <= set(ALL)
    offered = {option for one in ALL.values() for param in one.params for option in param.opts}
    assert all(offered & set(new.split()) for new in OPTIONS.values())
    # of the service, `discretize`, `evaluate`
    assert offered & set(OPTIONS) == {"--operator", "--purpose", "--level", "--workers"}


def test_option_is_an_alias_of_set() -> None:
    for name in ("--set", "--option"):
        assert "must be KEY=VALUE" in call("run", name, "bonus_scale", code=2).stderr
        assert "typo" in call("run", f"{name}=typo=1", code=2).stderr
    assert "--option" not in call("run", "--help").stdout


def test_options_of_the_ledger_stand_after_its_command(tmp_path: Path, own_ledger: Path) -> None:
    assert "must be given after `recover`" in call("ledger", "--json", "recover", code=2).stderr
    assert "0 found" in call("ledger", "recover", tmp_path).stdout
