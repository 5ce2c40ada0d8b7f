"""Record of one seed, and interfaces of prepared and finished runs.

:class:`PreparedRun` and :class:`FinishedRun` are interfaces. Because of these interfaces, the modules for
labels, figures, results and workers do not import the modules that simulate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from discreet.core.short_repr import brief

if TYPE_CHECKING:
    from discreet.core.guarantee import Guarantee
    from discreet.envs.mdp.tabular import TabularMDP
    from discreet.experiments.progress import Progress
    from discreet.experiments.run_config import By

__all__ = ["FinishedRun", "Floats", "Ints", "PreparedRun", "SeedRun", "SharedFacts"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SeedRun:
    """Cumulative regrets of one seed after ``episodes`` users.

    Parameters
    ----------
    run : index of the repetition.
    episodes : (M,) int64, log-spaced; the last is K.
    regret : (M,) float64, cumulative pseudo-regret.
    gap_regret : (M,) float64, cumulative sum of the gaps V*_h(s) - Q*_h(s, a) along the simulated
        trajectories.
    seconds : duration of this repetition.
    """

    __repr__ = brief

    run: int
    episodes: Ints
    regret: Floats
    gap_regret: Floats
    seconds: float

    def agrees(self, other: SeedRun) -> bool:
        """Return True if the numbers of the other run are equal to these, bit for bit."""
        mine, theirs = ((one.episodes, one.regret, one.gap_regret) for one in (self, other))
        return all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))


class PreparedRun(Protocol):
    """Interface of a checked experiment; see :class:`~discreet.experiments.simulate.Setup`."""

    @property
    def mdp(self) -> TabularMDP:
        """The environment."""
        ...

    @property
    def learner(self) -> Any:
        """The learner."""
        ...

    @property
    def privatizer(self) -> Any:
        """The privatizer."""
        ...

    @property
    def episodes(self) -> int:
        """K, the number of users."""
        ...

    @property
    def by(self) -> By:
        """Mode of simulation: by users or by batches."""
        ...

    @property
    def batched(self) -> bool:
        """True if users are simulated by batches."""
        ...

    @property
    def label(self) -> str:
        """Name of the learner, with a remark if the learner ignores the noise."""
        ...

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee that the privatizer gives to the users of this learner."""
        ...

    @property
    def optimal_value(self) -> float:
        """Value of the optimal policy per user, for rewards in [0, 1]."""
        ...

    @property
    def uniform_value(self) -> float:
        """Value of the uniform policy per user, for rewards in [0, 1]."""
        ...

    def run(self, seed: int, run: int, progress: Progress | None = None, stop: Any = None) -> SeedRun:
        """Simulate repetition ``run`` of ``seed``."""
        ...


class SharedFacts(Protocol):
    """Interface of the facts about a result that labels and figures read; see
    :class:`~discreet.experiments.results.About`.
    """

    @property
    def options(self) -> Mapping[str, Any]:
        """Options that differ from the preset."""
        ...

    @property
    def reward_scale(self) -> float:
        """Factor from the environment's units of reward to rewards in [0, 1]."""
        ...


class FinishedRun(Protocol):
    """Interface of a result for labels and figures; see :class:`~discreet.experiments.results.Result`."""

    @property
    def episodes(self) -> Ints:
        """(M,) recorded numbers of users."""
        ...

    @property
    def regret(self) -> Floats:
        """(seeds, M) cumulative regret."""
        ...

    @property
    def runs(self) -> Ints:
        """(seeds,) indices of the repetitions."""
        ...

    @property
    def seed(self) -> int:
        """Seed of the repetitions."""
        ...

    @property
    def config(self) -> Mapping[str, Any]:
        """TOML table that repeats the run."""
        ...

    @property
    def about(self) -> SharedFacts:
        """Facts that all seeds share."""
        ...

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of the session that ran."""
        ...

    @property
    def environment(self) -> str:
        """Name of the environment."""
        ...

    @property
    def label(self) -> str:
        """Name of the run."""
        ...

    @property
    def users(self) -> int:
        """K, the number of users."""
        ...

    @property
    def optimal_value(self) -> float:
        """Value of the best policy."""
        ...

    @property
    def uniform_value(self) -> float:
        """Value of the uniform policy."""
        ...
