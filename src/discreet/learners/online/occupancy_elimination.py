r"""SDP-PE-OM: policy elimination by occupancy measures of one private model, without listing policies.

The set of policies that may still be optimal is described, not listed. With the released model P~, r~
(projection "lp") and the widths w of :func:`discreet.learners.online.elimination_schedule.value_widths`,

    Q = {q an occupancy measure of P~ :  <q, r~ + w> >= level},    level = max over q' of <q', r~ - w>,

exactly the policies that SDP-PE's elimination by data keeps: their upper bound reaches the best lower bound.
Both bounds are linear in q. Let xi be the largest <q, w> over all policies. The condition <q, r~> >= v^ - 2
xi gives a larger set, as <q, r~> >= level - <q, w> >= v^ - 2 xi for q in Q.

A stage sends L_0 users to every pair (h, s, a) by the member of Q that visits it most. This linear programme
is solved exactly by its one-dimensional dual (:func:`constrained_visits`,
:mod:`discreet.learners.online.occupancy_elimination_kernels`): O(H S^2 A) for each of the five to ten steps,
without a solver. Its solution is a mixture of two deterministic policies. A public random draw (a binomial)
splits the L_0 users between them. The sums of the batch have the same distribution as with one independent
draw per user.

Counts add up over stages and are read as by any learner, so any privatizer works, also continual ones.
``forget`` asks for each stage's batch alone, as the paper does; then each has the full budget and users of
older stages are not used.

**Kept from SDP-PE.** Privacy, exactly: all of this is post-processing of the same releases. Polynomial time
and memory. With ``width_scale`` >= 1 every optimal policy is in Q at every stage, with probability at least 1
- ``failure`` - ``noise_failure``. The reason is that |V^pi(r, P) - V^pi(r~, P~)| <= V^pi(w, P~) for all pi at
once. The upper bound of an optimal policy is therefore at least V*, and no lower bound is above V*. A member
q of Q then loses at most 2 <q, w> + 2 <q', w>, q' the occupancy measure of an optimal policy in P~.

**Lost.** The paper's regret theorem. (i) Sets are not nested: an excluded policy can return, and it is
not known that later stages covered it. An intersection over stages is not linear in one occupancy measure,
because each stage has its own model. (ii) The deployed policies are mixtures of two deterministic policies.
(iii) One model replaces the crude, absorbing and fine ones. The argument for the multiplicative accuracy of
visit probabilities is therefore not available: a wrong estimate may send the users of a pair elsewhere.
Results should be reported under the name SDP-PE-OM.

Before the first release all rows of P~ are uniform and all policies tie. Ties are broken at random, so that
the first stage plays random policies.

Source of the elimination rule: Bai, Talebi, Zhao, Cheng and Chen 2024.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.layout import Layout
from discreet.core.noise.random_streams_kernels import ROLE_TIES, draw_binomials, open_at
from discreet.learners.online import occupancy_elimination_kernels as kernels
from discreet.learners.online.elimination_schedule import (
    SHARED,
    Plans,
    StagedLearner,
    StageModel,
    StageState,
    small_integers,
    value_widths,
)
from discreet.mechanisms.interfaces import ProblemSpec, Release, Schedule

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]


class Visit(NamedTuple):
    """Solution for one pair.

    Attributes
    ----------
    low, high : (H, S)
        Rows of the two policies.
    weight : float
        Weight of ``high``.
    visits : float
        Probability that the mixture visits the pair.
    steps : int
        Number of backward inductions.
    """

    low: Ints
    high: Ints
    weight: float
    visits: float
    steps: int


@dataclass(frozen=True, eq=False)
class KnownModel:
    """Known MDP by rows, with its optimal values, ready for :meth:`visit`.

    Attributes
    ----------
    columns : (H, S', R)
        P_h(s' | r).
    rewards : (H, R)
    values, q, rows : (H + 1, S), (H, R) and (H, S)
        Optimal values and policy.
    """

    layout: Layout
    initial: Floats
    columns: Floats
    rewards: Floats
    values: Floats
    q: Floats
    rows: Ints

    @classmethod
    def of(
        cls, layout: Layout, initial: Floats, transitions: Floats, rewards: Floats, coins: Words
    ) -> KnownModel:
        """Build from transitions (H, R, S) and rewards (H, R); ``coins`` (4 words) break ties and advance."""
        h, rows, s = transitions.shape
        columns = np.ascontiguousarray(transitions.transpose(0, 2, 1))
        values, q = np.empty((h + 1, s)), np.empty((h, rows))
        best = np.empty((h, s), np.int64)
        rewards = np.ascontiguousarray(rewards)
        kernels.plan_best(columns, rewards, layout.state_ptr, coins, values, q, best)
        return cls(layout, np.ascontiguousarray(initial), columns, rewards, values, q, best)

    @property
    def value(self) -> float:
        """Return the value of the best policy."""
        return float(self.initial @ self.values[0])

    def visit(self, h: int, row: int, level: float, coins: Words) -> Visit:
        """Maximise the probability of ``row`` at step h among mixtures of policies of value >= level."""
        low, high = np.empty_like(self.rows), np.empty_like(self.rows)
        weight, visits, steps = kernels.constrained_visit(
            self.columns, self.rewards, self.layout.state_ptr, self.initial, self.values, self.q, self.rows,
            h, int(self.layout.row_state[row]), row, level, coins, low, high,
        )  # fmt: skip
        return Visit(low, high, float(weight), float(visits), int(steps))


@dataclass(frozen=True, eq=False)
class ActiveSet:
    """Facts that a learner keeps about its newest stage.

    Attributes
    ----------
    top : float
        The largest upper bound of a value.
    level : float
        The largest lower bound; every member of Q has an upper bound of at least this; -inf in the first
        stage.
    steps : int
        Number of backward inductions.
    policies : int
        Number of different policies of the stage.
    """

    top: float = float("nan")
    level: float = -np.inf
    steps: int = 0
    policies: int = 0


@dataclass(frozen=True, kw_only=True)
class SDPPEOM(StagedLearner):
    """SDP-PE-OM: staged exploration by occupancy measures; with any privatizer.

    Parameters
    ----------
    preset : "default" or "theory"
        ``default``: widths scaled down (heuristic). ``theory``: bounds that hold.
    forget : bool
        Each stage reads its own batch alone, at the full budget.
    deterministic : bool
        Play only the policy of the mixture whose value reaches the level.

    Further options: :class:`~discreet.learners.online.elimination_schedule.StagedLearner`.
    """

    forget: bool | None = None
    deterministic: bool | None = None

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {**SHARED, "forget": False, "deterministic": False},
        "theory": {"width_scale": 1.0, "explore_share": 1.0},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("forget", "deterministic"):
            object.__setattr__(self, name, checks.flag(name, getattr(self, name)))

    # --------------------------------------------------------------------------- public facts
    def schedule(self, spec: ProblemSpec) -> Schedule:
        """Return one release per stage, fixed in advance."""
        sizes, each = self.sizes(spec), spec.horizon * spec.layout.rows
        times = np.concatenate([[0], np.cumsum(np.array(sizes) * each)]).astype(np.int64)
        queries = (self.query(spec),) * len(sizes) if self.forget else None
        return Schedule(spec.users, times=times, queries=queries, plans="deterministic")

    # -------------------------------------------------------------------------- one release
    def _memory(self, spec: ProblemSpec) -> ActiveSet:
        return ActiveSet()

    def _read(self, state: StageState, release: Release) -> tuple[ActiveSet, Plans]:
        spec, layout = state.spec, state.spec.layout
        assert spec.initial is not None
        sizes, stage = self.sizes(spec), release.number
        coins = open_at(state.ties, ROLE_TIES, stage, 0)
        transitions, rewards = self._unknown(spec), np.zeros((spec.horizon, layout.rows))
        if stage > 0:
            # A noise bound holds at all releases, of sums or of batches. Counts of one sequence are bounded
            # at every length, those of separate batches share the failure probability.
            share = 1.0 / len(sizes) if self.forget else 1.0
            model = StageModel.of(release, spec, float(self.noise_failure or 0.05), self.ignores_noise)
            transitions, rewards = model.completed(), model.rewards
        if self.known_rewards and spec.known_rewards is not None:
            rewards = layout.to_rows(spec.known_rewards)
        if stage == len(sizes):
            best = KnownModel.of(layout, spec.initial, transitions, rewards, coins).rows
            return state.memory, ((layout.row_action[best], int(spec.users or 0) - release.users),)
        level = -np.inf
        if stage > 0:
            scale, failure = float(self.width_scale or 0.0), share * float(self.failure or 0.05)
            w = value_widths(model, spec, failure, bool(self.known_rewards), scale)
            level = KnownModel.of(layout, spec.initial, transitions, rewards - w, coins).value
            rewards = rewards + w
        world = KnownModel.of(layout, spec.initial, transitions, rewards, coins)
        return self._explore(world, level, sizes[stage], coins)

    @staticmethod
    def _unknown(spec: ProblemSpec) -> Floats:
        """Return (H, R, S) uniform rows: the model without data."""
        return np.full((spec.horizon, spec.layout.rows, spec.states), 1.0 / spec.states)

    def _explore(self, world: KnownModel, level: float, size: int, coins: Words) -> tuple[ActiveSet, Plans]:
        """Return the plans of a stage: for each (h, s, a) the best visitor in Q, ``size`` users each."""
        layout = world.layout
        users: dict[bytes, int] = {}
        small, play = small_integers(layout.rows), layout.row_action.astype(small_integers(layout.actions))
        steps = 0
        for h in range(layout.horizon):
            for row in range(layout.rows):
                solved = world.visit(h, row, level, coins)
                steps += solved.steps
                high = size if self.deterministic and solved.weight > 0.0 else 0
                if not self.deterministic:
                    high = int(draw_binomials(coins, size, solved.weight, 1)[0])
                for rows, many in ((solved.low, size - high), (solved.high, high)):
                    if many > 0:
                        key = rows.astype(small).tobytes()
                        users[key] = users.get(key, 0) + many
        shape = (layout.horizon, layout.states)
        plans = tuple((play[np.frombuffer(key, small).reshape(shape)], many) for key, many in users.items())
        return ActiveSet(world.value, level, steps, len(plans)), plans

    # ------------------------------------------------------------------------------- in words
    def heuristics(self) -> Iterator[str]:
        """Yield the heuristics. There is always one: the theorem is about listed policies."""
        yield from super().heuristics()
        yield "an active set of occupancy measures is not nested, and one model stands for three"
