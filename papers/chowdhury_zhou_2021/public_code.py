"""Chowdhury and Zhou 2021: what their public code computes (``code:cz22``), as a set-up.

No ε follows from its noise: draws are shared by cells, or made again for the same sums. What is said of it is
shown on the code itself by :mod:`papers.public_code`.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from discreet.core import checks
from discreet.core.guarantee import no_guarantee
from discreet.core.rng import Seeded
from discreet.envs.mdp.tabular import TabularMDP
from discreet.experiments.progress import Progress
from discreet.experiments.seed_run import SeedRun
from discreet.experiments.simulate import Setup
from discreet.learners.online.policy_optimization import OPPO
from discreet.learners.online.ucbvi import UCBVI
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy

_LEARNERS = {"ucb-vi": False, "private-ucb-vi": False, "oppo": True, "private-ucb-po": True}
_MODES = {"none": 0, "central": 1, "local": 2}
_ETA = math.sqrt(2 / 1000)  # the public code's learning rate


@dataclass(frozen=True, eq=False)
class PublishedCode(Setup):
    """The public code as a set-up: ``learner`` and ``privatizer`` are labels, the noise is the code's own."""

    optimize_policy: bool = False
    mode: int = 0
    epsilon: float = 1.0

    @cached_property
    def guarantee(self) -> Any:
        """None: no ε follows from the code's noise."""
        if self.mode == 0:
            return no_guarantee("seeded")
        return no_guarantee(
            "seeded",
            reason=f"the public code's noise, labelled ε = {self.epsilon:g}, is shared by cells or drawn "
            "again for the same sums, so that no ε follows from it",
        )

    @cached_property
    def fused(self) -> bool:
        """Always compiled."""
        return True

    @cached_property
    def batched(self) -> bool:
        """Never: the code replans for every user."""
        return False

    @property
    def label(self) -> str:
        """Which of the code's curves this is."""
        kind = "PO" if self.optimize_policy else "VI"
        noise = ("without noise", f"'JDP' ε={self.epsilon:g}", f"'LDP' ε={self.epsilon:g}")[self.mode]
        return f"public code {kind}, {noise}" + (" (not private)" if self.mode else "")

    def run(self, seed: int, run: int, progress: Progress | None = None, stop: Any = None) -> SeedRun:
        """One seed, all users in one call."""
        from papers.chowdhury_zhou_2021.public_code_kernels import run_published_code

        begin = time.perf_counter()
        keys = Seeded(seed, run).keys
        regret, gap = np.zeros(self.recorded.size), np.zeros(self.recorded.size)
        run_published_code(
            self.mdp.world, self.start_values, self.gaps, self.optimize_policy, self.mode, self.epsilon, _ETA,
            self.episodes, keys.environment, keys.noise, self.recorded, regret, gap,
        )  # fmt: skip
        if progress is not None:
            progress(run, self.episodes)
        return SeedRun(run, self.recorded, regret, gap, time.perf_counter() - begin)


def published_code_setup(
    learner: str, privatizer: str, mdp: TabularMDP, episodes: int, epsilon: float | None
) -> PublishedCode:
    """The public code's counterpart of a learner and a privatizer, by their command-line names.

    Raises ``ValueError`` for names that the public code does not have, and for worlds with masks.
    """
    checks.choice("learner", learner, _LEARNERS)
    checks.choice("privatizer", privatizer, _MODES)
    mode = _MODES[privatizer]
    if mode and epsilon is None:
        raise ValueError("epsilon = None: the public code's noise needs a positive epsilon")
    if mdp.layout.mask is not None:
        raise ValueError("env: the public code knows no inadmissible actions")
    optimize = _LEARNERS[learner]
    stand_in = (OPPO(replan_every=1) if optimize else UCBVI(replan_every=1), NoPrivacy())
    scale = 1.0 if epsilon is None else checks.positive("epsilon", epsilon)
    return PublishedCode(
        mdp, *stand_in, episodes, "episode", optimize_policy=optimize, mode=mode, epsilon=scale
    )
