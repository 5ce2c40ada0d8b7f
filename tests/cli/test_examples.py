"""Every command's help ends with two examples, and these parse."""

from __future__ import annotations

import shlex

import pytest
from commands import ALL

from discreet.cli.examples import EXAMPLES, examples_of


@pytest.mark.parametrize("name", ALL)
def test_every_help_ends_with_two_examples_that_parse(name: str) -> None:
    assert ALL[name].epilog == examples_of(name)
    assert len(EXAMPLES[name]) == 2
    for line in EXAMPLES[name]:
        words = shlex.split(line)
        assert words[: 1 + len(name.split())] == ["discreet", *name.split()]
        ALL[name].make_context(name, words[1 + len(name.split()) :])


def test_examples_are_of_commands_that_exist() -> None:
    assert set(EXAMPLES) == set(ALL)
    assert examples_of("papers list") is None
