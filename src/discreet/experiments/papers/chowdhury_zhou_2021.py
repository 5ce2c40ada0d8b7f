"""Chowdhury and Zhou 2021, Figure 2: private UCB-VI and UCB-PO on RiverSwim, three ways.

The paper's experiment (RiverSwim, S=6, A=2, H=20, 20 runs of 20 000 users, epsilon 1 and 0.5) is
drawn

1. as the public code computes it (``code:cz22``), whose noise gives no differential privacy;
2. with the paper's stated noise, 3 H log(K) / epsilon per node and 3 H / epsilon per user, under the
   epsilon that this noise really buys;
3. at a true epsilon, with enough users for learning to begin.

Source of the settings: specification of tabular learners, section 9.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from discreet.envs import riverswim
from discreet.experiments.results import About, Result, SeedRun
from discreet.experiments.simulate import Floats, Ints, Progress, Setup, iterate_runs
from discreet.mdp.tabular import TabularMDP
from discreet.numerics import checks
from discreet.online.optimistic import UCBVI, PrivateUCBVI
from discreet.online.policy_optimization import OPPO, PrivateUCBPO
from discreet.privacy.guarantee import no_guarantee
from discreet.privacy.privatizers import Central, Local, NoPrivacy
from discreet.privacy.randomness import Seeded

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
        """None: not private at any stated level."""
        return no_guarantee("seeded")

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
        from discreet.experiments.papers.published_code_kernels import run_published_code

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
    stand_in = (OPPO() if optimize else UCBVI(), NoPrivacy())
    scale = 1.0 if epsilon is None else checks.positive("epsilon", epsilon)
    return PublishedCode(
        mdp, *stand_in, episodes, "episode", optimize_policy=optimize, mode=mode, epsilon=scale
    )
