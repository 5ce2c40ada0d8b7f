"""A set-up without a simulation behind it: results, figures and tables are tested on known curves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from discreet.core.guarantee import Guarantee, no_guarantee
from discreet.envs.mdp.tabular import RewardMap
from discreet.experiments.results import Result
from discreet.experiments.seed_run import SeedRun
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy


@dataclass
class FakeSetup:
    """The face of a Setup that results read."""

    episodes: int = 1000
    label: str = "NoPrivacy"
    guarantee: Guarantee = field(default_factory=lambda: no_guarantee("seeded"))
    learner: Any = field(default_factory=NoPrivacy)  # any frozen specification with a repr
    privatizer: Any = field(default_factory=NoPrivacy)
    optimal_value: float = 3.0
    uniform_value: float = 1.0
    batched: bool = False
    by: str = "auto"
    world: str = "riverswim"
    reward_map: RewardMap = field(default_factory=RewardMap)

    @property
    def mdp(self) -> Any:
        return SimpleNamespace(name=self.world, reward_map=self.reward_map, horizon=2)


def curve(run: int, episodes: int = 1000, slope: float = 1.0) -> SeedRun:
    at = np.unique(np.round(np.geomspace(1, episodes, 20)).astype(np.int64))
    regret = slope * at * (1 + 0.1 * run)
    return SeedRun(run, at, regret.astype(float), regret + 0.5, 0.25)


def central_guarantee(**options: Any) -> Guarantee:
    from discreet.core.count_query import CountQuery
    from discreet.core.layout import Layout
    from discreet.core.rng import Seeded
    from discreet.mechanisms.interfaces import Schedule

    privatizer = Central(**{"epsilon": 1.0, **options})
    return privatizer.start(CountQuery(Layout(2, 2, 2)), Schedule(1000), Seeded(0)).guarantee


@pytest.fixture
def make_result() -> Callable[..., Result]:
    def build(seeds: int = 8, slope: float = 1.0, seed: int = 0, **setup: Any) -> Result:
        made = FakeSetup(**setup)
        return Result.from_runs(made, seed, [curve(r, made.episodes, slope) for r in range(seeds)])  # type: ignore[arg-type]

    return build


@pytest.fixture
def private() -> Callable[..., Guarantee]:
    return central_guarantee


@pytest.fixture
def make_setup() -> Callable[..., Any]:
    return FakeSetup
