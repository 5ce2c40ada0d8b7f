"""Regret curve of one seed, and interfaces of prepared and finished runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from discreet.core.releases import Floats, Ints
from discreet.core.short_repr import brief

if TYPE_CHECKING:
    from discreet.core.guarantee import Guarantee
    from discreet.envs.mdp.tabular import TabularMDP
    from discreet.experiments.progress import Progress
    from discreet.experiments.run_config import By

__all__ = ["FinishedRun", "Floats", "Ints", "PreparedRun", "SeedRun", "SharedFacts"]


@dataclass(frozen=True, eq=False)
class SeedRun:
    """Cumulative regret of one repetition, recorded at several numbers of users.

    Parameters
    ----------
    run : index of the repetition.
    episodes : (M,) int64, log-spaced numbers of users; the last number is K.
    regret : (M,) float64, cumulative pseudo-regret after each number of users.
    gap_regret : (M,) float64, cumulative sum of the gaps V*_h(s) - Q*_h(s, a) along the simulated
        trajectories.
    seconds : duration of this repetition in seconds.
    """

    __repr__ = brief

    run: int
    episodes: Ints
    regret: Floats
    gap_regret: Floats
    seconds: float

    def agrees(self, other: SeedRun) -> bool:
        """Return True if the curves of both repetitions are equal, bit for bit."""
        mine, theirs = ((one.episodes, one.regret, one.gap_regret) for one in (self, other))
        return all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))


class PreparedRun(Protocol):
    """Interface of an experiment that is ready to be simulated.

    See :class:`~discreet.experiments.simulate.Setup`.
    """

    @property
    def mdp(self) -> TabularMDP:
        """The environment."""

    @property
    def learner(self) -> Any:
        """The learner."""

    @property
    def privatizer(self) -> Any:
        """The privatizer."""

    @property
    def episodes(self) -> int:
        """Number of users K."""

    @property
    def by(self) -> By:
        """Requested mode of simulation: "auto", "episode" (user by user) or "batch"."""

    @property
    def batched(self) -> bool:
        """True if users are simulated by batches."""

    @property
    def label(self) -> str:
        """Name of the learner, with a remark if the learner ignores the noise."""

    @property
    def guarantee(self) -> Guarantee:
        """Privacy guarantee for the users of this learner."""

    @property
    def optimal_value(self) -> float:
        """Expected return of one user under the optimal policy, for rewards in [0, 1]."""

    @property
    def uniform_value(self) -> float:
        """Expected return of one user under the uniform policy, for rewards in [0, 1]."""

    def run(self, seed: int, run: int, progress: Progress | None = None, stop: Any = None) -> SeedRun:
        """Simulate the repetition with index ``run`` under ``seed``."""


class SharedFacts(Protocol):
    """Interface of the names and options of a result; see :class:`~discreet.experiments.results.About`."""

    @property
    def options(self) -> Mapping[str, Any]:
        """Options of learner and privatizer that differ from the preset, or that the user set."""

    @property
    def reward_scale(self) -> float:
        """Factor that converts regret in the environment's reward units to regret for rewards in [0, 1]."""


class FinishedRun(Protocol):
    """Interface of a result; see :class:`~discreet.experiments.results.Result`."""

    @property
    def episodes(self) -> Ints:
        """(M,) numbers of users at which regret was recorded."""

    @property
    def regret(self) -> Floats:
        """(seeds, M) cumulative regret."""

    @property
    def runs(self) -> Ints:
        """(seeds,) indices of the repetitions."""

    @property
    def seed(self) -> int:
        """Seed of the repetitions."""

    @property
    def config(self) -> Mapping[str, Any]:
        """TOML table from which the run can be repeated."""

    @property
    def about(self) -> SharedFacts:
        """Names, options and reference values of the run."""

    @property
    def guarantee(self) -> Guarantee:
        """Privacy guarantee of the run."""

    @property
    def environment(self) -> str:
        """Name of the environment."""

    @property
    def label(self) -> str:
        """Name of the run."""

    @property
    def users(self) -> int:
        """Number of users K."""

    @property
    def optimal_value(self) -> float:
        """Expected return of one user under the optimal policy."""

    @property
    def uniform_value(self) -> float:
        """Expected return of one user under the uniform policy."""
