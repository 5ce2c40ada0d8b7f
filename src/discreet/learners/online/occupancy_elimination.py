r"""SDP-PE-OM: policy elimination by occupancy measures of one private model, without a list of policies.

Let P~ and r~ be the released model, and let w be the widths of
:func:`discreet.learners.online.elimination_schedule.value_widths`. The policies that can still be optimal
form the set

    Q = {q an occupancy measure of P~ :  <q, r~ + w> >= level},    level = max over q' of <q', r~ - w>.

In a stage, for every triple (h, s, a), L_0 users follow the member of Q that visits the triple most often.
This member is a mixture of two deterministic policies, found by
:mod:`discreet.learners.online.occupancy_elimination_kernels`. A public binomial draw splits the L_0 users
between the two policies. With ``forget``, only the batch of the current stage is queried, with the full
budget.

**Guarantees.** All computations are post-processing, so the privacy guarantee is that of SDP-PE. With
``width_scale`` >= 1, every optimal policy is in Q at every stage, with probability at least 1 - ``failure`` -
``noise_failure``. Proof: |V^pi(r, P) - V^pi(r~, P~)| <= V^pi(w, P~) simultaneously for all policies pi.
Therefore the upper bound of an optimal policy is at least V*, and no lower bound is above V*. The value of a
member q of Q is at least V* - 2 <q, w> - 2 <q', w>, where q' is the occupancy measure of an optimal policy in
P~.

**No regret theorem.** The paper's theorem does not apply: an excluded policy can return in a later stage,
users follow mixtures of policies, and one model replaces the crude, absorbing and fine models. Results should
be reported under the name SDP-PE-OM.

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
from discreet.core.releases import Floats, Ints
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
from discreet.utils.random_streams_kernels import ROLE_TIES, draw_binomials, open_at

Words = NDArray[np.uint64]


class Visit(NamedTuple):
    """Mixture of two deterministic policies that visits one pair at one step most often.

    Attributes
    ----------
    low, high : (H, S)
        Rows (admissible pairs) chosen by the two policies.
    weight : float
        Weight of ``high`` in the mixture, in [0, 1].
    visits : float
        Probability that the mixture visits the pair at the step.
    steps : int
        Number of backward inductions in the search for the mixture.
    """

    low: Ints
    high: Ints
    weight: float
    visits: float
    steps: int


@dataclass(frozen=True, eq=False)
class KnownModel:
    """Known MDP with its optimal values, stored as tables over R admissible pairs.

    Attributes
    ----------
    initial : (S,)
        Distribution of the first state.
    columns : (H, S', R)
        Transition probabilities P_h(s' | r) of each pair r.
    rewards : (H, R)
    values, q : (H + 1, S) and (H, R)
        Optimal V and Q.
    rows : (H, S)
        Row (admissible pair) of the optimal policy at each step and state.
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
        """Build the model from transitions (H, R, S) and rewards (H, R).

        ``initial`` (S,) is the distribution of the first state. ``coins`` (4,) is the state of the random
        stream that breaks ties; it is advanced in place.
        """
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
        """Return a mixture of two policies with value >= ``level`` that visits ``row`` at step h most often.

        ``coins`` (4,) is the state of the random stream that breaks ties; it is advanced in place.
        """
        low, high = np.empty_like(self.rows), np.empty_like(self.rows)
        weight, visits, steps = kernels.constrained_visit(
            self.columns, self.rewards, self.layout.state_ptr, self.initial, self.values, self.q, self.rows,
            h, int(self.layout.row_state[row]), row, level, coins, low, high,
        )  # fmt: skip
        return Visit(low, high, float(weight), float(visits), int(steps))


@dataclass(frozen=True, eq=False)
class ActiveSet:
    """Statistics of the latest stage.

    Attributes
    ----------
    top : float
        Largest upper bound of the value of a policy.
    level : float
        Largest lower bound of the value of a policy; -inf in the first stage.
    steps : int
        Number of backward inductions.
    policies : int
        Number of different policies that users follow in the stage.
    """

    top: float = float("nan")
    level: float = -np.inf
    steps: int = 0
    policies: int = 0


@dataclass(frozen=True, kw_only=True)
class SDPPEOM(StagedLearner):
    """SDP-PE-OM: staged exploration by occupancy measures, with any privatizer.

    Parameters
    ----------
    preset : "default" or "theory"
        ``default``: smaller widths (heuristic). ``theory``: valid bounds.
    forget : bool
        True: each stage uses only the data of the previous stage's batch, which has the full budget. False:
        each stage uses the data of all earlier stages.
    deterministic : bool
        Treatment of a mixture of two policies. True: all users follow the policy whose value reaches the
        level. False: the users are split between the two policies at random.

    For further options see :class:`~discreet.learners.online.elimination_schedule.StagedLearner`.
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

    # ------------------------------------------------------------------------------- schedule
    def schedule(self, spec: ProblemSpec) -> Schedule:
        """Return the schedule, which has one release per stage."""
        sizes, each = self.sizes(spec), spec.horizon * spec.layout.rows
        times = np.concatenate([[0], np.cumsum(np.array(sizes) * each)]).astype(np.int64)
        queries = (self.query(spec),) * len(sizes) if self.forget else None
        return Schedule(spec.users, times=times, queries=queries, plans="deterministic")

    # -------------------------------------------------------------- planning from a release
    def _memory(self, spec: ProblemSpec) -> ActiveSet:
        return ActiveSet()

    def _read(self, state: StageState, release: Release) -> tuple[ActiveSet, Plans]:
        spec, layout = state.spec, state.spec.layout
        assert spec.initial is not None
        sizes, stage = self.sizes(spec), release.number
        coins = open_at(state.ties, ROLE_TIES, stage, 0)
        transitions, rewards = self._unknown(spec), np.zeros((spec.horizon, layout.rows))
        if stage > 0:
            # The concentration bounds must hold at all releases. The bound for running sums of one sequence
            # holds for all lengths simultaneously. Separate batches have one bound each, so these bounds
            # share the failure probability.
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
        """Return uniform transition probabilities (H, R, S), the model without data."""
        return np.full((spec.horizon, spec.layout.rows, spec.states), 1.0 / spec.states)

    def _explore(self, world: KnownModel, level: float, size: int, coins: Words) -> tuple[ActiveSet, Plans]:
        """Return the statistics and the plans of one stage.

        ``size`` users follow the member of Q that visits a triple (h, s, a) most often, for each triple.
        ``level`` defines Q.
        """
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

    # ---------------------------------------------------------------------- description as text
    def heuristics(self) -> Iterator[str]:
        """Yield one string for each option value that the regret theorem does not cover."""
        yield from super().heuristics()
        yield "an active set of occupancy measures is not nested, and one model stands for three"
