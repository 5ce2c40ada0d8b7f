"""Workers: those of other code are refused, and killed ones are replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dying import Dying

from discreet.experiments.engine import EngineError, Job, results
from discreet.experiments.worker import Play, processes


def test_processes_that_are_killed_are_replaced(tmp_path: Path) -> None:
    with processes(2) as engine:
        assert sorted(r for _, r in results(engine, [Job(Dying(tmp_path), range(1, 14))])) == [*range(1, 14)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["10", "5"]


def never(_: Any) -> Any:
    raise AssertionError("was built")


def test_workers_of_other_code_are_refused_before_anything_runs() -> None:
    play = Play(never, "what", 0, {"discreet": "9"})
    with pytest.raises(EngineError, match=r"other code .*: discreet .* there, 9 here"):
        play([0])
